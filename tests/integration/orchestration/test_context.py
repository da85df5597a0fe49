"""OrchContext: lifetime of the engine, sessions and transactions."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import func, select, text

from aaiclick.errors import AaiclickError
from aaiclick.orchestration import (
    Job,
    OrchContext,
    create_job,
    enqueue,
    enqueue_many,
    get_current_context,
    get_job,
    get_orch_context_session,
    get_task,
    list_jobs,
)
from aaiclick.store.postgres_connections import connect

SESSIONS = """
    SELECT pid, state FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""


@pytest.fixture
async def observer(aaiclick_env, aaiclick_postgres):
    """A connection that counts the other connections."""
    connection = await connect(aaiclick_postgres)
    before = {row["pid"] for row in await connection.fetch(SESSIONS)}

    async def look() -> list[str]:
        return [row["state"] for row in await connection.fetch(SESSIONS) if row["pid"] not in before]

    yield look
    await connection.close()


async def use_engine() -> None:
    await create_job("used", "m.f")
    async with get_orch_context_session() as session:
        await session.execute(select(Job))


async def gone(look) -> None:
    """Wait, since a backend stays in pg_stat_activity for a moment after its connection is closed."""
    async with asyncio.timeout(60):
        while True:
            if not await look():
                return
            await asyncio.sleep(0.01)


async def test_engine_is_created_on_enter_and_disposed_on_exit(observer):
    context = OrchContext()
    with pytest.raises(AaiclickError, match="not entered"):
        _ = context.engine
    assert await observer() == []
    async with context as entered:
        assert entered is context
        await use_engine()
        engine = context.engine
        assert context.engine is engine
        assert await observer() != []
    await gone(observer)
    with pytest.raises(AaiclickError, match="not entered"):
        _ = context.engine
    async with OrchContext() as another:
        assert another.engine is not engine


async def test_engine_is_disposed_after_an_error(observer):
    async def break_down() -> None:
        async with OrchContext():
            await use_engine()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await break_down()
    await gone(observer)


async def test_every_operation_has_its_own_session_and_transaction(observer):
    async with OrchContext() as context:
        async with context.session() as first, context.session() as second:
            assert first is not second
            pids = [await session.scalar(text("SELECT pg_backend_pid()")) for session in (first, second)]
            assert len(set(pids)) == 2
            await first.execute(text("UPDATE orgs SET name = 'changed'"))
            job = await create_job("apart", "m.f")  # committed independently of the session
            assert await second.scalar(text("SELECT count(*) FROM orgs WHERE name = 'changed'")) == 0
        assert (await get_job(job.id)).name == "apart"
        async with context.session() as third:
            assert await third.scalar(text("SELECT count(*) FROM orgs WHERE name = 'changed'")) == 0


async def test_no_transaction_outlives_an_operation(observer):
    async with OrchContext():
        job = await create_job("short", "m.f")
        await list_jobs()
        await get_job(job.id)
        async with get_orch_context_session() as session:
            task_id = await session.scalar(select(func.max(Job.id)))
            assert task_id == job.id
        with pytest.raises(AaiclickError):
            await get_task(1)
        assert set(await observer()) == {"idle"}


async def test_only_changed_sessions_are_reset(aaiclick_env):
    """A reset is a round trip, which an enqueue does without."""
    statements: list[str] = []
    async with OrchContext() as context:
        async with context.connection() as connection:
            connection.add_query_logger(lambda record: statements.append(record.query))
            await connection.execute("SET search_path = pg_catalog")
        await enqueue("mail", {})
        await enqueue_many("mail", [{}, {}])
        await create_job("known", "m.f")
        assert [("RESET ALL" in statement) for statement in statements].count(True) == 1
        async with context.connection() as connection:
            assert "public" in await connection.fetchval("SHOW search_path")


async def test_context_has_its_job_and_is_current(observer):
    async with OrchContext() as outer:
        job = await create_job("known", "m.f")
        async with OrchContext(job_id=job.id) as inner:
            assert get_current_context() is inner
            assert inner.job_id == job.id
        assert get_current_context() is outer
        assert outer.job_id is None
    with pytest.raises(AaiclickError, match="no OrchContext"):
        get_current_context()


async def test_contexts_run_concurrently(observer):
    """Each asyncio task has its own current context."""

    async def enter(name: str, entered: asyncio.Barrier) -> tuple[int, int]:
        async with OrchContext() as context:
            job = await create_job(name, "m.f")
            context.job_id = job.id
            await entered.wait()
            assert get_current_context() is context
            async with get_orch_context_session() as session:
                assert await session.scalar(select(Job.name).where(Job.id == get_current_context().job_id)) == name
            return job.id, id(context)

    barrier = asyncio.Barrier(5)
    results = await asyncio.gather(*(enter(f"job {n}", barrier) for n in range(5)))
    assert len({job_id for job_id, _ in results}) == len({context for _, context in results}) == 5
    await gone(observer)
