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
import threading
import uuid
from collections.abc import AsyncGenerator, Coroutine, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from aaiclick.scratch import scratch_directory

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection
    from aaiclick.targets import ClickHouseTarget, PostgresTarget

T = TypeVar("T")

HOME_VARIABLE = "AAICLICK_TEST_HOME"
OWN = "aaiclick-test-"
"""How the homes are called that a run makes for itself."""
TEMPLATE = "aaiclick_template"
HASTE = ("ALTER SYSTEM SET fsync = off", "ALTER SYSTEM SET full_page_writes = off", "SELECT pg_reload_conf()")
"""For a stack that goes with its run: nothing of it has to outlive the machine."""
FINGERPRINT = "SELECT aaiclick_testing.fingerprint()"
END_OTHERS = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
"""

CLEANER = """
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
    -- Its statements are planned once in a session.
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
        config.stash[_OWNED] = made = contextlib.ExitStack()
        os.environ[HOME_VARIABLE] = str(made.enter_context(scratch_directory(OWN)))


def pytest_unconfigure(config: pytest.Config) -> None:
    if (owned := config.stash.get(_OWNED, None)) is not None:
        home = Path(os.environ.pop(HOME_VARIABLE))
        if (home / "keeper.lock").exists():
            _stop(home)
        owned.close()


_OWNED = pytest.StashKey[contextlib.ExitStack]()


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
        self._lines: dict[str, Connection] = {}
        self._fingerprint = ""

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        for line in (self._admin, *self._lines.values()):
            if line is not None:
                self.run(line.close())
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
            for statement in HASTE if self.home.name.startswith(OWN) else ():
                await self.sql(statement)
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
            clean = await self._clean_up(await self._line_to(name))
        if clean:
            self._clean.append(name)
            return
        if name in self._lines:
            await self._lines.pop(name).close()
        await self.sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    async def _line_to(self, name: str) -> Connection:
        """It stays open: a session that has looked at a hundred tables once does so at once."""
        if name not in self._lines or self._lines[name].is_closed():
            self._lines[name] = await _connect(self.lease.postgres().with_database(name))
        return self._lines[name]

    async def _clean_up(self, line: Connection) -> bool:
        while await line.fetch(END_OTHERS):  # noqa: ASYNC110  (they end by themselves, and tell nobody)
            await asyncio.sleep(0.005)
        if not self._fingerprint:
            async with _connected(self.lease.postgres().with_database(TEMPLATE)) as connection:
                self._fingerprint = str(await connection.fetchval(FINGERPRINT))
        if await line.fetchval(FINGERPRINT) != self._fingerprint:
            return False
        return bool(await line.fetchval("SELECT aaiclick_testing.clean()"))


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
    aaiclick_postgres: PostgresTarget,
    aaiclick_clickhouse: ClickHouseTarget,
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
