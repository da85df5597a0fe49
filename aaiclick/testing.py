"""pytest fixtures for code that uses aaiclick: PostgreSQL and ClickHouse servers, with a new database of each per test.

pytest loads the plugin wherever aaiclick is installed; it does nothing until a fixture is requested. One embedded
stack serves a whole run, including all parallel workers of pytest-xdist; it is stopped and removed at the end.

- `aaiclick_postgres`: a `PostgresEndpoint` with the current schema and no rows but the default organisation;
- `aaiclick_clickhouse`: a `ClickHouseEndpoint` with an empty database;
- `aaiclick_env`: both, and the settings of this process and its children point at them.

AAICLICK_TEST_HOME, if set, is the home of an existing stack to use instead; it is left running.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http.client
import os
import threading
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from aaiclick.tempdirs import temporary_directory

if TYPE_CHECKING:
    from aaiclick.server_addresses import ClickHouseEndpoint, PostgresEndpoint
    from aaiclick.store.postgres_connections import Connection

T = TypeVar("T")

HOME_VARIABLE = "AAICLICK_TEST_HOME"
HOME_PREFIX = "aaiclick-test-"
"""Prefix of the homes that a run creates."""
TEMPLATE = "aaiclick_template"
FAST_SETTINGS = (
    "ALTER SYSTEM SET fsync = off", "ALTER SYSTEM SET full_page_writes = off",
    "ALTER SYSTEM SET synchronous_commit = off", "ALTER SYSTEM SET autovacuum_naptime = '2min'",
    "SELECT pg_reload_conf()",
)  # fmt: skip
"""Settings of a stack that is removed after the run: it needs no durability, and its many databases stay small."""
FINGERPRINT = "SELECT aaiclick_testing.fingerprint()"
TERMINATE_SESSIONS = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
"""

CREATE_CLEANER = """
CREATE SCHEMA aaiclick_testing;
CREATE FUNCTION aaiclick_testing.fingerprint() RETURNS text LANGUAGE sql AS $$
    SELECT md5(string_agg(line, ',' ORDER BY line)) FROM (
        SELECT 'r' || relname || relkind::text || coalesce(reloptions::text, '') AS line
        FROM pg_class WHERE relnamespace = 'public'::regnamespace
        UNION ALL SELECT 'c' || conname || conrelid::text FROM pg_constraint
        WHERE connamespace = 'public'::regnamespace
        UNION ALL SELECT 't' || tgname || tgrelid::text || tgenabled::text FROM pg_trigger
        WHERE NOT tgisinternal
        UNION ALL SELECT 'a' || attrelid::text || attname FROM pg_attribute
        WHERE attrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace)
        UNION ALL SELECT 'p' || polname || polrelid::text FROM pg_policy
    ) AS lines $$;
DO $make$
DECLARE name text; filled boolean; steps text := '';
BEGIN
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' LOOP
        steps := steps || format('IF EXISTS (SELECT FROM public.%I) THEN DELETE FROM public.%1$I; END IF; ', name);
        EXECUTE format('SELECT EXISTS (SELECT FROM public.%I)', name) INTO filled;
        IF filled THEN
            EXECUTE format('CREATE TABLE aaiclick_testing.%I AS TABLE public.%1$I', name);
            steps := steps || format('INSERT INTO public.%I SELECT * FROM aaiclick_testing.%1$I; ', name);
        END IF;
    END LOOP;
    -- The statements of a function are planned once per session.
    EXECUTE format('CREATE FUNCTION aaiclick_testing.clean() RETURNS boolean LANGUAGE plpgsql AS %L', $head$
        DECLARE large bigint;
        BEGIN
            SELECT max(pg_relation_size(oid)) INTO large FROM pg_class
            WHERE relnamespace = 'public'::regnamespace AND relkind = 'r';
            IF large > 4000000 THEN RETURN false; END IF;
            PERFORM set_config('session_replication_role', 'replica', true);
            $head$ || steps || 'RETURN true; END');
END $make$;
"""


def pytest_configure(config: pytest.Config) -> None:
    """Choose the home of the run's stack in the first process, so that workers started by it inherit the choice."""
    if HOME_VARIABLE not in os.environ:
        config.stash[_OWNED_HOME] = exit_stack = contextlib.ExitStack()
        os.environ[HOME_VARIABLE] = str(exit_stack.enter_context(temporary_directory(HOME_PREFIX)))


def pytest_unconfigure(config: pytest.Config) -> None:
    if (owned := config.stash.get(_OWNED_HOME, None)) is not None:
        home = Path(os.environ.pop(HOME_VARIABLE))
        if (home / "keeper.lock").exists():
            _stop_stack(home)
        owned.close()


_OWNED_HOME = pytest.StashKey[contextlib.ExitStack]()


def _stop_stack(home: Path) -> None:
    from aaiclick.local.home import Home
    from aaiclick.local.stack_connection import ask_keeper

    ask_keeper(Home(home), {"op": "stop"})


class _Stack:
    """A test process's connection to the run's stack, with an event loop in a thread for the fixtures."""

    def __init__(self, home: Path) -> None:
        from aaiclick.local.home import Home
        from aaiclick.local.stack_connection import StackConnection

        self.connection = StackConnection(Home(home), linger_seconds=30)
        self.home = home
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._admin: Connection | None = None
        self._clean_databases: list[str] = []
        self._connections: dict[str, Connection] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._fingerprint = ""

    def start(self, coroutine: Coroutine[object, object, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def run(self, coroutine: Coroutine[object, object, T]) -> T:
        return self.start(coroutine).result()

    def close(self) -> None:
        for connection in (self._admin, *self._connections.values()):
            if connection is not None:
                self.run(connection.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self.connection.close()

    async def run_sql(self, statement: str) -> list[Any]:
        """Run a statement in the database `postgres`."""
        if self._admin is None or self._admin.is_closed():
            self._admin = await _connect(self.connection.postgres_endpoint().with_database("postgres"))
        return await self._admin.fetch(statement)

    async def make_template(self) -> None:
        """Create the migrated template database, unless another process has."""
        from aaiclick.local.home import file_lock
        from aaiclick.store.migrate import upgrade_if_needed

        self.connection.require_servers("postgres")
        with file_lock(self.home / "template.lock"):
            if await self.run_sql(f"SELECT 1 FROM pg_database WHERE datname = '{TEMPLATE}'"):  # noqa: S608
                return
            for statement in FAST_SETTINGS if self.home.name.startswith(HOME_PREFIX) else ():
                await self.run_sql(statement)
            await self.run_sql(f"DROP DATABASE IF EXISTS {TEMPLATE}_new")
            await self.run_sql(f"CREATE DATABASE {TEMPLATE}_new")
            fresh = self.connection.postgres_endpoint().with_database(f"{TEMPLATE}_new")
            await upgrade_if_needed(fresh)
            async with _open_connection(fresh) as connection:
                await connection.execute(CREATE_CLEANER)
            await self.run_sql(f"ALTER DATABASE {TEMPLATE}_new RENAME TO {TEMPLATE}")

    async def take_database(self) -> str:
        """Return a database with the current schema: a cleaned one of an earlier test, or a copy of the template."""
        if self._clean_databases:
            return self._clean_databases.pop()
        name = f"test_{uuid.uuid4().hex}"
        await self.run_sql(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}")
        return name

    async def return_database(self, name: str) -> None:
        """Clean a database for the next test, which is 100 times faster than a copy of the template.

        A database with a changed schema or very many rows is dropped instead.
        """
        clean = False
        with contextlib.suppress(Exception):  # the test may have broken the database in any way
            clean = await self._clean_database(await self._connect_database(name))
        if clean:
            self._clean_databases.append(name)
            return
        if name in self._connections:
            await self._connections.pop(name).close()
        await self.run_sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    async def use_connection(self, name: str, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Call a function with the kept connection of a database, one at a time.

        A new session has to load the catalog and plan each statement, which takes longer than most statements.
        """
        async with self._locks.setdefault(name, asyncio.Lock()):
            connection = await self._connect_database(name)
            try:
                await connection.fetchval("SELECT 1")
            except Exception:  # noqa: BLE001  (a test ended the session: the driver may not have noticed)
                connection.terminate()
                connection = await self._connect_database(name)
            return await work(connection)

    async def _connect_database(self, name: str) -> Connection:
        """Return a connection that is kept open: its catalog cache makes cleaning faster."""
        if name not in self._connections or self._connections[name].is_closed():
            self._connections[name] = await _connect(self.connection.postgres_endpoint().with_database(name))
        return self._connections[name]

    async def _clean_database(self, database: Connection) -> bool:
        while await database.fetch(TERMINATE_SESSIONS):  # noqa: ASYNC110  (sessions end without a notification)
            await asyncio.sleep(0.005)
        if not self._fingerprint:
            async with _open_connection(self.connection.postgres_endpoint().with_database(TEMPLATE)) as connection:
                self._fingerprint = str(await connection.fetchval(FINGERPRINT))
        if await database.fetchval(FINGERPRINT) != self._fingerprint:
            return False
        return bool(await database.fetchval("SELECT aaiclick_testing.clean()"))


async def _connect(endpoint: PostgresEndpoint) -> Connection:
    from aaiclick.store.postgres_connections import connect

    return await connect(endpoint)


@contextlib.asynccontextmanager
async def _open_connection(endpoint: PostgresEndpoint) -> AsyncGenerator[Connection]:
    connection = await _connect(endpoint)
    try:
        yield connection
    finally:
        await connection.close()


def _run_clickhouse(endpoint: ClickHouseEndpoint, query: str) -> None:
    connection = http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=60)
    credential = base64.b64encode(f"{endpoint.user}:{endpoint.password}".encode()).decode()
    with contextlib.closing(connection):
        connection.request("POST", f"/{endpoint.path}", query, {"Authorization": f"Basic {credential}"})
        response = connection.getresponse()
        body = response.read().decode()
        if response.status != http.client.OK:
            raise RuntimeError(body)


@pytest.fixture(scope="session")
def aaiclick_stack() -> Generator[_Stack]:
    """The run's embedded stack; use the fixtures below instead."""
    stack = _Stack(Path(os.environ[HOME_VARIABLE]))
    yield stack
    stack.close()


@pytest.fixture(scope="session")
def _aaiclick_template(aaiclick_stack: _Stack) -> None:
    aaiclick_stack.run(aaiclick_stack.make_template())


@pytest.fixture
def aaiclick_postgres(aaiclick_stack: _Stack, _aaiclick_template: None) -> Generator[PostgresEndpoint]:
    """A PostgreSQL database for this test, with the current schema."""
    name = aaiclick_stack.run(aaiclick_stack.take_database())
    yield aaiclick_stack.connection.postgres_endpoint().with_database(name)
    aaiclick_stack.run(aaiclick_stack.return_database(name))


@pytest.fixture
def aaiclick_clickhouse(aaiclick_stack: _Stack) -> Generator[ClickHouseEndpoint]:
    """A ClickHouse database for this test."""
    endpoint = aaiclick_stack.connection.clickhouse_endpoint()
    name = f"test_{uuid.uuid4().hex}"
    _run_clickhouse(endpoint, f"CREATE DATABASE {name}")
    yield endpoint.with_database(name)
    _run_clickhouse(aaiclick_stack.connection.clickhouse_endpoint(), f"DROP DATABASE {name} SYNC")


@pytest.fixture
def aaiclick_env(
    aaiclick_postgres: PostgresEndpoint,
    aaiclick_clickhouse: ClickHouseEndpoint,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Generator[None]:
    """Settings of this process and its children point at this test's databases and log directory."""
    from aaiclick.settings import get_settings

    monkeypatch.setenv("AAICLICK_DATABASE_URL", aaiclick_postgres.dsn)
    monkeypatch.setenv("AAICLICK_CLICKHOUSE_URL", aaiclick_clickhouse.url)
    monkeypatch.setenv("AAICLICK_LOG_DIR", str(tmp_path / "logs"))
    get_settings.cache_clear()
    yield
    get_settings.cache_clear()
