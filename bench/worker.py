"""Compare real workers (`aaiclick worker start`) with a raw loop: drain of no-op tasks.

    python -m bench.worker [--tasks 50000] [--repeats 3] [--rate 1000000/s]

With `--rate`, drains of tasks without and with that rate are compared instead.

Tasks have everything that they have in production: contexts (PostgreSQL and ClickHouse), log, lease and heartbeat,
allow-listed entrypoint; options are the defaults. All tasks become visible in one commit; the time is measured from
there until the last one is completed in PostgreSQL. The raw loop is the one of `bench.queue`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import asyncpg
import psutil

from aaiclick._version import __version__
from aaiclick.local import find_clickhouse, stop_stack
from aaiclick.server_addresses import PostgresEndpoint
from aaiclick.settings import get_settings
from aaiclick.snowflake import get_snowflake_ids
from aaiclick.store.engine.enqueue import enqueue_tasks
from aaiclick.store.engine.submission_plan import NewTask
from aaiclick.store.migrate import upgrade
from aaiclick.store.postgres_connections import connect
from aaiclick.store.task_options import DEFAULT_OPTIONS, TaskOptions
from bench.queue import RAW, Bench
from bench.schema_shape import own_server

WARM_UP = 4_000
LEFT = """
    SELECT EXISTS (SELECT FROM tasks WHERE readiness = 'READY')
        OR EXISTS (SELECT FROM tasks WHERE status IN ('CLAIMED', 'RUNNING'))
"""


async def describe_machine(endpoint: PostgresEndpoint) -> str:
    """Machine, load and versions, for the first line of a report."""
    connection = await connect(endpoint)
    major = connection.get_server_version().major
    await connection.close()
    return (
        f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; Python "
        f"{platform.python_version()}, aaiclick {__version__}, PostgreSQL {major}"
    )


async def fill(endpoint: PostgresEndpoint, count: int, options: TaskOptions = DEFAULT_OPTIONS) -> None:
    """Insert all tasks in one commit."""
    connection = await connect(endpoint)
    async with connection.transaction():
        for start in range(0, count, 1000):
            ids = get_snowflake_ids(min(1000, count - start))
            await enqueue_tasks(connection, [NewTask(key, "noop", options=options) for key in ids])
    await connection.close()


async def until_done(endpoint: PostgresEndpoint) -> None:
    connection = await connect(endpoint)
    while await connection.fetchval(LEFT):  # noqa: ASYNC110  (PostgreSQL has no event for this)
        await asyncio.sleep(0.1)
    await connection.close()


@asynccontextmanager
async def workers(endpoint: PostgresEndpoint, processes: int) -> AsyncGenerator[list[psutil.Process]]:
    """Start and warm up a worker; yield its processes without the supervisor."""
    command = [sys.executable, "-m", "aaiclick", "worker", "start", "--processes", str(processes)]
    supervisor = psutil.Popen(
        [*command, "--import", "bench.noop"],
        env=os.environ | {"AAICLICK_DATABASE_URL": endpoint.dsn},
        stderr=subprocess.DEVNULL,
    )
    try:
        await fill(endpoint, WARM_UP)
        await until_done(endpoint)
        yield [child for child in supervisor.children() if "aaiclick.orchestration.worker.main" in child.cmdline()]
    finally:
        supervisor.terminate()
        supervisor.wait(60)


def spent(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


async def wal_bytes(endpoint: PostgresEndpoint) -> float:
    """Bytes of WAL that the server has written so far."""
    connection = await connect(endpoint)
    written = await connection.fetchval("SELECT (pg_current_wal_insert_lsn() - '0/0')::float8")
    await connection.close()
    return written


async def drain(
    bench: Bench, processes: int, options: TaskOptions = DEFAULT_OPTIONS
) -> tuple[float, float, float, float]:
    """Return tasks per second, CPU in microseconds per task of PostgreSQL and of the workers, and WAL per task."""
    endpoint = await bench.fresh()
    async with workers(endpoint, processes) as busy:
        own = spent(busy)
        await fill(endpoint, bench.count, options)
        server, written, clock = bench.cpu(), await wal_bytes(endpoint), time.perf_counter()
        await until_done(endpoint)
        seconds = time.perf_counter() - clock
        figures = (
            bench.count / seconds,
            (bench.cpu() - server) / bench.count * 1e6,
            (spent(busy) - own) / bench.count * 1e6,
            (await wal_bytes(endpoint) - written) / bench.count,
        )
    await bench.drop(endpoint)
    return figures


async def raw(bench: Bench, processes: int) -> float:
    endpoint = await bench.fresh()
    await bench.raw_fill(endpoint)
    clock = time.perf_counter()
    count = await bench.drain(endpoint, False, processes)
    seconds = time.perf_counter() - clock if processes == 1 else bench.spawned_seconds
    await bench.drop(endpoint)
    return count / seconds


async def compare_rates(bench: Bench, processes: int, repeats: int, rate: str) -> None:
    """Compare tasks without a rate and tasks with one, in interleaved drains."""
    variants = {"no rate": DEFAULT_OPTIONS, "rate": DEFAULT_OPTIONS.change({"rate": rate})}
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in variants}
    for _ in range(repeats):
        for name, options in variants.items():
            per_second, server, worker, _ = await drain(bench, processes, options)
            samples[name].append((per_second, server + worker))
    medians = {
        name: [statistics.median(column) for column in zip(*runs, strict=True)] for name, runs in samples.items()
    }
    for name, (per_second, cpu) in medians.items():
        print(
            f"{processes} process(es), {name}: {per_second:,.0f}/s, CPU of PostgreSQL and workers {cpu:.1f} us a task"
        )
    print(f"CPU with the rate, relative: {medians['rate'][1] / medians['no rate'][1]:.3f}", flush=True)


async def run(endpoint: PostgresEndpoint, postmaster: psutil.Process, arguments: argparse.Namespace) -> None:
    admin = await asyncpg.connect(endpoint.dsn)
    await admin.execute("CREATE DATABASE bench_template")
    await admin.close()
    template = endpoint.with_database("bench_template")
    await upgrade(template)
    connection = await asyncpg.connect(template.dsn)
    await connection.execute(RAW)
    await connection.close()
    bench = Bench(endpoint, postmaster, arguments)
    for processes in arguments.processes:
        if arguments.rate:
            await compare_rates(bench, processes, arguments.repeats, arguments.rate)
            continue
        rates, samples = list[float](), list[tuple[float, float, float, float]]()
        for _ in range(arguments.repeats):
            rates.append(await raw(bench, processes))
            samples.append(await drain(bench, processes))
        loop = statistics.median(rates)
        rate, server, worker, wal = (statistics.median(column) for column in zip(*samples, strict=True))
        print(
            f"drain by real workers, {processes} process(es)  raw {loop:,.0f}/s  aaiclick {rate:,.0f}/s  "
            f"aaiclick/raw {rate / loop:.2f}  a task: CPU of PostgreSQL {server:.0f} us, of workers {worker:.0f} us, "
            f"WAL {wal:.0f} B",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", type=int, default=50_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rate", help="Compare tasks without and with this rate, such as 1000000/s.")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="aaiclick-bench-") as home, own_server() as (endpoint, postmaster):
        os.environ["AAICLICK_HOME"] = home
        find_clickhouse(get_settings())
        try:
            asyncio.run(run(endpoint, postmaster, arguments))
        finally:
            stop_stack()


if __name__ == "__main__":
    main()
