"""Maintenance passes on sessions that stopped responding."""

import asyncio

import asyncpg
import pytest

from aaiclick.orchestration.loops import leader
from aaiclick.store.engine import queue
from aaiclick.store.engine.maintenance import end_stalled_sessions
from aaiclick.store.postgres_connections import connect
from aaiclick.store.statements import statement


@pytest.fixture
async def sessions(aaiclick_postgres):
    sessions = [await connect(aaiclick_postgres), await connect(aaiclick_postgres)]
    yield sessions
    for session in sessions:
        session.terminate()


async def test_session_stalled_between_parse_and_execute_is_ended(sessions):
    stalled, other = sessions
    await stalled.execute("BEGIN")
    assert await stalled.fetchval(statement("lock_election"))
    await stalled.prepare("SELECT 42")  # Parse and Describe, no Sync: PostgreSQL counts the session as active
    assert not await other.fetchval(statement("lock_election"))

    assert await end_stalled_sessions(other) == 0  # it has not been silent for long
    while not await end_stalled_sessions(other, seconds=0):
        pass  # PostgreSQL does not wait for its client yet

    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)):
        await stalled.fetchval("SELECT 1")
    async with other.transaction():
        assert await other.fetchval(statement("lock_election"))


async def test_leader_ends_the_stalled_session_that_holds_the_election(sessions, monkeypatch):
    stalled, other = sessions
    worker = await queue.register_worker(other, hostname="here", pid=1)
    await stalled.execute("BEGIN")
    assert await stalled.fetchval(statement("lock_election"))
    await stalled.prepare("SELECT 42")
    monkeypatch.setitem(end_stalled_sessions.__kwdefaults__, "seconds", 0.0)
    async with asyncio.timeout(60):  # until PostgreSQL shows the session as idle in its transaction
        while (await leader.run_once(other, worker_id=worker.id))["leads"] != 1:
            pass


async def test_idle_and_working_sessions_are_left_alone(sessions):
    idle, other = sessions
    await idle.execute("BEGIN")
    await idle.fetchval("SELECT 1")
    assert await end_stalled_sessions(other, seconds=0) == 0
    assert await idle.fetchval("SELECT 2") == 2


async def test_copy_has_longer_timeout(sessions):
    copying, other = sessions
    await copying.execute("CREATE TEMP TABLE numbers (n int)")

    async def rows():
        yield (1,)
        assert await end_stalled_sessions(other, seconds=0) == 0
        yield (2,)

    async with copying.transaction():
        await copying.copy_records_to_table("numbers", records=rows(), columns=["n"])
    assert await copying.fetchval("SELECT count(*) FROM numbers") == 2
