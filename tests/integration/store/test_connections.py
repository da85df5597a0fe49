"""Errors of failed connections to PostgreSQL."""

from __future__ import annotations

import asyncio
import socket

import asyncpg
import pytest
from sqlalchemy import text

from aaiclick.errors import SettingsError, UnauthorisedError, UnreachableError, UnsupportedServerError
from aaiclick.server_addresses import PostgresEndpoint
from aaiclick.store import postgres_connections as engine_module
from aaiclick.store.postgres_connections import check_server, connect, create_engine

SECRET = "hunter2-is-not-printed"


def over_tcp(endpoint: PostgresEndpoint, user: str = "tester", password: str = "") -> PostgresEndpoint:
    return PostgresEndpoint("127.0.0.1", endpoint.port, user, endpoint.database, password)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


async def test_server_version_over_socket_and_tcp(postgres_server: PostgresEndpoint) -> None:
    by_socket, by_tcp = await check_server(postgres_server), await check_server(over_tcp(postgres_server))
    assert by_socket == by_tcp
    assert by_socket.major_version >= 14
    assert by_socket.description.startswith("PostgreSQL ")


async def test_engine_connects_over_a_socket(postgres_server: PostgresEndpoint) -> None:
    engine = create_engine(postgres_server)
    async with engine.connect() as connection:
        assert (await connection.execute(text("SELECT current_user"))).scalar_one() == "tester"
    await engine.dispose()


async def test_error_of_a_wrong_password_does_not_contain_it(postgres_server: PostgresEndpoint) -> None:
    admin = await asyncpg.connect(postgres_server.dsn)
    await admin.execute("DROP ROLE IF EXISTS guarded; CREATE ROLE guarded LOGIN PASSWORD 'right'")
    await admin.close()
    with pytest.raises(UnauthorisedError, match="refused user 'guarded'") as caught:
        await check_server(over_tcp(postgres_server, "guarded", SECRET))
    assert SECRET not in f"{caught.value}{caught.value!r}"
    assert "POSTGRES_PASSWORD" in caught.value.remedy
    assert (await check_server(over_tcp(postgres_server, "guarded", "right"))).major_version


async def test_unknown_user_is_unauthorised(postgres_server: PostgresEndpoint) -> None:
    with pytest.raises(UnauthorisedError, match="refused user 'nobody'"):
        await check_server(over_tcp(postgres_server, "nobody"))


async def test_error_of_a_missing_database_names_createdb(postgres_server: PostgresEndpoint) -> None:
    endpoint = over_tcp(postgres_server).with_database("absent")
    with pytest.raises(UnreachableError, match="has no database 'absent'") as caught:
        await check_server(endpoint)
    assert caught.value.remedy == f"Create it: createdb -h 127.0.0.1 -p {endpoint.port} -U tester absent"


async def test_closed_port_is_unreachable() -> None:
    port = free_port()
    with pytest.raises(UnreachableError, match=f"PostgreSQL at 127.0.0.1:{port} does not answer") as caught:
        await check_server(PostgresEndpoint("127.0.0.1", port, "u", "d", SECRET))
    assert SECRET not in str(caught.value)
    assert "POSTGRES_PORT" in caught.value.remedy


async def test_missing_socket_is_unreachable() -> None:
    with pytest.raises(UnreachableError, match="PostgreSQL at socket /nowhere:5432 does not answer"):
        await check_server(PostgresEndpoint("/nowhere", 5432, "u", "d"))


async def test_unknown_host_is_unreachable() -> None:
    with pytest.raises(UnreachableError, match=r"PostgreSQL at no\.such\.host\.invalid:5432 does not answer"):
        await check_server(PostgresEndpoint("no.such.host.invalid", 5432, "u", "d"))


async def test_connect_to_a_hanging_server_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "CONNECT_TIMEOUT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = PostgresEndpoint("127.0.0.1", silent.getsockname()[1], "u", "d")
        with pytest.raises(UnreachableError, match=r"no connection within 0\.2 s"):
            await check_server(endpoint)


async def test_server_that_closes_the_connection_is_unreachable() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(8)
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    for options in ((), (("sslmode", "disable"),)):
        with pytest.raises(UnreachableError, match="does not answer"):
            await connect(PostgresEndpoint("127.0.0.1", port, "u", "d", options=options))
    server.close()


async def test_server_with_another_protocol_is_unsupported() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(8)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        endpoint = PostgresEndpoint("127.0.0.1", server.sockets[0].getsockname()[1], "u", "d")
        with pytest.raises(UnsupportedServerError, match="does not use PostgreSQL's protocol"):
            await check_server(endpoint)


async def test_required_tls_that_the_server_lacks_is_reported(postgres_server: PostgresEndpoint) -> None:
    endpoint = PostgresEndpoint("127.0.0.1", postgres_server.port, "tester", "postgres", "", (("sslmode", "require"),))
    with pytest.raises(UnreachableError, match="rejected SSL upgrade"):
        await connect(endpoint)


async def test_unknown_url_option_is_a_settings_error(postgres_server: PostgresEndpoint) -> None:
    endpoint = PostgresEndpoint("127.0.0.1", postgres_server.port, "u", "d", SECRET, (("sslmode", "sometimes"),))
    with pytest.raises(SettingsError, match="sslmode") as caught:
        await connect(endpoint)
    assert SECRET not in str(caught.value)
