"""The user that docs/security.md makes for workers can do their work, and nothing else."""

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
from aaiclick.orchestration.loops import keeper
from aaiclick.orchestration.loops.cleanup import PgCleanupWorker
from aaiclick.settings import get_settings
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store import queue
from aaiclick.store.doctor import check_invariants
from aaiclick.store.engine import connect

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
async def worker_target(aaiclick_env, aaiclick_postgres, monkeypatch):
    """The user of the documented statements, under a name of this test's own: roles belong to the whole server."""
    name, password = f"work_{uuid.uuid4().hex}", uuid.uuid4().hex
    section = SECURITY.read_text().partition("## Least privilege")[2]
    found = re.search(r"```sql\n(.*?)```", section, re.DOTALL)
    assert found is not None
    statements = found.group(1).replace("aaiclick_work", name).replace("choose one", password)
    owner = await connect(aaiclick_postgres)
    await owner.execute(statements)
    target = replace(aaiclick_postgres, user=name, password=password)
    monkeypatch.setenv("AAICLICK_DATABASE_URL", target.dsn)
    get_settings.cache_clear()
    yield target
    await owner.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")
    await owner.close()


async def test_it_works_and_does_nothing_else(worker_target):
    async with OrchContext():
        made = await create_job("job", create_task(give))
    ended = await asyncio.to_thread(run_job_test, made)
    assert ended.status == "COMPLETED"
    db = await connect(worker_target)
    try:
        me = await queue.register_worker(db, worker_id=get_snowflake_id(), hostname="here", pid=1)
        assert (await keeper.run_once(db, worker_id=me.id))["leads"] == 1
        await PgCleanupWorker().run_once()
        assert await check_invariants(db, grace_seconds=0) == []
        for statement in REFUSED:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await db.execute(statement)
    finally:
        await db.close()
