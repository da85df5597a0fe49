"""Connections through PgBouncer: session mode keeps all settings, other modes are refused."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import asyncpg
import pytest

from aaiclick.chaos.tcp_proxy import TcpProxy
from aaiclick.cli.doctor import _ping_postgres
from aaiclick.errors import UnreachableError, UnsupportedServerError
from aaiclick.server_addresses import PostgresEndpoint
from aaiclick.store import connection_pooler_checks
from aaiclick.store.postgres_connections import SESSION_SETTINGS, connect, create_pool
from aaiclick.store.tenancy.postgres_api_role import API_ROLE, create_api_pool, ensure_api_role

PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
CONFIG = """
[databases]
{database} = host=127.0.0.1 port={upstream} user={user} password={password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
default_pool_size = {size}
ignore_startup_parameters = {ignored}
logfile = {directory}/log
"""
GUARDS = (*SESSION_SETTINGS, "idle_in_transaction_session_timeout")
Start = Callable[..., "asyncio.Future[PostgresEndpoint]"]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.fixture
async def bouncer(
    aaiclick_postgres: PostgresEndpoint, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Start]:
    """A function that starts PgBouncer for the database of this test, and returns its endpoint."""
    endpoint, started = aaiclick_postgres, []
    proxy = TcpProxy(f"{endpoint.host}/.s.PGSQL.{endpoint.port}")
    await proxy.start()

    async def start(mode: str, ignored: str = "", size: int = 20) -> PostgresEndpoint:
        assert PGBOUNCER is not None, "The tests need PgBouncer: make pgbouncer"
        directory = tmp_path_factory.mktemp("pgbouncer")
        port = free_port()
        text = CONFIG.format(
            database=endpoint.database, upstream=proxy.port, user=endpoint.user, password=endpoint.password or "x",
            port=port, mode=mode, size=size, ignored=ignored, directory=directory,
        )  # fmt: skip
        (directory / "ini").write_text(text)
        command = [PGBOUNCER, str(directory / "ini")]
        if os.getuid() == 0:  # it does not run as root
            nobody = pwd.getpwnam("nobody")
            for path in (directory, directory / "ini"):
                os.chown(path, nobody.pw_uid, nobody.pw_gid)
            for parent in directory.parents[: len(directory.parents) - len(Path("/tmp").parents)]:
                parent.chmod(parent.stat().st_mode | 0o011)
            command[1:1] = ["-u", "nobody"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: ASYNC220
        started.append(process)
        async with asyncio.timeout(60):
            while True:
                assert process.poll() is None, (directory / "log").read_text()
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                await asyncio.sleep(0.02)
        return replace(endpoint, host="127.0.0.1", port=port, password="x", options=(("sslmode", "disable"),))

    connection_pooler_checks._checked_at.clear()
    yield start  # pyright: ignore[reportReturnType]
    for process in started:
        process.kill()
        process.wait()
    await proxy.stop()


IGNORED = ",".join(
    (*GUARDS, "role", "statement_timeout", "tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count",
     "tcp_user_timeout")
)  # fmt: skip


async def guards_of(connection) -> dict[str, str]:
    return {name: await connection.fetchval("SELECT current_setting($1)", name) for name in GUARDS}


@pytest.mark.parametrize("ignored", ["", IGNORED], ids=["refused parameters", "ignored parameters"])
async def test_session_mode_has_all_session_settings(bouncer, aaiclick_postgres, ignored: str) -> None:
    direct = await connect(aaiclick_postgres)
    expected = await guards_of(direct)
    await direct.close()
    endpoint = await bouncer("session", ignored)
    pool = await create_pool(endpoint, size=2)
    for _ in range(3):  # each return to the pool resets the session
        async with pool.acquire() as connection:
            assert await guards_of(connection) == expected
            await connection.execute("SET enable_seqscan = on")
    await pool.close()
    assert (await _ping_postgres(endpoint)).state == "ok"


async def test_session_mode_keeps_the_role_of_the_api(bouncer, aaiclick_postgres) -> None:
    owner = await connect(aaiclick_postgres)
    await ensure_api_role(owner)
    await owner.close()
    pool = await create_api_pool(await bouncer("session", IGNORED), size=1, statement_seconds=7)
    for _ in range(2):
        async with pool.acquire() as connection:
            assert await connection.fetchval("SELECT current_user") == API_ROLE
            assert await connection.fetchval("SELECT current_setting('statement_timeout')") == "7s"
    await pool.close()


@pytest.mark.parametrize("mode", ["transaction", "statement"])
@pytest.mark.parametrize("ignored", ["", IGNORED], ids=["refused parameters", "ignored parameters"])
async def test_modes_that_share_sessions_are_refused(bouncer, mode: str, ignored: str) -> None:
    endpoint = await bouncer(mode, ignored)
    for _ in range(3):
        with pytest.raises(UnsupportedServerError, match="pooler"):
            await connect(endpoint)
    with pytest.raises(UnsupportedServerError, match="pooler") as caught:
        await _ping_postgres(endpoint)
    assert "pool_mode = session" in caught.value.remedy


async def test_transaction_mode_is_found_without_named_statements(bouncer) -> None:
    """A pooler that keeps prepared statements of clients apart causes no error; its server processes show the mode."""
    endpoint = await bouncer("transaction")

    async def open_unnamed() -> asyncpg.Connection:
        return await asyncpg.connect(
            host=endpoint.host, port=endpoint.port, user=endpoint.user, password=endpoint.password or "x",
            database=endpoint.database, statement_cache_size=0,
        )  # fmt: skip

    connection = await open_unnamed()
    try:
        with pytest.raises(UnsupportedServerError, match="shares server connections"):
            await connection_pooler_checks.guard_session(endpoint, connection, {}, open_unnamed)
    finally:
        await connection.close()


async def test_pooler_without_a_second_connection_is_refused(bouncer, monkeypatch) -> None:
    monkeypatch.setattr(connection_pooler_checks, "PROBE_SECONDS", 0.5)
    with pytest.raises(UnreachableError, match="no second server connection"):
        await connect(await bouncer("session", size=1))
