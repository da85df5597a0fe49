"""Every way of not getting a connection, and the words it is reported in."""

from __future__ import annotations

import asyncio
import socket

import asyncpg
import pytest
from sqlalchemy import text

from aaiclick.errors import SettingsError, UnauthorisedError, UnreachableError, UnsupportedServerError
from aaiclick.store import engine as engine_module
from aaiclick.store.engine import check_server, connect, create_engine
from aaiclick.targets import PostgresTarget

SECRET = "hunter2-is-not-printed"


def over_tcp(target: PostgresTarget, user: str = "tester", password: str = "") -> PostgresTarget:
    return PostgresTarget("127.0.0.1", target.port, user, target.database, password)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


async def test_a_server_says_what_it_is_over_socket_and_tcp(postgres_server: PostgresTarget) -> None:
    by_socket, by_tcp = await check_server(postgres_server), await check_server(over_tcp(postgres_server))
    assert by_socket == by_tcp
    assert by_socket.major_version >= 14
    assert by_socket.description.startswith("PostgreSQL ")


async def test_an_engine_works_over_a_socket(postgres_server: PostgresTarget) -> None:
    engine = create_engine(postgres_server)
    async with engine.connect() as connection:
        assert (await connection.execute(text("SELECT current_user"))).scalar_one() == "tester"
    await engine.dispose()


async def test_a_wrong_password_names_the_user_and_never_the_password(postgres_server: PostgresTarget) -> None:
    admin = await asyncpg.connect(postgres_server.dsn)
    await admin.execute("DROP ROLE IF EXISTS guarded; CREATE ROLE guarded LOGIN PASSWORD 'right'")
    await admin.close()
    with pytest.raises(UnauthorisedError, match="refused user 'guarded'") as caught:
        await check_server(over_tcp(postgres_server, "guarded", SECRET))
    assert SECRET not in f"{caught.value}{caught.value!r}"
    assert "POSTGRES_PASSWORD" in caught.value.remedy
    assert (await check_server(over_tcp(postgres_server, "guarded", "right"))).major_version


async def test_an_unknown_user_is_unauthorised(postgres_server: PostgresTarget) -> None:
    with pytest.raises(UnauthorisedError, match="refused user 'nobody'"):
        await check_server(over_tcp(postgres_server, "nobody"))


async def test_a_missing_database_comes_with_the_command_that_makes_it(postgres_server: PostgresTarget) -> None:
    target = over_tcp(postgres_server).with_database("absent")
    with pytest.raises(UnreachableError, match="has no database 'absent'") as caught:
        await check_server(target)
    assert caught.value.remedy == f"Create it: createdb -h 127.0.0.1 -p {target.port} -U tester absent"


async def test_nothing_listens() -> None:
    port = free_port()
    with pytest.raises(UnreachableError, match=f"PostgreSQL at 127.0.0.1:{port} does not answer") as caught:
        await check_server(PostgresTarget("127.0.0.1", port, "u", "d", SECRET))
    assert SECRET not in str(caught.value)
    assert "POSTGRES_PORT" in caught.value.remedy


async def test_no_such_socket() -> None:
    with pytest.raises(UnreachableError, match="PostgreSQL at socket /nowhere:5432 does not answer"):
        await check_server(PostgresTarget("/nowhere", 5432, "u", "d"))


async def test_no_such_host() -> None:
    with pytest.raises(UnreachableError, match=r"PostgreSQL at no\.such\.host\.invalid:5432 does not answer"):
        await check_server(PostgresTarget("no.such.host.invalid", 5432, "u", "d"))


async def test_a_silent_server_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "CONNECT_TIMEOUT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = PostgresTarget("127.0.0.1", silent.getsockname()[1], "u", "d")
        with pytest.raises(UnreachableError, match=r"no connection within 0\.2 s"):
            await check_server(target)


async def test_a_server_that_hangs_up_may_come_back() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(8)
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    for options in ((), (("sslmode", "disable"),)):
        with pytest.raises(UnreachableError, match="does not answer"):
            await connect(PostgresTarget("127.0.0.1", port, "u", "d", options=options))
    server.close()


async def test_something_that_is_not_postgresql() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(8)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        target = PostgresTarget("127.0.0.1", server.sockets[0].getsockname()[1], "u", "d")
        with pytest.raises(UnsupportedServerError, match="does not speak PostgreSQL's protocol"):
            await check_server(target)


async def test_a_server_without_tls_says_so_to_who_insists_on_it(postgres_server: PostgresTarget) -> None:
    target = PostgresTarget("127.0.0.1", postgres_server.port, "tester", "postgres", "", (("sslmode", "require"),))
    with pytest.raises(UnreachableError, match="rejected SSL upgrade"):
        await connect(target)


async def test_an_option_that_does_not_exist_is_a_setting_to_correct(postgres_server: PostgresTarget) -> None:
    target = PostgresTarget("127.0.0.1", postgres_server.port, "u", "d", SECRET, (("sslmode", "sometimes"),))
    with pytest.raises(SettingsError, match="sslmode") as caught:
        await connect(target)
    assert SECRET not in str(caught.value)
