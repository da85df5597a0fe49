"""Compare aaiclick with other queues on PostgreSQL, on the same server in the same run.

    python -m bench.peers [--tasks 20000] [--repeats 3] [--only procrastinate pgqueuer aaiclick]

- *enqueue*: items without payload, 1,000 per call.
- *drain*: workers start with waiting items, 1 or 2 processes; measured from the first finished item to the last.
  Procrastinate gets a tenth of the items, because it is much slower.
- *pickup*: one item at a time into an idle queue; from the enqueue until its function runs.

Each queue is configured for throughput as documented (Procrastinate: 20 concurrent items; PgQueuer: batches of 100;
both on uvloop), on a server with durable defaults. aaiclick is `aaiclick worker start` with default options. Each
measurement has a new database; repeats are interleaved, medians are printed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import asyncpg
import psutil
import uvloop

from aaiclick.endpoints import PostgresEndpoint, parse_postgres_url
from aaiclick.local import find_clickhouse, stop_stack
from aaiclick.orchestration import OrchContext, enqueue_many
from aaiclick.orchestration import enqueue as put
from aaiclick.settings import get_settings
from aaiclick.store.migrate import upgrade
from bench.item import LATENCIES, arrived
from bench.schema_shape import own_server

BULK = 1_000
PICKUPS = 50
SHARE = {"procrastinate": 10}


class Aaiclick:
    package = "aaiclick"
    left = "SELECT count(*) FROM tasks WHERE completed_at IS NULL"

    def __init__(self, endpoint: PostgresEndpoint) -> None:
        self.endpoint = endpoint

    async def prepare(self) -> None:
        await upgrade(self.endpoint)

    async def enqueue(self, count: int) -> None:
        async with OrchContext(endpoint=self.endpoint):
            for _ in range(0, count, BULK):
                await enqueue_many("bench.item", [{}] * BULK)

    async def send(self, count: int, wait: Callable[[], Awaitable[None]]) -> None:
        async with OrchContext(endpoint=self.endpoint):
            for _ in range(count):
                await put("bench.item", {"sent_ns": time.monotonic_ns()})
                await wait()

    def command(self) -> list[str]:
        return ["aaiclick", "worker", "start", "--processes", "1", "--import", "bench.item"]


class Procrastinate:
    package = "procrastinate"
    left = "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"

    def __init__(self, endpoint: PostgresEndpoint) -> None:
        import procrastinate

        self.endpoint = endpoint
        self.app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=endpoint.dsn, max_size=10))

        @self.app.task(name="item")
        async def item(sent_ns: int = 0) -> None:
            arrived(sent_ns)

        self.item: Any = item

    async def prepare(self) -> None:
        async with self.app.open_async():
            await self.app.schema_manager.apply_schema_async()

    async def enqueue(self, count: int) -> None:
        async with self.app.open_async():
            for _ in range(0, count, BULK):
                await self.item.batch_defer_async(*({} for _ in range(BULK)))

    async def send(self, count: int, wait: Callable[[], Awaitable[None]]) -> None:
        async with self.app.open_async():
            for _ in range(count):
                await self.item.defer_async(sent_ns=time.monotonic_ns())
                await wait()

    async def work(self) -> None:
        async with self.app.open_async():
            await self.app.run_worker_async(concurrency=20, install_signal_handlers=False)

    def command(self) -> list[str]:
        return ["bench.peers", "--work", self.package, self.endpoint.dsn]


class PgQueuer:
    package = "pgqueuer"
    left = "SELECT count(*) FROM pgqueuer"

    def __init__(self, endpoint: PostgresEndpoint) -> None:
        self.endpoint = endpoint

    async def _queries(self) -> tuple[asyncpg.Connection, Any]:
        from pgqueuer.db import AsyncpgDriver
        from pgqueuer.queries import Queries

        connection = await asyncpg.connect(self.endpoint.dsn)
        return connection, Queries(AsyncpgDriver(connection))

    async def prepare(self) -> None:
        connection, queries = await self._queries()
        await queries.install()
        await connection.close()

    async def enqueue(self, count: int) -> None:
        connection, queries = await self._queries()
        for _ in range(0, count, BULK):
            await queries.enqueue(["item"] * BULK, [None] * BULK, [0] * BULK)
        await connection.close()

    async def send(self, count: int, wait: Callable[[], Awaitable[None]]) -> None:
        connection, queries = await self._queries()
        for _ in range(count):
            await queries.enqueue("item", str(time.monotonic_ns()).encode())
            await wait()
        await connection.close()

    async def work(self) -> None:
        import pgqueuer
        from pgqueuer.db import AsyncpgDriver

        worker = pgqueuer.PgQueuer(AsyncpgDriver(await asyncpg.connect(self.endpoint.dsn)))

        @worker.entrypoint("item")
        async def item(job: Any) -> None:
            arrived(int(job.payload) if job.payload else 0)

        await worker.run(batch_size=100)

    def command(self) -> list[str]:
        return ["bench.peers", "--work", self.package, self.endpoint.dsn]


QUEUES: dict[str, type[Aaiclick | Procrastinate | PgQueuer]] = {
    queue.package: queue for queue in (Procrastinate, PgQueuer, Aaiclick)
}


@contextmanager
def working(queue: Aaiclick | Procrastinate | PgQueuer, processes: int, latencies: str) -> Generator[None]:
    environment = os.environ | {"AAICLICK_DATABASE_URL": queue.endpoint.dsn, LATENCIES: latencies}
    started = [
        subprocess.Popen(
            [sys.executable, "-m", *queue.command()],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(processes)
    ]
    try:
        yield
    finally:
        for process in started:
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
            process.kill()
            process.wait()


async def drained(queue: Aaiclick | Procrastinate | PgQueuer, count: int) -> float:
    """Return items per second, from the first finished item until none is left."""
    connection = await asyncpg.connect(queue.endpoint.dsn)
    left = count
    while left == count:
        await asyncio.sleep(0.005)
        left = await connection.fetchval(queue.left)
    clock, first = time.perf_counter(), left
    while left:
        await asyncio.sleep(0.02)
        left = await connection.fetchval(queue.left)
    await connection.close()
    return first / (time.perf_counter() - clock)


async def picked_up(queue: Aaiclick | Procrastinate | PgQueuer, path: Path) -> list[float]:
    """Return pickup times in milliseconds, one item at a time; the first items only wait for the worker."""

    def lines() -> list[float]:
        return [float(line) for line in path.read_text().splitlines()] if path.exists() else []

    async def wait() -> None:
        expected_lines = seen_before[0] + 1
        while len(lines()) < expected_lines:  # noqa: ASYNC110  (another process writes the file)
            await asyncio.sleep(0.005)
        seen_before[0] = expected_lines
        await asyncio.sleep(0.03)

    seen_before = [0]
    await queue.send(PICKUPS + 5, wait)
    return lines()[5:]


async def measure(name: str, server: PostgresEndpoint, arguments: argparse.Namespace, nth: int) -> dict[str, float]:
    admin = await asyncpg.connect(server.dsn)

    async def fresh(what: str) -> Aaiclick | Procrastinate | PgQueuer:
        database = f"{name}_{what}_{nth}"
        await admin.execute(f"CREATE DATABASE {database}")
        queue = QUEUES[name](server.with_database(database))
        await queue.prepare()
        return queue

    figures: dict[str, float] = {}
    count = max(BULK, arguments.tasks // SHARE.get(name, 1) // BULK * BULK)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "latencies"
        for processes in (1, 2):
            queue = await fresh(f"drain{processes}")
            clock = time.perf_counter()
            await queue.enqueue(count)
            if processes == 1:
                figures["enqueue/s"] = count / (time.perf_counter() - clock)
            with working(queue, processes, str(path)):
                figures[f"drain/s, {processes} process(es)"] = await drained(queue, count)
        queue = await fresh("pickup")
        with working(queue, 1, str(path)):
            took = sorted(await picked_up(queue, path))
        figures["pickup p50 ms"] = statistics.median(took)
        figures["pickup p99 ms"] = took[int(0.99 * (len(took) - 1))]
    await admin.close()
    return figures


async def compare(server: PostgresEndpoint, arguments: argparse.Namespace) -> None:
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in arguments.only}
    for nth in range(arguments.repeats):
        for name in arguments.only:
            runs[name].append(await measure(name, server, arguments, nth))
    names = list(runs[arguments.only[0]][0])
    print("| queue | " + " | ".join(names) + " |")
    print("|---|" + "---|" * len(names))
    for name, figures in runs.items():
        medians = (statistics.median(run[name] for run in figures) for name in names)
        print(f"| {name} {version(name)} | " + " | ".join(f"{value:,.1f}" for value in medians) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=QUEUES, default=list(QUEUES))
    parser.add_argument("--work", nargs=2, metavar=("QUEUE", "DSN"), help=argparse.SUPPRESS)
    arguments, _ = parser.parse_known_args()
    if arguments.work:
        queue = QUEUES[arguments.work[0]](parse_postgres_url(arguments.work[1]))
        assert not isinstance(queue, Aaiclick)
        uvloop.run(queue.work())
        return
    with tempfile.TemporaryDirectory(prefix="aaiclick-bench-") as home, own_server() as (server, _):
        os.environ["AAICLICK_HOME"] = home
        find_clickhouse(get_settings())
        try:
            asyncio.run(compare(server, arguments))
        finally:
            stop_stack()


if __name__ == "__main__":
    from bench.peers import main as start  # Procrastinate refuses an App in __main__

    start()
