"""Compare tasks that do what users' tasks do with tasks that do nothing: arguments, output, values, frames, chains.

    python -m bench.work [--tasks 5000] [--hops 300] [--repeats 3] [--peers dbos=PYTHON prefect=PYTHON]

A real worker (`aaiclick worker start`, one process, default options) on a PostgreSQL of its own with durable defaults
and the embedded ClickHouse. The time is measured from the submit of a job to its end, and divided by its tasks. Repeats
are interleaved, medians are printed. Objects are compared with CREATE TABLE and INSERT of the same rows by
clickhouse-connect, as many at a time as a worker runs tasks. `--peers` adds fan-outs and chains of other engines, each
with the Python of an environment where it is installed (`bench.work_peers`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import clickhouse_connect
import pyarrow as pa
from clickhouse_connect.driver import AsyncClient

from aaiclick.local import clickhouse_endpoint, find_clickhouse, stop_stack
from aaiclick.orchestration import OrchContext, Task, create_job, create_task
from aaiclick.server_addresses import PostgresEndpoint
from aaiclick.settings import get_settings
from aaiclick.store.migrate import upgrade
from aaiclick.store.postgres_connections import connect
from bench.schema_shape import own_server
from bench.work_tasks import make_columns
from bench.worker import describe_machine, workers

NOTHING = "nothing"
BARE = "CREATE and INSERT of "
OBJECTS = {"1,000 rows": 1_000, "10,000 rows": 10_000}
CONCURRENCY = 16
"""Number of tasks that a worker runs at the same time."""
SLOWER = {"return_frame": 2, "return_object": 20, "fail_first": 10}
"""How many times fewer tasks are run of slow functions."""
PEER_SHARE = 5
"""How many times fewer tasks are run by other engines."""


def make(function: str, arguments: dict[str, object] | None = None) -> Task:
    return create_task(f"bench.work_tasks.{function}", arguments or {})


def fan_out(function: str, count: int, arguments: dict[str, object] | None = None) -> list[Task]:
    return [make(function, arguments) for _ in range(max(1, count // SLOWER.get(function, 1)))]


def chain_of_none(hops: int) -> list[Task]:
    tasks = [make("pass_none")]
    while len(tasks) < hops:
        tasks.append(make("pass_none", {"previous": tasks[-1]}))
    return tasks


def chain_of_ints(hops: int) -> list[Task]:
    tasks = [make("pass_int", {"number": 0})]
    while len(tasks) < hops:
        tasks.append(make("pass_int", {"number": tasks[-1]}))
    return tasks


def fan_in(count: int) -> list[Task]:
    numbers = [make("pass_int", {"number": number}) for number in range(count)]
    return [*numbers, make("add_up", {"numbers": numbers})]


async def measure(endpoint: PostgresEndpoint, tasks: list[Task]) -> float:
    """Milliseconds per task of a job, from its submit to its end."""
    connection = await connect(endpoint)
    async with OrchContext(endpoint=endpoint) as context:
        async with context.connection() as own:
            await own.fetchval("SELECT 1")  # a program connects once, not for each job
        clock = time.perf_counter()
        job = await create_job("work", tasks)
        while await connection.fetchval("SELECT completed_at IS NULL FROM jobs WHERE id = $1", job.id):  # noqa: ASYNC110
            await asyncio.sleep(0.002)
        took = (time.perf_counter() - clock) * 1e3
        status, error = await connection.fetchrow("SELECT status::text, error FROM jobs WHERE id = $1", job.id)
    await connection.close()
    if status != "COMPLETED":
        raise RuntimeError(f"The job of {tasks[0].entrypoint} ended as {status}: {error}")
    return took / len(tasks)


async def open_clickhouse() -> AsyncClient:
    endpoint = await clickhouse_endpoint(get_settings())
    return await clickhouse_connect.get_async_client(
        host=endpoint.host, port=endpoint.port, username=endpoint.user, password=endpoint.password,
        database=endpoint.database, proxy_path=endpoint.path, autogenerate_session_id=False, compress=False,
    )  # fmt: skip


async def count_tables() -> int:
    client = await open_clickhouse()
    tables = await client.query("SELECT count() FROM system.tables WHERE database = currentDatabase()")
    await client.close()
    return tables.first_row[0]


async def measure_bare(count: int, rows: int) -> float:
    """Milliseconds per table of CREATE and INSERT, without aaiclick."""
    client = await open_clickhouse()
    columns = "aai_id UInt64, number Int64, square Int64"

    async def fill(names: Iterator[str]) -> None:
        for name in names:
            await client.command(f"CREATE TABLE {name} ({columns}) ENGINE = MergeTree ORDER BY aai_id")
            await client.insert_arrow(name, pa.table({"aai_id": list(range(rows)), **make_columns(rows)}))

    names = [f"bare_{number}" for number in range(count)]
    clock, waiting = time.perf_counter(), iter(names)
    await asyncio.gather(*(fill(waiting) for _ in range(CONCURRENCY)))
    took = (time.perf_counter() - clock) * 1e3
    for name in names:
        await client.command(f"DROP TABLE {name}")
    await client.close()
    return took / count


def operations(arguments: argparse.Namespace) -> dict[str, Callable[[], list[Task]]]:
    count, hops = arguments.tasks, arguments.hops
    with_arguments: dict[str, object] = {"number": 1, "text": "abc", "items": [1, 2, 3]}
    return {
        NOTHING: lambda: fan_out("nothing", count),
        "nothing, in a thread": lambda: fan_out("nothing_in_a_thread", count),
        "takes arguments": lambda: fan_out("take_arguments", count, with_arguments),
        "prints a line": lambda: fan_out("print_line", count),
        "returns an int": lambda: fan_out("return_int", count),
        "returns a dict": lambda: fan_out("return_dict", count),
        "returns a list of 100": lambda: fan_out("return_list", count),
        "returns a DataFrame of 100 rows": lambda: fan_out("return_frame", count),
        **{
            f"returns an Object of {text}": lambda rows=rows: fan_out("return_object", count, {"rows": rows})
            for text, rows in OBJECTS.items()
        },
        "fails once, then returns": lambda: fan_out("fail_first", count, {"marker": 1}),
        f"fan-in of {count:,} ints, each": lambda: fan_in(count),
        "chain of None, a hop": lambda: chain_of_none(hops),
        "chain that passes an int, a hop": lambda: chain_of_ints(hops),
        "job of one task": lambda: fan_out("nothing", 1),
        "job of one task that returns an int": lambda: fan_out("return_int", 1),
    }


async def measure_peer(endpoint: PostgresEndpoint, peer: str, arguments: argparse.Namespace) -> dict[str, float]:
    """Milliseconds per task of another engine, in a database of its own."""
    name, _, python = peer.partition("=")
    admin = await connect(endpoint)
    await admin.execute(f"DROP DATABASE IF EXISTS peer_{name} WITH (FORCE)")
    await admin.execute(f"CREATE DATABASE peer_{name}")
    await admin.close()
    script = str(Path(__file__).with_name("work_peers.py"))
    sizes = ["--tasks", str(max(1, arguments.tasks // PEER_SHARE)), "--hops", str(max(1, arguments.hops // PEER_SHARE))]
    dsn = endpoint.with_database(f"peer_{name}").dsn
    # -P: modules of this directory such as `queue` and `http` must not replace those of Python.
    command = [python, "-P", script, name, *sizes, "--dsn", dsn]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    output, _ = await process.communicate()
    if process.returncode:
        raise SystemExit(f"{name} failed in the environment of {python}; its error is above.")
    figures = json.loads(output.splitlines()[-1])
    return {f"{name}: {operation}": milliseconds for operation, milliseconds in figures.items()}


async def run(endpoint: PostgresEndpoint, arguments: argparse.Namespace) -> None:
    await upgrade(endpoint)
    size = f"{arguments.tasks:,} tasks, {arguments.hops:,} hops, medians of {arguments.repeats}"
    print(f"{await describe_machine(endpoint)}; {size}", flush=True)
    chosen = {
        name: make_tasks
        for name, make_tasks in operations(arguments).items()
        if name == NOTHING or any(part in name for part in arguments.only)
    }
    bare = {text: rows for text, rows in OBJECTS.items() if f"returns an Object of {text}" in chosen}
    samples: defaultdict[str, list[float]] = defaultdict(list)
    memory: list[float] = []
    async with workers(endpoint, arguments.processes) as processes:
        for _ in range(arguments.repeats):
            for name, make_tasks in chosen.items():
                repeats = 30 if name.startswith("job of one") else 1
                samples[name].append(statistics.median([await measure(endpoint, make_tasks()) for _ in range(repeats)]))
            for text, rows in bare.items():
                count = max(1, arguments.tasks // SLOWER["return_object"])
                samples[f"{BARE}{text}"].append(await measure_bare(count, rows))
            for peer in arguments.peers:
                for name, value in (await measure_peer(endpoint, peer, arguments)).items():
                    samples[name].append(value)
            memory.append(sum(process.memory_info().rss for process in processes) / 1e6)
    sizes = ", ".join(f"{megabytes:.0f}" for megabytes in memory)
    print(f"{await count_tables()} ClickHouse tables; MB of the worker after each repeat: {sizes}", flush=True)
    base = statistics.median(samples[NOTHING])
    for name, values in samples.items():
        median = statistics.median(values)
        runs = ", ".join(f"{value:.3f}" for value in values)
        print(f"{name:<40} {median:8.3f} ms  {median / base:7.2f} x nothing  (runs {runs})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", type=int, default=5_000)
    parser.add_argument("--hops", type=int, default=300)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--peers", nargs="*", default=[], help="dbos=PYTHON, prefect=PYTHON")
    parser.add_argument("--only", nargs="*", default=[""], help="Parts of the names of operations.")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="aaiclick-bench-") as home, own_server() as (endpoint, _):
        os.environ["AAICLICK_HOME"] = home
        find_clickhouse(get_settings())
        try:
            asyncio.run(run(endpoint, arguments))
        finally:
            stop_stack()


if __name__ == "__main__":
    main()
