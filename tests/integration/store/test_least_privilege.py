"""The worker user of docs/security.md has the privileges that workers need, and no others."""

from __future__ import annotations

import asyncio
import re
import uuid
from dataclasses import replace
from pathlib import Path

import asyncpg
import pytest

from aaiclick.data import create_object_from_value
from aaiclick.orchestration import OrchContext, create_job, create_task, run_job_test
from aaiclick.orchestration.loops import leader
from aaiclick.orchestration.loops.table_cleanup import PgCleanupWorker
from aaiclick.settings import get_settings
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.engine import queue
from aaiclick.store.engine.invariants import check_invariants
from aaiclick.store.postgres_connections import connect

SECURITY = Path(__file__).parents[3] / "docs" / "security.md"
REFUSED = [
    "CREATE TABLE mine (x int)",
    "ALTER TABLE tasks ADD COLUMN mine int",
    "DROP TABLE tasks",
    "TRUNCATE tasks",
    "ALTER TABLE tasks DISABLE ROW LEVEL SECURITY",
    "CREATE ROLE mine",
    "ALTER ROLE CURRENT_USER SUPERUSER",
    "SELECT pg_read_file('postgresql.conf')",
    "COPY tasks TO PROGRAM 'cat'",
    "UPDATE aaiclick_version SET version_num = '0000'",
    "DELETE FROM audit_log",
    "UPDATE audit_log SET action = ''",
    "CREATE FUNCTION mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
]


async def give() -> object:
    return await create_object_from_value([1, 2, 3])


@pytest.fixture
async def worker_endpoint(aaiclick_env, aaiclick_postgres, monkeypatch):
    """The user created by the documented statements, with a unique name: roles belong to the whole server."""
    name, password = f"work_{uuid.uuid4().hex}", uuid.uuid4().hex
    section = SECURITY.read_text().partition("## Least privilege")[2]
    block = re.search(r"```sql\n(.*?)```", section, re.DOTALL)
    assert block is not None
    statements = block.group(1).replace("aaiclick_work", name).replace("choose one", password)
    owner = await connect(aaiclick_postgres)
    await owner.execute(statements)
    endpoint = replace(aaiclick_postgres, user=name, password=password)
    monkeypatch.setenv("AAICLICK_DATABASE_URL", endpoint.dsn)
    get_settings.cache_clear()
    yield endpoint
    await owner.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")
    await owner.close()


async def test_documented_worker_user_has_least_privilege(worker_endpoint):
    async with OrchContext():
        job = await create_job("job", create_task(give))
    ended = await asyncio.to_thread(run_job_test, job)
    assert ended.status == "COMPLETED"
    db = await connect(worker_endpoint)
    try:
        me = await queue.register_worker(db, worker_id=get_snowflake_id(), hostname="here", pid=1)
        assert (await leader.run_once(db, worker_id=me.id))["leads"] == 1
        await PgCleanupWorker().run_once()
        assert await check_invariants(db, grace_seconds=0) == []
        for statement in REFUSED:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await db.execute(statement)
    finally:
        await db.close()
