"""The engine on the system's own PostgreSQL, if there is one: another server version."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest

from aaiclick.server_addresses import PostgresEndpoint
from aaiclick.store.engine import queue
from aaiclick.store.migrate import upgrade
from aaiclick.store.postgres_connections import connect
from aaiclick.testing import CREATE_CLEANER
from tests.integration.engine import test_acknowledge, test_claims, test_dynamic_tasks, test_graph, test_leases
from tests.integration.engine.conftest import Engine
from tests.integration.store.conftest import SERVERS, run_server

Case = Callable[..., Awaitable[None]]
LARGE = {"test_a_barrier_of_two_thousand"}


def plain(case: object) -> bool:
    """Whether a test needs only an engine."""
    return inspect.iscoroutinefunction(case) and list(inspect.signature(case).parameters) == ["engine"]


CASES: dict[str, Case] = {
    name: case
    for module in (test_acknowledge, test_claims, test_dynamic_tasks, test_graph, test_leases)
    for name, case in vars(module).items()
    if name.startswith("test_") and plain(case) and name not in LARGE
}


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresEndpoint]:
    older = [binaries for name, binaries in sorted(SERVERS.items()) if name != "embedded"]
    if not older:
        pytest.skip("this system has no PostgreSQL of its own")
    with run_server(older[0]) as endpoint:
        yield endpoint


@pytest.fixture
async def engine(server: PostgresEndpoint) -> AsyncIterator[Engine]:
    """One database for all tests, emptied after each."""
    db = await connect(server)
    if not await db.fetchval("SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'aaiclick_testing')"):
        await upgrade(server)
        await db.execute(CREATE_CLEANER)
    worker = await queue.register_worker(db, hostname="test", pid=1)
    yield Engine(db, server, worker.id)
    assert await db.fetchval("SELECT aaiclick_testing.clean()")
    await db.close()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_on_system_postgres(engine: Engine, case: Case) -> None:
    await case(engine)
