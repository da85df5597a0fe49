"""Idempotency keys: one task per organisation, type and key; the second enqueue returns the first id."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import asyncpg
import pytest

from aaiclick.orchestration import OrchContext, enqueue, enqueue_many, get_task
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.engine.enqueue import enqueue_tasks
from aaiclick.store.engine.submission_plan import NewTask
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.postgres_connections import connect
from aaiclick.store.tenancy.orgs import create_org


@pytest.fixture
async def context(aaiclick_env):
    async with OrchContext() as entered:
        yield entered


def item(type_: str = "mail", key: str | None = "k") -> NewTask:
    return NewTask(get_snowflake_id(), type_, kwargs='{"n": 1}', idempotency_key=key)


async def count(context) -> int:
    async with context.connection() as connection:
        return await connection.fetchval("SELECT count(*) FROM tasks")


async def test_a_second_enqueue_returns_the_first_id_and_creates_nothing(context):
    first = await enqueue("email:send", {"to": "user@example.com"}, idempotency_key="email-user-123")
    second = await enqueue("email:send", {"to": "somebody else"}, idempotency_key="email-user-123", priority=9)
    assert second == first
    task = await get_task(first)
    assert (task.kwargs, task.options.priority) == ({"to": "user@example.com"}, 0)
    assert await count(context) == 1


async def test_a_key_belongs_to_its_type(context):
    assert await enqueue("a", idempotency_key="k") != await enqueue("b", idempotency_key="k")
    assert await count(context) == 2


async def test_a_key_belongs_to_its_organisation(context):
    async with context.connection() as connection:
        other = (await create_org(connection, slug="acme", name="Acme")).id
        first = await enqueue_tasks(connection, [item()], DEFAULT_ORG_ID)
        second = await enqueue_tasks(connection, [item()], other)
        assert first != second
        assert await enqueue_tasks(connection, [item()], other) == second
    assert await count(context) == 2


async def test_enqueue_without_key_creates_new_tasks(context):
    assert await enqueue("a") != await enqueue("a")


async def test_a_key_twice_in_one_call_makes_one_task(context):
    ids = await enqueue_many("a", [{"n": 1}, {"n": 2}, {"n": 3}], idempotency_keys=["k", "k", "l"])
    assert ids[0] == ids[1] != ids[2]
    assert await count(context) == 2


async def test_a_finished_task_still_has_its_key(context):
    first = await enqueue("a", idempotency_key="k")
    async with context.connection() as connection:
        await connection.execute(
            "UPDATE tasks SET status = 'COMPLETED', readiness = NULL, completed_at = now() WHERE id = $1", first
        )
    assert await enqueue("a", idempotency_key="k") == first


async def test_concurrent_callers_get_one_task(context, aaiclick_postgres):
    connections = [await connect(aaiclick_postgres) for _ in range(12)]
    try:
        for _ in range(20):
            key = str(uuid4())
            results = await asyncio.gather(*(enqueue_tasks(connection, [item(key=key)]) for connection in connections))
            assert len({ids[0] for ids in results}) == 1
    finally:
        for connection in connections:
            await connection.close()
    assert await count(context) == 20


async def test_the_schema_refuses_a_second_task_of_a_key(context):
    async with context.connection() as connection:
        await connection.execute("INSERT INTO tasks (id, type, idempotency_key) VALUES (1, 'a', 'k'), (2, 'b', 'k')")
        with pytest.raises(asyncpg.UniqueViolationError, match="tasks_idempotency_key"):
            await connection.execute("INSERT INTO tasks (id, type, idempotency_key) VALUES (3, 'a', 'k')")


async def test_the_schema_refuses_a_second_task_of_a_dedupe_key(context):
    one, other = uuid4(), uuid4()
    insert = "INSERT INTO tasks (id, type, definition_id, dedupe_key) VALUES ($1, 'a', $2, 'partition:d:v:p')"
    async with context.connection() as connection:
        await connection.execute(insert, 1, one)
        await connection.execute(insert, 2, other)
        with pytest.raises(asyncpg.UniqueViolationError, match="tasks_dedupe_key"):
            await connection.execute(insert, 3, one)
