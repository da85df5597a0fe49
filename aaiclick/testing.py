"""pytest fixtures for code that uses aaiclick: real PostgreSQL and real ClickHouse, a fresh database of each per test.

The plugin is loaded by pytest wherever aaiclick is installed; it does nothing until a fixture is asked for. One embedded
stack serves a whole run, all parallel workers of pytest-xdist included; it is stopped and removed at the end.

- `aaiclick_postgres`: a `PostgresTarget` with the current schema, made from a template in a few milliseconds;
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
from collections.abc import Coroutine, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.settings import ClickHouseTarget, PostgresTarget

T = TypeVar("T")

HOME_VARIABLE = "AAICLICK_TEST_HOME"
TEMPLATE = "aaiclick_template"


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
        self._admin: asyncpg.Connection[Any] | None = None

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

        with locked(self.home / "template.lock"):
            if await self.sql(f"SELECT 1 FROM pg_database WHERE datname = '{TEMPLATE}'"):  # noqa: S608
                return
            await self.sql(f"DROP DATABASE IF EXISTS {TEMPLATE}_new")
            await self.sql(f"CREATE DATABASE {TEMPLATE}_new")
            await ensure_current(self.lease.postgres().with_database(f"{TEMPLATE}_new"))
            await self.sql(f"ALTER DATABASE {TEMPLATE}_new RENAME TO {TEMPLATE}")


async def _connect(target: PostgresTarget) -> asyncpg.Connection[Any]:
    import asyncpg

    return await asyncpg.connect(
        host=target.host, port=target.port, user=target.user, password=target.password, database=target.database
    )


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
def _aaiclick_template(aaiclick_stack: _Stack) -> str:
    aaiclick_stack.run(aaiclick_stack.make_template())
    return TEMPLATE


@pytest.fixture
def aaiclick_postgres(aaiclick_stack: _Stack, _aaiclick_template: str) -> Generator[PostgresTarget]:
    """A PostgreSQL database of this test's own, with the current schema."""
    name = f"test_{uuid.uuid4().hex}"
    aaiclick_stack.run(aaiclick_stack.sql(f"CREATE DATABASE {name} TEMPLATE {_aaiclick_template} STRATEGY wal_log"))
    yield aaiclick_stack.lease.postgres().with_database(name)
    aaiclick_stack.run(aaiclick_stack.sql(f"DROP DATABASE {name} WITH (FORCE)"))


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
