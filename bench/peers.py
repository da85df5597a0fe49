"""The same queue work by other queues on PostgreSQL, and by ours, on the same server in the same run.

    python -m bench.peers [--tasks 20000] [--repeats 3] [--only procrastinate pgqueuer aaiclick]

- *enqueue*: items that carry nothing, 1,000 in a call.
- *drain*: the items wait, then workers start, 1 or 2 processes; from the first item done to the last. Procrastinate
  gets a tenth of the items, since it takes so much longer.
- *pickup*: one item at a time into an idle queue; from before it is enqueued until its function runs.

Each queue is used as its documentation says, with what it offers for throughput (Procrastinate: 20 items at once;
PgQueuer: batches of 100; both on uvloop) and a server with durable defaults. Ours is `aaiclick worker start` as it
comes, with everything a task has in production. A fresh database each time; repeats are interleaved, medians are shown.
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

from aaiclick.local import find_clickhouse, stop_stack
from aaiclick.orchestration import OrchContext, enqueue_many
from aaiclick.orchestration import enqueue as put
from aaiclick.settings import get_settings
from aaiclick.store.migrate import upgrade
from aaiclick.targets import PostgresTarget, parse_postgres_url
from bench.item import LATENCIES, arrived
from bench.schema_shape import own_server

BULK = 1_000
PICKUPS = 50
SHARE = {"procrastinate": 10}


class Aaiclick:
    package = "aaiclick"
    left = "SELECT count(*) FROM tasks WHERE completed_at IS NULL"

    def __init__(self, target: PostgresTarget) -> None:
        self.target = target

    async def prepare(self) -> None:
        await upgrade(self.target)

    async def enqueue(self, count: int) -> None:
        async with OrchContext(target=self.target):
            for _ in range(0, count, BULK):
                await enqueue_many("bench.item", [{}] * BULK)

    async def send(self, count: int, wait: Callable[[], Awaitable[None]]) -> None:
        async with OrchContext(target=self.target):
            for _ in range(count):
                await put("bench.item", {"sent_ns": time.monotonic_ns()})
                await wait()

    def command(self) -> list[str]:
        return ["aaiclick", "worker", "start", "--processes", "1", "--import", "bench.item"]


class Procrastinate:
    package = "procrastinate"
    left = "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"

    def __init__(self, target: PostgresTarget) -> None:
        import procrastinate

        self.target = target
        self.app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=target.dsn, max_size=10))

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
        return ["bench.peers", "--work", self.package, self.target.dsn]


class PgQueuer:
    package = "pgqueuer"
    left = "SELECT count(*) FROM pgqueuer"

    def __init__(self, target: PostgresTarget) -> None:
        self.target = target

    async def _queries(self) -> tuple[asyncpg.Connection, Any]:
        from pgqueuer.db import AsyncpgDriver
        from pgqueuer.queries import Queries

        connection = await asyncpg.connect(self.target.dsn)
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

        worker = pgqueuer.PgQueuer(AsyncpgDriver(await asyncpg.connect(self.target.dsn)))

        @worker.entrypoint("item")
        async def item(job: Any) -> None:
            arrived(int(job.payload) if job.payload else 0)

        await worker.run(batch_size=100)

    def command(self) -> list[str]:
        return ["bench.peers", "--work", self.package, self.target.dsn]


QUEUES: dict[str, type[Aaiclick | Procrastinate | PgQueuer]] = {
    queue.package: queue for queue in (Procrastinate, PgQueuer, Aaiclick)
}


@contextmanager
def working(queue: Aaiclick | Procrastinate | PgQueuer, processes: int, latencies: str) -> Generator[None]:
    environment = os.environ | {"AAICLICK_DATABASE_URL": queue.target.dsn, LATENCIES: latencies}
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
    """Items a second, from the first that is seen to be done until none is left."""
    connection = await asyncpg.connect(queue.target.dsn)
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
    """Milliseconds, one item at a time; the first ones find out whether the worker is there."""

    def lines() -> list[float]:
        return [float(line) for line in path.read_text().splitlines()] if path.exists() else []

    async def wait() -> None:
        wanted = seen_before[0] + 1
        while len(lines()) < wanted:  # noqa: ASYNC110  (another process writes the file)
            await asyncio.sleep(0.005)
        seen_before[0] = wanted
        await asyncio.sleep(0.03)

    seen_before = [0]
    await queue.send(PICKUPS + 5, wait)
    return lines()[5:]


async def measure(name: str, server: PostgresTarget, arguments: argparse.Namespace, nth: int) -> dict[str, float]:
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


async def compare(server: PostgresTarget, arguments: argparse.Namespace) -> None:
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in arguments.only}
    for nth in range(arguments.repeats):
        for name in arguments.only:
            runs[name].append(await measure(name, server, arguments, nth))
    names = list(runs[arguments.only[0]][0])
    print("| queue | " + " | ".join(names) + " |")
    print("|---|" + "---|" * len(names))
    for name, figures in runs.items():
        medians = (statistics.median(run[each] for run in figures) for each in names)
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
    from bench.peers import main as start  # Procrastinate objects to an App that lives in __main__

    start()
