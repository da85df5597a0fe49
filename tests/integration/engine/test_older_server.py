"""The engine on the system's own PostgreSQL, where there is one: its statements, on another version of the server."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest

from aaiclick.store import queue
from aaiclick.store.engine import connect
from aaiclick.store.migrate import upgrade
from aaiclick.targets import PostgresTarget
from aaiclick.testing import CLEANER
from tests.integration.engine import test_fences, test_graph, test_growth, test_outcomes, test_turns
from tests.integration.engine.conftest import Engine
from tests.integration.store.conftest import SERVERS, run_server

Case = Callable[..., Awaitable[None]]
LARGE = {"test_a_barrier_of_ten_thousand"}


def plain(case: object) -> bool:
    """A test that needs an engine and nothing else."""
    return inspect.iscoroutinefunction(case) and list(inspect.signature(case).parameters) == ["engine"]


CASES: dict[str, Case] = {
    name: case
    for module in (test_fences, test_graph, test_growth, test_outcomes, test_turns)
    for name, case in vars(module).items()
    if name.startswith("test_") and plain(case) and name not in LARGE
}


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresTarget]:
    older = [binaries for name, binaries in sorted(SERVERS.items()) if name != "embedded"]
    if not older:
        pytest.skip("this system has no PostgreSQL of its own")
    with run_server(older[0]) as target:
        yield target


@pytest.fixture
async def engine(server: PostgresTarget) -> AsyncIterator[Engine]:
    """One database for all: it is emptied after each."""
    db = await connect(server)
    if not await db.fetchval("SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'aaiclick_testing')"):
        await upgrade(server)
        await db.execute(CLEANER)
    worker = await queue.register_worker(db, hostname="test", pid=1)
    yield Engine(db, server, worker.id)
    assert await db.fetchval("SELECT aaiclick_testing.clean()")
    await db.close()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_on_the_systems_own_server(engine: Engine, case: Case) -> None:
    await case(engine)
