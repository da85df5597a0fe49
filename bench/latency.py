"""Latency of a job with one task, of a retry after its due time, and of submitting a large job.

    python -m bench.latency [--jobs 100] [--repeats 3] [--rows 100000 1000000]

A real worker (`aaiclick worker start`, one process, default options) on a separate PostgreSQL with durable defaults.
Large jobs are submitted from an iterator by a separate process; its memory is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from aaiclick.local import find_clickhouse, stop_stack
from aaiclick.orchestration import Group, OrchContext, Task, create_job, create_task
from aaiclick.orchestration.task_context import current_scope
from aaiclick.server_addresses import PostgresEndpoint, parse_postgres_url
from aaiclick.settings import get_settings
from aaiclick.snowflake import get_snowflake_ids
from aaiclick.store.engine.enqueue import enqueue_tasks
from aaiclick.store.engine.submission_plan import NewTask
from aaiclick.store.migrate import upgrade
from aaiclick.store.postgres_connections import connect
from aaiclick.store.task_options import TaskOptions
from bench.schema_shape import own_server
from bench.worker import describe_machine, workers

RETRIES = 20
RETRY_SECONDS = 0.3


async def answer() -> int:
    """Return a value."""
    return 42


async def nothing() -> None:
    """Return nothing."""


async def fail_once() -> None:
    scope = current_scope()
    assert scope is not None
    if scope.lease.attempt == 1:
        raise OSError("the first time never works")


async def submit_to_result(endpoint: PostgresEndpoint, count: int, function: str) -> list[float]:
    """Return the milliseconds from `create_job` until the job is COMPLETED."""
    connection = await connect(endpoint)
    took: list[float] = []
    async with OrchContext(endpoint=endpoint):
        for _ in range(count):
            clock = time.perf_counter()
            job = await create_job("one", create_task(f"bench.latency.{function}"))
            while await connection.fetchval("SELECT completed_at IS NULL FROM jobs WHERE id = $1", job.id):  # noqa: ASYNC110
                await asyncio.sleep(0.0005)
            took.append((time.perf_counter() - clock) * 1e3)
    await connection.close()
    return took


async def lateness(endpoint: PostgresEndpoint) -> list[float]:
    """Return the milliseconds between the due time of a retry and its claim."""
    connection = await connect(endpoint)
    name, policy = "bench.latency.fail_once", json.dumps({"base_seconds": RETRY_SECONDS})
    tasks = [
        NewTask(key, name, entrypoint=name, options=TaskOptions(retry_policy=policy))
        for key in get_snowflake_ids(RETRIES)
    ]
    for task in tasks:
        await enqueue_tasks(connection, [task])
        await asyncio.sleep(0.02)
    ids = [task.id for task in tasks]
    while await connection.fetchval("SELECT count(*) FROM tasks WHERE id = ANY ($1) AND completed_at IS NULL", ids):  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    rows = await connection.fetch("SELECT claimed_at, available_at FROM tasks WHERE id = ANY ($1)", ids)
    await connection.close()
    return [(row["claimed_at"] - row["available_at"]).total_seconds() * 1e3 for row in rows]


def line(what: str, values: list[list[float]], unit: str = "ms") -> str:
    medians = [statistics.median(sample) for sample in values]
    last = [sorted(sample)[int(0.99 * (len(sample) - 1))] for sample in values]
    runs = ", ".join(f"{median:.1f}" for median in medians)
    return (
        f"{what:<48} median {statistics.median(medians):6.1f} {unit} (runs {runs}), "
        f"p99 {statistics.median(last):.1f} {unit}"
    )


async def run(endpoint: PostgresEndpoint, arguments: argparse.Namespace) -> None:
    await upgrade(endpoint)
    print(await describe_machine(endpoint), flush=True)
    async with workers(endpoint, 1):
        for function in ("nothing", "answer"):
            await submit_to_result(endpoint, 10, function)
            runs = [await submit_to_result(endpoint, arguments.jobs, function) for _ in range(arguments.repeats)]
            print(line(f"a job of one task ({function}), submit to result", runs), flush=True)
        runs = [await lateness(endpoint) for _ in range(arguments.repeats)]
        print(line(f"a retry after {RETRY_SECONDS:g} s, past its time", runs), flush=True)


# --- the process that submits a large job ---------------------------------------------------------------------------


def many(count: int) -> Iterator[Task]:
    group = Group("all")
    for _ in range(count):
        yield create_task("bench.latency.nothing", {"n": 1}, group=group)


async def submit(endpoint: PostgresEndpoint, count: int) -> None:
    async with OrchContext(endpoint=endpoint):
        await create_job("warm", many(20_000))
        before = resource.getrusage(resource.RUSAGE_SELF)
        clock = time.perf_counter()
        await create_job("large", many(count))
        seconds = time.perf_counter() - clock
        after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(
        f"submit {count:,} tasks from an iterator: {count / seconds:,.0f}/s, {cpu / count * 1e6:.1f} us of the "
        f"client's CPU a task, peak memory {after.ru_maxrss / 1000:.0f} MB "
        f"({(after.ru_maxrss - before.ru_maxrss) / 1000:+.1f} MB)",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rows", type=int, nargs="*", default=[100_000, 1_000_000])
    parser.add_argument("--submit", nargs=2, metavar=("COUNT", "DSN"), help=argparse.SUPPRESS)
    arguments, _ = parser.parse_known_args()
    if arguments.submit:
        asyncio.run(submit(parse_postgres_url(arguments.submit[1]), int(arguments.submit[0])))
        return
    with tempfile.TemporaryDirectory(prefix="aaiclick-bench-") as home, own_server() as (endpoint, _):
        os.environ["AAICLICK_HOME"] = home
        find_clickhouse(get_settings())
        try:
            asyncio.run(run(endpoint, arguments))
        finally:
            stop_stack()
        for rows in arguments.rows:
            command = [sys.executable, "-m", "bench.latency", "--submit", str(rows), endpoint.dsn]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
