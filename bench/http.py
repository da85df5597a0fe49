"""The service under load: enqueueing over HTTP and directly, many clients at once, deep pages, many listeners.

    python -m bench.http enqueue            # batches over HTTP, of the direct rate
    python -m bench.http mixed --tasks 1000000 --clients 200
    python -m bench.http listeners --listeners 1000

Each starts an embedded stack of its own and a server on it. Rates of one run are compared in turns, medians reported.
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
from aaiclick.local.lease import Lease
from aaiclick.server.paging import write_cursor
from aaiclick.snowflake import get_snowflake_ids
from aaiclick.store.engine import connect
from aaiclick.store.enqueue import enqueue_tasks
from aaiclick.store.migrate import ensure_current
from aaiclick.store.plan import NewTask
from aaiclick.targets import PostgresTarget

BATCH = 1_000
ROUNDS = 60


@asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[tuple[PostgresTarget, aiohttp.ClientSession, psutil.Process]]:
    """An embedded stack, a server, a session with an admin's key, and the server's process."""
    home = Home(directory / "home")
    lease = Lease(home, linger_seconds=0)
    try:
        target = lease.postgres()
        await ensure_current(target)
        environment = dict(os.environ) | {"AAICLICK_HOME": str(home.path), "AAICLICK_LOG_DIR": str(directory / "logs")}
        log = directory / "server.log"
        command = [sys.executable, "-m", "aaiclick", "server", "start", "--port", "0"]
        with log.open("wb") as said:
            process = subprocess.Popen(command, env=environment, stderr=said, stdout=said)  # noqa: ASYNC220
        try:
            while not (found := re.search(r"serves at (http://\S+:\d+)", log.read_text())):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            key = re.search(r"aai_\w+", log.read_text())
            assert key is not None
            headers = {"Authorization": f"Bearer {key.group()}"}
            connector = aiohttp.TCPConnector(limit=0)
            timeout = aiohttp.ClientTimeout(total=None)
            async with aiohttp.ClientSession(
                found.group(1), headers=headers, connector=connector, timeout=timeout
            ) as http:
                yield target, http, psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait()
    finally:
        lease.close()


async def enqueue(_options: argparse.Namespace, directory: Path) -> None:
    """Batches of a thousand, directly and over HTTP, in turns."""
    async with serving(directory) as (target, http, process):
        connection = await connect(target)
        direct: list[float] = []
        served: list[float] = []
        body = json.dumps({"items": [{"type": "bench", "payload": {"n": n, "word": "x" * 20}} for n in range(BATCH)]})
        for _ in range(ROUNDS):
            started = time.perf_counter()
            made = [
                NewTask(id=task_id, type="bench", kwargs=json.dumps({"n": n, "word": "x" * 20}))
                for n, task_id in enumerate(get_snowflake_ids(BATCH))
            ]
            await enqueue_tasks(connection, made)
            direct.append(time.perf_counter() - started)
            started = time.perf_counter()
            async with http.post("/v1/tasks", data=body, headers={"Content-Type": "application/json"}) as answer:
                assert answer.status == 201, await answer.text()
                await answer.read()
            served.append(time.perf_counter() - started)
        await connection.close()
        spent = process.cpu_times()
        ours, theirs = BATCH / statistics.median(direct), BATCH / statistics.median(served)
        print(f"directly {ours:,.0f}/s, over HTTP {theirs:,.0f}/s: {theirs / ours:.2f} of it")
        print(f"best of each: {min(direct) * 1e3:.1f} and {min(served) * 1e3:.1f} ms: {min(direct) / min(served):.2f}")
        print(f"the server's CPU: {(spent.user + spent.system) / ROUNDS * 1e3:.1f} ms per batch, its start included")


async def fill(target: PostgresTarget, count: int) -> None:
    connection = await connect(target)
    for start in range(0, count, 50_000):
        size = min(50_000, count - start)
        await enqueue_tasks(connection, [NewTask(id=each, type="bench") for each in get_snowflake_ids(size)])
    await connection.execute("ANALYZE tasks")
    await connection.close()


async def mixed(options: argparse.Namespace, directory: Path) -> None:
    """Many clients, each reading and enqueueing in turn, beside a million tasks."""
    async with serving(directory) as (target, http, process):
        await fill(target, options.tasks)
        await deep_pages(target, http)
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


async def deep_pages(target: PostgresTarget, http: aiohttp.ClientSession) -> None:
    """The first page and the ten-thousandth, as rows of the same list."""
    connection = await connect(target)
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
    said = ", ".join(f"{name} {statistics.median(each) * 1e3:.1f} ms" for name, each in times.items())
    print(f"medians of 30, in turns: {said}")


async def listeners(options: argparse.Namespace, directory: Path) -> None:
    """Streams that are held for a minute while jobs come and go: memory stays what it was."""
    async with serving(directory) as (_, http, process):
        heard = [0]

        async def listen() -> None:
            async with http.get("/v1/events") as answer:
                async for line in answer.content:
                    heard[0] += line.startswith(b"event: job")

        streams = [asyncio.create_task(listen()) for _ in range(options.listeners)]
        await asyncio.sleep(10)
        sizes: list[float] = []
        for _ in range(6):
            for _ in range(10):
                async with http.post("/v1/jobs", json={"name": "j", "entrypoint": "m.f"}) as answer:
                    assert answer.status == 201
                await asyncio.sleep(1)
            sizes.append(process.memory_info().rss / 1e6)
            print(f"{len(sizes) * 10} s: {sizes[-1]:.0f} MB, {heard[0]:,} events heard", flush=True)
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
    work: dict[str, Any] = {"enqueue": enqueue, "mixed": mixed, "listeners": listeners}
    with tempfile.TemporaryDirectory(prefix="aaiclick-bench-") as directory:
        asyncio.run(work[options.what](options, Path(directory)))


if __name__ == "__main__":
    main()
