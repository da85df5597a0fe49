"""A worker's conversation with PostgreSQL, when that does not answer."""

import asyncio

import pytest

from aaiclick.orchestration.transport.direct import DirectLine
from aaiclick.orchestration.transport.line import GONE
from aaiclick.store.engine import connect


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
