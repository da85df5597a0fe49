"""Compare aaiclick with a raw loop and other queues on PostgreSQL, on the same server in the same run.

    python -m bench.peers [--tasks 40000] [--repeats 3] [--only raw graphile-worker pg-boss aaiclick] [--modules DIR]

- *enqueue*: items without payload, 1,000 per call; *single*: one at a time over one connection.
- *drain*: workers start with waiting items, 1 or 2 processes; measured when a fifth has finished, until none is left.
  Slow queues get fewer items.
- *pickup*: one item at a time into an idle queue; from the enqueue until its function runs.

Each queue is configured for throughput as documented (Procrastinate: 20 concurrent items; PgQueuer: batches of 100;
both on uvloop; `node_peers.mjs` has those of graphile-worker and pg-boss), on a server with durable defaults. aaiclick
is `aaiclick worker start` with default options. Each measurement has a new database; repeats are interleaved, medians
are printed. `npm install --prefix DIR node@22 graphile-worker pg-boss` installs the queues for Node into `--modules`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import psutil
import uvloop

from aaiclick.local import find_clickhouse, stop_stack
from aaiclick.server_addresses import PostgresEndpoint, parse_postgres_url
from aaiclick.settings import get_settings
from bench.item import LATENCIES
from bench.peer_queues import BULK, MODULES, OWN_WORKERS, QUEUES, PeerQueue, describe_version
from bench.schema_shape import own_server
from bench.worker import describe_machine

SINGLES = 1_000
PICKUPS = 100
SHARE = {"procrastinate": 20, "pgqueuer": 2}
"""How many times fewer items are given to slow queues."""
MEASURED_SHARE = 0.8
NODE_QUEUES = ("graphile-worker", "pg-boss")


@contextmanager
def working(queue: PeerQueue, endpoint: PostgresEndpoint, processes: int, latencies: str) -> Generator[None]:
    environment = os.environ | {"AAICLICK_DATABASE_URL": endpoint.dsn, "BENCH_DSN": endpoint.dsn, LATENCIES: latencies}
    started = [
        subprocess.Popen(queue.command(), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
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


async def drained(queue: PeerQueue, endpoint: PostgresEndpoint, count: int) -> float:
    """Return items per second, from the time when a fifth has finished until none is left."""
    connection = await asyncpg.connect(endpoint.dsn)
    await connection.execute("SET enable_seqscan = off")
    left = count
    while left > MEASURED_SHARE * count:
        await asyncio.sleep(0.02)
        left = await connection.fetchval(queue.left)
    clock, first = time.perf_counter(), left
    while await connection.fetchval(queue.ready):  # noqa: ASYNC110  (PostgreSQL has no event for this)
        await asyncio.sleep(0.02)
    while await connection.fetchval(queue.left):  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    await connection.close()
    return first / (time.perf_counter() - clock)


async def picked_up(queue: PeerQueue, path: Path) -> list[float]:
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

    async def create_queue(what: str) -> tuple[PeerQueue, PostgresEndpoint]:
        database = f"{name.replace('-', '_')}_{what}_{nth}"
        await admin.execute(f"CREATE DATABASE {database}")
        await admin.execute("CHECKPOINT")
        endpoint = server.with_database(database)
        queue = QUEUES[name](endpoint)
        await queue.prepare()
        return queue, endpoint

    figures: dict[str, float] = {}
    count = max(BULK, arguments.tasks // SHARE.get(name, 1) // BULK * BULK)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "latencies"
        for processes in (1, 2):
            queue, endpoint = await create_queue(f"drain{processes}")
            seconds = await queue.enqueue(count)
            if processes == 1:
                figures["enqueue/s"] = count / seconds
            with working(queue, endpoint, processes, str(path)):
                figures[f"drain/s, {processes} process(es)"] = await drained(queue, endpoint, count)
        queue, endpoint = await create_queue("pickup")
        figures["single/s"] = SINGLES / await queue.enqueue_singly(SINGLES)
        with working(queue, endpoint, 1, str(path)):
            took = sorted(await picked_up(queue, path))
        figures["pickup p50 ms"] = statistics.median(took)
        figures["pickup p99 ms"] = took[int(0.99 * (len(took) - 1))]
    await admin.close()
    return figures


async def compare(server: PostgresEndpoint, arguments: argparse.Namespace) -> None:
    print(await describe_machine(server), flush=True)
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in arguments.only}
    for nth in range(arguments.repeats):
        for name in arguments.only:
            runs[name].append(await measure(name, server, arguments, nth))
    names = list(runs[arguments.only[0]][0])
    print("| queue | " + " | ".join(names) + " |")
    print("|---|" + "---|" * len(names))
    for name, figures in runs.items():
        medians = (statistics.median(run[name] for run in figures) for name in names)
        print(f"| {describe_version(name)} | " + " | ".join(f"{value:,.1f}" for value in medians) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", type=int, default=40_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=QUEUES, default=None)
    parser.add_argument(
        "--modules", type=Path, help="Directory with the queues for Node [default: these are left out]."
    )
    parser.add_argument("--work", nargs=2, metavar=("QUEUE", "DSN"), help=argparse.SUPPRESS)
    arguments, _ = parser.parse_known_args()
    if arguments.work:
        name, dsn = arguments.work
        uvloop.run(OWN_WORKERS[name](parse_postgres_url(dsn)).work())
        return
    if arguments.modules is not None:
        os.environ[MODULES] = str(arguments.modules.resolve())
    if arguments.only is None:
        arguments.only = [name for name in QUEUES if name not in NODE_QUEUES or arguments.modules is not None]
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
