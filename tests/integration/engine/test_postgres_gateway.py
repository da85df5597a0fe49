"""The PostgreSQL gateway of a worker when PostgreSQL does not respond."""

import asyncio

import pytest

from aaiclick.orchestration.gateway import postgres
from aaiclick.orchestration.gateway.postgres import PostgresGatewayConnection
from aaiclick.store import postgres_connections
from aaiclick.store.postgres_connections import CONNECTION_ERRORS, connect
from aaiclick.store.statements import statement


@pytest.fixture
async def gateway_connection(aaiclick_postgres):
    gateway_connection = PostgresGatewayConnection(await connect(aaiclick_postgres))
    yield gateway_connection
    gateway_connection.terminate()


async def test_missing_response_times_out(gateway_connection):
    with (
        pytest.raises(CONNECTION_ERRORS, match=r"PostgreSQL has not answered within 0\.05 s"),
        gateway_connection.response_deadline(0.05),
    ):
        await gateway_connection.postgres.fetchval("SELECT pg_sleep(60)")
    assert gateway_connection.is_closed


async def test_driver_error_after_timeout_is_treated_as_outage(gateway_connection):
    """asyncpg raises AttributeError if the connection is lost between two steps of one statement."""

    async def half_a_statement():
        await asyncio.sleep(0.01)
        return gateway_connection.postgres._protocol.bind_execute

    with pytest.raises(CONNECTION_ERRORS, match="has not answered"), gateway_connection.response_deadline(0):
        await half_a_statement()


async def test_other_errors_are_not_converted(gateway_connection):
    with pytest.raises(ZeroDivisionError), gateway_connection.response_deadline(60):
        raise ZeroDivisionError
    assert not gateway_connection.is_closed


@pytest.mark.parametrize("who", ["a worker", "anybody"])
async def test_session_idle_in_transaction_is_ended(aaiclick_postgres, monkeypatch, who):
    """PostgreSQL is suspended during an election, while TCP keepalives are still answered."""
    monkeypatch.setattr(postgres_connections, "SERVICE_IDLE_TRANSACTION_SECONDS", 0.2)
    if who == "a worker":
        gateway_connection = await postgres.PostgresGateway(aaiclick_postgres, None).connect()
    else:
        gateway_connection = PostgresGatewayConnection(await connect(aaiclick_postgres, silent_seconds=0.2))
    async with asyncio.timeout(100):
        await gateway_connection.postgres.execute("BEGIN")
        assert await gateway_connection.postgres.fetchval(statement("lock_election"))
        other = await connect(aaiclick_postgres)
        while not await other.fetchval(statement("lock_election")):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        await other.close()
        with pytest.raises(CONNECTION_ERRORS):
            await gateway_connection.postgres.execute("COMMIT")
    gateway_connection.terminate()


async def test_idle_session_outside_transaction_is_kept(aaiclick_postgres):
    connection = await connect(aaiclick_postgres, silent_seconds=0.05)
    await asyncio.sleep(0.2)
    assert await connection.fetchval("SELECT 1") == 1
    await connection.close()
