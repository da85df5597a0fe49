"""The server under load: enqueueing over HTTP and directly, many clients, deep pages, many event streams.

    python -m bench.http enqueue            # batches over HTTP, relative to the direct rate
    python -m bench.http mixed --tasks 1000000 --clients 200
    python -m bench.http listeners --listeners 1000

Each command starts separate embedded servers and an API server. Measurements are interleaved; medians are printed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from aaiclick.local.home import Home
from aaiclick.local.stack_connection import StackConnection
from aaiclick.operations.pagination import write_cursor
from aaiclick.server_addresses import PostgresEndpoint
from aaiclick.snowflake import get_snowflake_ids
from aaiclick.store.engine.enqueue import enqueue_tasks
from aaiclick.store.engine.submission_plan import NewTask
from aaiclick.store.migrate import upgrade_if_needed
from aaiclick.store.postgres_connections import connect

BATCH = 1_000
ROUNDS = 60


@asynccontextmanager
async def start_server(
    directory: Path,
) -> AsyncIterator[tuple[PostgresEndpoint, aiohttp.ClientSession, psutil.Process]]:
    """Start embedded servers and an API server; yield the endpoint, an admin's session, and the server's process."""
    home = Home(directory / "home")
    stack = StackConnection(home, linger_seconds=0)
    try:
        endpoint = stack.postgres_endpoint()
        await upgrade_if_needed(endpoint)
        environment = dict(os.environ) | {"AAICLICK_HOME": str(home.path), "AAICLICK_LOG_DIR": str(directory / "logs")}
        log = directory / "server.log"
        command = [sys.executable, "-m", "aaiclick", "server", "start", "--port", "0"]
        with log.open("wb") as output:
            process = subprocess.Popen(command, env=environment, stderr=output, stdout=output)  # noqa: ASYNC220
        try:
            while not (match := re.search(r"listening on (http://\S+:\d+)", log.read_text())):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            key = re.search(r"aai_\w+", log.read_text())
            assert key is not None
            headers = {"Authorization": f"Bearer {key.group()}"}
            connector = aiohttp.TCPConnector(limit=0)
            timeout = aiohttp.ClientTimeout(total=None)
            async with aiohttp.ClientSession(
                match.group(1), headers=headers, connector=connector, timeout=timeout
            ) as http:
                yield endpoint, http, psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait()
    finally:
        stack.close()


async def measure_enqueue(_options: argparse.Namespace, directory: Path) -> None:
    """Enqueue batches of a thousand directly and over HTTP, interleaved."""
    async with start_server(directory) as (endpoint, http, process):
        connection = await connect(endpoint)
        direct: list[float] = []
        served: list[float] = []
        body = json.dumps({"items": [{"type": "bench", "payload": {"n": n, "word": "x" * 20}} for n in range(BATCH)]})
        for _ in range(ROUNDS):
            started = time.perf_counter()
            tasks = [
                NewTask(id=task_id, type="bench", kwargs=json.dumps({"n": n, "word": "x" * 20}))
                for n, task_id in enumerate(get_snowflake_ids(BATCH))
            ]
            await enqueue_tasks(connection, tasks)
            direct.append(time.perf_counter() - started)
            started = time.perf_counter()
            async with http.post("/v1/tasks", data=body, headers={"Content-Type": "application/json"}) as answer:
                assert answer.status == 201, await answer.text()
                await answer.read()
            served.append(time.perf_counter() - started)
        await connection.close()
        spent = process.cpu_times()
        direct_rate, http_rate = BATCH / statistics.median(direct), BATCH / statistics.median(served)
        print(f"directly {direct_rate:,.0f}/s, over HTTP {http_rate:,.0f}/s: ratio {http_rate / direct_rate:.2f}")
        print(f"best of each: {min(direct) * 1e3:.1f} and {min(served) * 1e3:.1f} ms: {min(direct) / min(served):.2f}")
        print(f"the server's CPU: {(spent.user + spent.system) / ROUNDS * 1e3:.1f} ms per batch, its start included")


async def fill_tasks(endpoint: PostgresEndpoint, count: int) -> None:
    connection = await connect(endpoint)
    for start in range(0, count, 50_000):
        size = min(50_000, count - start)
        await enqueue_tasks(connection, [NewTask(id=task_id, type="bench") for task_id in get_snowflake_ids(size)])
    await connection.execute("ANALYZE tasks")
    await connection.close()


async def run_mixed_load(options: argparse.Namespace, directory: Path) -> None:
    """Run many clients that alternate reads and enqueues, with a million tasks in the database."""
    async with start_server(directory) as (endpoint, http, process):
        await fill_tasks(endpoint, options.tasks)
        await measure_deep_pages(endpoint, http)
        reads: list[float] = []
        writes: list[float] = []
        errors = 0
        ends = time.monotonic() + options.seconds

        async def client() -> None:
            nonlocal errors
            while time.monotonic() < ends:
                for method, path, body, times in (
                    ("GET", "/v1/tasks?limit=20", None, reads),
                    ("GET", "/v1/jobs?limit=20", None, reads),
                    ("GET", "/v1/queues", None, reads),
                    ("POST", "/v1/tasks", {"items": [{"type": "bench"}] * 10}, writes),
                ):
                    started = time.perf_counter()
                    async with http.request(method, path, json=body) as answer:
                        await answer.read()
                        errors += answer.status >= 400
                    times.append(time.perf_counter() - started)

        before = process.cpu_times()
        await asyncio.gather(*(client() for _ in range(options.clients)))
        spent = process.cpu_times()
        cpu = spent.user + spent.system - before.user - before.system
        done = len(reads) + len(writes)
        rate = done / options.seconds
        print(f"{options.clients} clients, {options.tasks:,} tasks: {rate:,.0f} requests/s, {errors} errors")
        for name, times in (("reads", reads), ("enqueues", writes)):
            p50, p99 = percentile(times, 50), percentile(times, 99)
            print(f"{name}: p50 {p50 * 1e3:.0f} ms, p99 {p99 * 1e3:.0f} ms, p99 / p50 = {p99 / p50:.1f}")
        print(f"the server's CPU: {cpu / max(1, done) * 1e6:.0f} µs per request")


async def measure_deep_pages(endpoint: PostgresEndpoint, http: aiohttp.ClientSession) -> None:
    """Time the first and the ten-thousandth page of the same list."""
    connection = await connect(endpoint)
    deep = await connection.fetchval("SELECT id FROM tasks ORDER BY id DESC OFFSET 999900 LIMIT 1")
    await connection.close()
    cursors = {"page 1": "", "page 10,000": f"&cursor={write_cursor(deep)}" if deep else ""}
    times: dict[str, list[float]] = {name: [] for name in cursors}
    for _ in range(30):
        for name, cursor in cursors.items():
            started = time.perf_counter()
            async with http.get(f"/v1/tasks?limit=100{cursor}") as answer:
                assert answer.status == 200
                await answer.read()
            times[name].append(time.perf_counter() - started)
    medians = ", ".join(f"{name} {statistics.median(values) * 1e3:.1f} ms" for name, values in times.items())
    print(f"medians of 30, interleaved: {medians}")


async def run_listeners(options: argparse.Namespace, directory: Path) -> None:
    """Hold event streams for a minute while jobs run, and record the memory of the server."""
    async with start_server(directory) as (_, http, process):
        received = [0]

        async def listen() -> None:
            async with http.get("/v1/events") as answer:
                async for line in answer.content:
                    received[0] += line.startswith(b"event: job")

        streams = [asyncio.create_task(listen()) for _ in range(options.listeners)]
        await asyncio.sleep(10)
        sizes: list[float] = []
        for _ in range(6):
            for _ in range(10):
                async with http.post("/v1/jobs", json={"name": "j", "entrypoint": "m.f"}) as answer:
                    assert answer.status == 201
                await asyncio.sleep(1)
            sizes.append(process.memory_info().rss / 1e6)
            print(f"{len(sizes) * 10} s: {sizes[-1]:.0f} MB, {received[0]:,} events received", flush=True)
        alive = sum(not stream.done() for stream in streams)
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)
        print(f"{alive} of {options.listeners} streams held; memory grew by {sizes[-1] - sizes[0]:.1f} MB")


def percentile(times: list[float], nth: int) -> float:
    return statistics.quantiles(times, n=100)[nth - 1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["enqueue", "mixed", "listeners"])
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--listeners", type=int, default=1_000)
    options = parser.parse_args()
    work: dict[str, Any] = {
        "enqueue": measure_enqueue,
        "mixed": run_mixed_load,
        "listeners": run_listeners,
    }
    with tempfile.TemporaryDirectory(prefix="aaiclick-bench-") as directory:
        asyncio.run(work[options.what](options, Path(directory)))


if __name__ == "__main__":
    main()
