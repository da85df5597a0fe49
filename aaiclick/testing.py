"""pytest fixtures for code that uses aaiclick: real PostgreSQL and real ClickHouse, a fresh database of each per test.

The plugin is loaded by pytest wherever aaiclick is installed; it does nothing until a fixture is asked for. One
embedded stack serves a whole run, all parallel workers of pytest-xdist included; it is stopped and removed at the end.

- `aaiclick_postgres`: a `PostgresTarget` with the current schema and no rows but the default organisation;
- `aaiclick_clickhouse`: a `ClickHouseTarget` with an empty database;
- `aaiclick_env`: both, and the settings of this process (and of its children) point at them.

AAICLICK_TEST_HOME, if set, names a stack to join instead; it is left running.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http.client
import os
import shutil
import tempfile
import threading
import uuid
from collections.abc import AsyncGenerator, Coroutine, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from aaiclick.settings import ClickHouseTarget, PostgresTarget
    from aaiclick.store.engine import Connection

T = TypeVar("T")

HOME_VARIABLE = "AAICLICK_TEST_HOME"
TEMPLATE = "aaiclick_template"
FINGERPRINT = "SELECT aaiclick_testing.fingerprint()"

CLEANER = """
CREATE SCHEMA aaiclick_testing;
CREATE FUNCTION aaiclick_testing.keep_baseline() RETURNS void LANGUAGE plpgsql AS $$
DECLARE name text; filled boolean;
BEGIN
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM public.%I)', name) INTO filled;
        IF filled THEN EXECUTE format('CREATE TABLE aaiclick_testing.%I AS TABLE public.%1$I', name); END IF;
    END LOOP;
END $$;
CREATE FUNCTION aaiclick_testing.fingerprint() RETURNS text LANGUAGE sql AS $$
    SELECT md5(string_agg(line, ',' ORDER BY line)) FROM (
        SELECT 'r' || relname || relkind::text || coalesce(reloptions::text, '') AS line
        FROM pg_class WHERE relnamespace = 'public'::regnamespace
        UNION ALL SELECT 'c' || conname || conrelid::regclass::text FROM pg_constraint
        WHERE connamespace = 'public'::regnamespace
        UNION ALL SELECT 't' || tgname || tgrelid::regclass::text || tgenabled::text FROM pg_trigger
        WHERE NOT tgisinternal
        UNION ALL SELECT 'a' || attrelid::regclass::text || attname FROM pg_attribute
        WHERE attrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace)
        UNION ALL SELECT 'p' || polname || polrelid::regclass::text FROM pg_policy
    ) AS lines $$;
CREATE FUNCTION aaiclick_testing.clean() RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE name text; filled boolean; large bigint;
BEGIN
    SELECT max(pg_relation_size(format('public.%I', tablename))) INTO large FROM pg_tables WHERE schemaname = 'public';
    IF large > 4000000 THEN RETURN false; END IF;
    PERFORM set_config('session_replication_role', 'replica', true);
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM public.%I)', name) INTO filled;
        IF filled THEN EXECUTE format('DELETE FROM public.%I', name); END IF;
        IF to_regclass(format('aaiclick_testing.%I', name)) IS NOT NULL THEN
            EXECUTE format('INSERT INTO public.%I SELECT * FROM aaiclick_testing.%1$I', name);
        END IF;
    END LOOP;
    RETURN true;
END $$;
SELECT aaiclick_testing.keep_baseline();
"""


def pytest_configure(config: pytest.Config) -> None:
    """Choose the home of the run's stack in the first process, so that workers started by it inherit the choice."""
    if HOME_VARIABLE not in os.environ:
        os.environ[HOME_VARIABLE] = tempfile.mkdtemp(prefix="aaiclick-test-")
        config.stash[_OWNS] = True


def pytest_unconfigure(config: pytest.Config) -> None:
    if config.stash.get(_OWNS, False):
        home = Path(os.environ.pop(HOME_VARIABLE))
        if (home / "keeper.lock").exists():
            _stop(home)
        shutil.rmtree(home, ignore_errors=True)


_OWNS = pytest.StashKey[bool]()


def _stop(home: Path) -> None:
    from aaiclick.local.home import Home
    from aaiclick.local.lease import ask

    ask(Home(home), {"op": "stop"})


class _Stack:
    """The run's stack, seen from one test process, with a thread that runs asynchronous calls for fixtures."""

    def __init__(self, home: Path) -> None:
        from aaiclick.local.home import Home
        from aaiclick.local.lease import Lease

        self.lease = Lease(Home(home), linger_seconds=30)
        self.home = home
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._admin: Connection | None = None
        self._clean: list[str] = []
        self._fingerprint = ""

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        if self._admin is not None:
            self.run(self._admin.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self.lease.close()

    async def sql(self, statement: str) -> list[Any]:
        """Run a statement beside all test databases."""
        if self._admin is None or self._admin.is_closed():
            self._admin = await _connect(self.lease.postgres().with_database("postgres"))
        return await self._admin.fetch(statement)

    async def make_template(self) -> None:
        """The migrated database that others are copied from: made by the first process that needs it."""
        from aaiclick.local.home import locked
        from aaiclick.store.migrate import ensure_current

        self.lease.require("postgres")
        with locked(self.home / "template.lock"):
            if await self.sql(f"SELECT 1 FROM pg_database WHERE datname = '{TEMPLATE}'"):  # noqa: S608
                return
            await self.sql(f"DROP DATABASE IF EXISTS {TEMPLATE}_new")
            await self.sql(f"CREATE DATABASE {TEMPLATE}_new")
            fresh = self.lease.postgres().with_database(f"{TEMPLATE}_new")
            await ensure_current(fresh)
            async with _connected(fresh) as connection:
                await connection.execute(CLEANER)
            await self.sql(f"ALTER DATABASE {TEMPLATE}_new RENAME TO {TEMPLATE}")

    async def take_database(self) -> str:
        """A database with the current schema: one that a test has left clean, or a copy of the template."""
        if self._clean:
            return self._clean.pop()
        name = f"test_{uuid.uuid4().hex}"
        await self.sql(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}")
        return name

    async def leave_database(self, name: str) -> None:
        """Clean it for the next test: copying the template takes a hundred times longer than deleting a few rows.
        One that a test changed more deeply (its schema, or very many rows) is dropped instead.
        """
        clean = False
        with contextlib.suppress(Exception):  # the test may have broken it in any way: then it goes
            clean = await self._clean_up(name)
        if clean:
            self._clean.append(name)
            return
        await self.sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    async def _clean_up(self, name: str) -> bool:
        await self.sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")  # noqa: S608
        if not self._fingerprint:
            async with _connected(self.lease.postgres().with_database(TEMPLATE)) as connection:
                self._fingerprint = str(await connection.fetchval(FINGERPRINT))
        async with _connected(self.lease.postgres().with_database(name)) as connection:
            if await connection.fetchval(FINGERPRINT) != self._fingerprint:
                return False
            return bool(await connection.fetchval("SELECT aaiclick_testing.clean()"))


async def _connect(target: PostgresTarget) -> Connection:
    from aaiclick.store.engine import connect

    return await connect(target)


@contextlib.asynccontextmanager
async def _connected(target: PostgresTarget) -> AsyncGenerator[Connection]:
    connection = await _connect(target)
    try:
        yield connection
    finally:
        await connection.close()


def _clickhouse(target: ClickHouseTarget, query: str) -> None:
    connection = http.client.HTTPConnection(target.host, target.port, timeout=60)
    credential = base64.b64encode(f"{target.user}:{target.password}".encode()).decode()
    with contextlib.closing(connection):
        connection.request("POST", f"/{target.path}", query, {"Authorization": f"Basic {credential}"})
        answer = connection.getresponse()
        said = answer.read().decode()
        if answer.status != http.client.OK:
            raise RuntimeError(said)


@pytest.fixture(scope="session")
def aaiclick_stack() -> Generator[_Stack]:
    """The run's embedded stack; ask for the fixtures below instead."""
    stack = _Stack(Path(os.environ[HOME_VARIABLE]))
    yield stack
    stack.close()


@pytest.fixture(scope="session")
def _aaiclick_template(aaiclick_stack: _Stack) -> None:
    aaiclick_stack.run(aaiclick_stack.make_template())


@pytest.fixture
def aaiclick_postgres(aaiclick_stack: _Stack, _aaiclick_template: None) -> Generator[PostgresTarget]:
    """A PostgreSQL database of this test's own, with the current schema."""
    name = aaiclick_stack.run(aaiclick_stack.take_database())
    yield aaiclick_stack.lease.postgres().with_database(name)
    aaiclick_stack.run(aaiclick_stack.leave_database(name))


@pytest.fixture
def aaiclick_clickhouse(aaiclick_stack: _Stack) -> Generator[ClickHouseTarget]:
    """A ClickHouse database of this test's own."""
    target = aaiclick_stack.lease.clickhouse()
    name = f"test_{uuid.uuid4().hex}"
    _clickhouse(target, f"CREATE DATABASE {name}")
    yield target.with_database(name)
    _clickhouse(aaiclick_stack.lease.clickhouse(), f"DROP DATABASE {name} SYNC")


@pytest.fixture
def aaiclick_env(
    aaiclick_postgres: PostgresTarget, aaiclick_clickhouse: ClickHouseTarget, monkeypatch: pytest.MonkeyPatch
) -> Generator[None]:
    """Settings of this process and its children point at this test's databases."""
    from aaiclick.settings import get_settings

    monkeypatch.setenv("AAICLICK_DATABASE_URL", aaiclick_postgres.dsn)
    monkeypatch.setenv("AAICLICK_CLICKHOUSE_URL", aaiclick_clickhouse.url)
    get_settings.cache_clear()
    yield
    get_settings.cache_clear()
