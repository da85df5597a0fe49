"""A worker's conversation with PostgreSQL, when that does not answer."""

import asyncio

import pytest

from aaiclick.orchestration.transport import direct
from aaiclick.orchestration.transport.direct import DirectLine
from aaiclick.orchestration.transport.line import GONE
from aaiclick.store import engine
from aaiclick.store.engine import connect
from aaiclick.store.statements import statement


@pytest.fixture
async def line(aaiclick_postgres):
    line = DirectLine(await connect(aaiclick_postgres))
    yield line
    line.terminate()


async def test_an_answer_that_does_not_come_is_not_waited_for(line):
    with pytest.raises(GONE, match=r"PostgreSQL has not answered within 0\.05 s"), line.answering_within(0.05):
        await line.connection.fetchval("SELECT pg_sleep(60)")
    assert line.closed


async def test_what_the_driver_stumbles_over_after_that_is_the_same(line):
    """Given up between two steps of one statement, it finds None where its protocol was, and says AttributeError."""

    async def half_a_statement():
        await asyncio.sleep(0.01)
        return line.connection._protocol.bind_execute

    with pytest.raises(GONE, match="has not answered"), line.answering_within(0):
        await half_a_statement()


async def test_other_errors_are_what_they_are(line):
    with pytest.raises(ZeroDivisionError), line.answering_within(60):
        raise ZeroDivisionError
    assert not line.closed


@pytest.mark.parametrize("who", ["a worker", "anybody"])
async def test_who_falls_silent_in_the_middle_of_a_transaction_holds_up_nobody_for_long(
    aaiclick_postgres, monkeypatch, who
):
    """As when it is frozen while it is being elected: a network that still answers for it tells nothing."""
    monkeypatch.setattr(engine, "SERVANT_SILENT_SECONDS", 0.2)
    if who == "a worker":
        line = await direct.DirectTransport(aaiclick_postgres, None).open()
    else:
        line = DirectLine(await connect(aaiclick_postgres, silent_seconds=0.2))
    async with asyncio.timeout(100):
        await line.connection.execute("BEGIN")
        assert await line.connection.fetchval(statement("lock_election"))
        other = await connect(aaiclick_postgres)
        while not await other.fetchval(statement("lock_election")):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        await other.close()
        with pytest.raises(GONE):
            await line.connection.execute("COMMIT")
    line.terminate()


async def test_who_is_silent_between_transactions_is_let_be(aaiclick_postgres):
    connection = await connect(aaiclick_postgres, silent_seconds=0.05)
    await asyncio.sleep(0.2)
    assert await connection.fetchval("SELECT 1") == 1
    await connection.close()
