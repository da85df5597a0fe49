"""Fairness between organisations: ten tasks do not wait for a million of another one."""

from __future__ import annotations

import asyncio
from uuid import uuid4

from aaiclick.snowflake import get_snowflake_ids
from aaiclick.store.engine.enqueue import enqueue_tasks
from aaiclick.store.engine.submission_plan import NewTask
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.postgres_connections import connect
from tests.integration.gateways import ONE_ORGANISATION, postgres_only

CROWD = 1_000_000
FILL = f"""
    SET synchronous_commit = off; SET session_replication_role = replica;
    INSERT INTO tasks (id, type, entrypoint, readiness)
    SELECT n, 'users_tasks.nothing', 'users_tasks.nothing', 'READY' FROM generate_series(1, {CROWD}) AS n;
    RESET session_replication_role; RESET synchronous_commit
"""
NEXT_CLAIMS = 2_000
"""Claims of the large organisation before the last of the ten; a worker claims some hundreds in advance."""


@postgres_only(ONE_ORGANISATION)
async def test_ten_tasks_do_not_wait_for_a_million(worker_processes, aaiclick_postgres):
    db = await connect(aaiclick_postgres)
    await db.execute(FILL, timeout=100)
    small = uuid4()
    await db.execute("INSERT INTO orgs (id, name, slug) VALUES ($1, 'small', 'small')", small)
    pid = await worker_processes.start()
    async with asyncio.timeout(100):
        while not await db.fetchval("SELECT EXISTS (SELECT FROM tasks WHERE status = 'COMPLETED')"):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    name = "users_tasks.nothing"
    ids = await enqueue_tasks(db, [NewTask(key, name, entrypoint=name) for key in get_snowflake_ids(10)], small)
    async with asyncio.timeout(100):
        while await db.fetchval("SELECT count(*) FROM tasks WHERE id = ANY ($1) AND status = 'COMPLETED'", ids) < 10:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    await worker_processes.end(pid)
    row = await db.fetchrow(
        "SELECT min(created_at) AS put, max(claimed_at) AS taken FROM tasks WHERE id = ANY ($1)", ids
    )
    before = await db.fetchval(
        "SELECT count(*) FROM tasks WHERE org_id = $1 AND claimed_at > $2 AND claimed_at <= $3",
        DEFAULT_ORG_ID, row["put"], row["taken"],
    )  # fmt: skip
    await db.close()
    print(f"the last of the ten began after {(row['taken'] - row['put']).total_seconds():.3f} s")
    assert before <= NEXT_CLAIMS
