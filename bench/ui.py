"""Cost of pages with a million jobs and with a job of 100,000 tasks, and their effect on a worker.

    python -m bench.ui [--jobs 1000000] [--tasks 100000] [--drained 20000] [--pages 50] [--repeats 3]

A server (`aaiclick server start --no-auth`) on a separate PostgreSQL with durable defaults, without manual VACUUM or
ANALYZE. Server time is that of the access log. The layout is computed in this process. Open pages do what the browser's
script does: one stream, and a refresh of the page at the server's interval. Drains are jobs of 1,000 no-op tasks, by
one worker process, with and without open pages, interleaved.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import asyncpg
import httpx
import psutil

from aaiclick.local import find_clickhouse, stop_stack
from aaiclick.server.ui.svg.graph_layout import compute_layout
from aaiclick.server_addresses import PostgresEndpoint
from aaiclick.settings import get_settings
from aaiclick.snowflake import get_snowflake_id, get_snowflake_ids
from aaiclick.store.engine.submission_plan import NewGroup, NewTask, Plan
from aaiclick.store.engine.submit import NewJob, submit_job
from aaiclick.store.migrate import upgrade
from aaiclick.store.postgres_connections import connect
from bench.schema_shape import own_server
from bench.worker import until_done, workers

MANY_JOBS = """
INSERT INTO jobs (id, org_id, name, status, total_tasks, open_tasks, failed_tasks, created_at, started_at, completed_at)
SELECT $1::bigint - n::bigint * 40000000, '00000000-0000-4000-8000-000000000001', 'job ' || n % 1000,
    CASE WHEN n % 100 = 0 THEN 'FAILED' WHEN n < 200 THEN 'RUNNING' ELSE 'COMPLETED' END::job_status, 10,
    CASE WHEN n % 100 <> 0 AND n < 200 THEN 5 ELSE 0 END, CASE WHEN n % 100 = 0 THEN 1 ELSE 0 END,
    now() - n * interval '10 ms', now() - n * interval '10 ms',
    CASE WHEN n % 100 = 0 OR n >= 200 THEN now() END
FROM generate_series(1, $2::int) AS n
"""
MINUTES = """
INSERT INTO queue_minutes (org_id, queue, minute, completed, failed)
SELECT '00000000-0000-4000-8000-000000000001', 'queue ' || q, date_trunc('minute', now()) - m * interval '1 minute',
    100, 1
FROM generate_series(1, 100) AS q, generate_series(0, 1439) AS m
"""
HALF_DONE = """
UPDATE tasks SET status = 'COMPLETED', readiness = NULL, unmet = 0, attempt = 1, started_at = now(),
    completed_at = now()
WHERE job_id = $1 AND id <= $2
"""


async def large_job(connection: asyncpg.Connection, count: int) -> int:
    """Create a job with a split task, a group of chunks and a collect task; half of the chunks are completed."""
    split, group, join, *chunks = get_snowflake_ids(count + 1)
    tasks = [NewTask(split, "bench.split"), *(NewTask(key, "bench.chunk", group_id=group) for key in chunks)]
    job = NewJob(get_snowflake_id(), "large")
    plan = Plan([*tasks, NewTask(join, "bench.join")], [NewGroup(group, "chunks")], [(split, group), (group, join)])
    await submit_job(connection, job, plan)
    await connection.execute(HALF_DONE, job.id, chunks[count // 2])
    return job.id


async def tangled_job(connection: asyncpg.Connection, count: int) -> int:
    """Create a job of different tasks, so that none can be collapsed."""
    keys, chance = get_snowflake_ids(count), random.Random(1)
    edges = {(keys[chance.randrange(max(0, n - 40), n)], keys[n]) for n in range(1, count) for _ in range(2)}
    job = NewJob(get_snowflake_id(), "tangled")
    await submit_job(connection, job, Plan([NewTask(key, "bench.step") for key in keys], [], sorted(edges)))
    return job.id


@asynccontextmanager
async def server(endpoint: PostgresEndpoint) -> AsyncGenerator[tuple[str, Path, psutil.Process]]:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as stream:
            process = psutil.Popen(
                [sys.executable, "-m", "aaiclick", "server", "start", "--no-auth", "--port", "0"],
                env=os.environ | {"AAICLICK_DATABASE_URL": endpoint.dsn, "AAICLICK_LOG_DIR": folder},
                stderr=stream,
            )
        try:
            while "listening on" not in log.read_text():  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            url = log.read_text().split("listening on ")[1].split()[0]
            async with httpx.AsyncClient(base_url=url, timeout=60) as client:
                await client.get("/health/live")
            yield url, log, process
        finally:
            process.terminate()
            process.wait(60)


def server_times(log: Path) -> list[float]:
    return [json.loads(line)["ms"] for line in log.read_text().splitlines() if '"route"' in line]


async def measure_pages(url: str, log: Path, large: int, tangled: int, repeats: int) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        task = (await client.get(f"/v1/tasks?job_id={large}&limit=1")).json()["items"][0]["id"]
        pages = {
            "overview": "/", "overview, a day": "/?span=day", "jobs": "/jobs", "jobs, failed": "/jobs?status=FAILED",
            "jobs, name contains": "/jobs?q=job+999", "jobs, nothing fits": "/jobs?q=nowhere",
            "jobs, one name": "/jobs?name=job+7",
            "job of 100k: graph": f"/jobs/{large}", "job of 100k: timeline": f"/jobs/{large}?view=timeline",
            "job of 100k: tasks": f"/jobs/{large}?view=tasks",
            "job of 100k: failed tasks": f"/jobs/{large}?view=tasks&status=FAILED",
            "job of 100k: log": f"/jobs/{large}?view=log", "job of 100k: events": f"/jobs/{large}?view=events",
            "job of 1,000 unlike tasks: graph": f"/jobs/{tangled}", "task": f"/tasks/{task}", "queues": "/queues",
            "dead letters": "/dead-letters", "workers": "/workers", "search": "/search?q=job+99",
        }  # fmt: skip
        print("| page | first, ms | median, ms | worst, ms | kB |\n|---|---|---|---|---|")
        for name, path in pages.items():
            taken: list[float] = []
            size = 0
            for _ in range(repeats * 4):
                before = len(server_times(log))
                size = len((await client.get(path)).raise_for_status().content)
                while len(times := server_times(log)) == before:  # noqa: ASYNC110  (written after the answer)
                    await asyncio.sleep(0.01)
                taken.append(times[-1])
            print(
                f"| {name} | {taken[0]:.0f} | {statistics.median(taken):.0f} | {max(taken):.0f} | {size / 1000:.0f} |"
            )


def measure_layout() -> None:
    chance = random.Random(1)
    edges = [(chance.randrange(max(0, n - 40), n), n) for n in range(1, 1_000) for _ in range(2)]
    taken: list[float] = []
    for _ in range(9):
        started = time.process_time()
        compute_layout(dict.fromkeys(range(1_000), (172.0, 40.0)), edges)
        taken.append((time.process_time() - started) * 1000)
    print(f"\nLayout of 1,000 nodes and 1,998 edges: {statistics.median(taken):.0f} ms of CPU")


async def open_page(url: str, path: str, refreshes: list[int]) -> None:
    """Do what `live.js` does."""
    news = asyncio.Event()
    async with httpx.AsyncClient(base_url=url, timeout=None) as client:

        async def listen() -> None:
            async with client.stream("GET", "/live") as stream:
                async for line in stream.aiter_lines():
                    if line.startswith("event: changed"):
                        news.set()

        listener = asyncio.create_task(listen())
        try:
            interval = 1.0
            while True:
                with suppress(TimeoutError):
                    await asyncio.wait_for(news.wait(), max(2.0, interval))
                news.clear()
                answer = await client.get(path, headers={"X-Refresh": "1"})
                refreshes.append(1)
                interval = float(answer.headers["x-refresh-interval"])
                await asyncio.sleep(interval)
        finally:
            listener.cancel()


async def drain(
    endpoint: PostgresEndpoint, url: str, process: psutil.Process, pages: int, count: int, large: int
) -> tuple[float, int, float]:
    """Return tasks per second with open pages, the number of refreshes, and the server's share of a processor."""
    refreshes: list[int] = []
    paths = ("/", "/jobs", "/queues", "/workers", f"/jobs/{large}")
    open_ = [asyncio.create_task(open_page(url, paths[n % len(paths)], refreshes)) for n in range(pages)]
    await asyncio.sleep(3 if pages else 0)
    connection = await connect(endpoint)
    started, refreshes[:] = time.perf_counter(), []
    spent = sum(process.cpu_times()[:2])
    async with connection.transaction():
        for _ in range(count // 1000):
            plan = Plan([NewTask(key, "noop") for key in get_snowflake_ids(1000)])
            await submit_job(connection, NewJob(get_snowflake_id(), "drained"), plan)
    await connection.close()
    await until_done(endpoint)
    seconds = time.perf_counter() - started
    share = (sum(process.cpu_times()[:2]) - spent) / seconds
    for page in open_:
        page.cancel()
    await asyncio.gather(*open_, return_exceptions=True)
    return count / seconds, len(refreshes), share


async def run(endpoint: PostgresEndpoint, arguments: argparse.Namespace) -> None:
    await upgrade(endpoint)
    connection = await connect(endpoint)
    await connection.execute(MANY_JOBS, get_snowflake_id(), arguments.jobs)
    await connection.execute(MINUTES)
    large, tangled = await large_job(connection, arguments.tasks), await tangled_job(connection, 1_000)
    await connection.execute("UPDATE tasks SET readiness = 'BLOCKED', unmet = 1 WHERE readiness = 'READY'")
    await connection.close()
    async with server(endpoint) as (url, log, process):
        await measure_pages(url, log, large, tangled, arguments.repeats)
        measure_layout()
        if not arguments.drained:
            return
        async with workers(endpoint, 1):
            rates: dict[int, list[float]] = {0: [], arguments.pages: []}
            refresh_counts: list[int] = []
            shares: list[float] = []
            for _ in range(arguments.repeats):
                for pages, samples in rates.items():
                    rate, count, share = await drain(endpoint, url, process, pages, arguments.drained, large)
                    samples.append(rate)
                    if pages:
                        refresh_counts.append(count)
                        shares.append(share)
        alone, watched = (statistics.median(samples) for samples in rates.values())
        print(
            f"\nDrain, tasks/s: {alone:.0f} alone, {watched:.0f} with {arguments.pages} open pages "
            f"({watched / alone:.2f}); pages were refreshed {statistics.median(refresh_counts):.0f} times in a drain, "
            f"the server took {statistics.median(shares):.2f} of a processor"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--drained", type=int, default=20_000)
    parser.add_argument("--pages", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="aaiclick-bench-") as home:
        os.environ["AAICLICK_HOME"] = home
        get_settings.cache_clear()
        os.environ["AAICLICK_CLICKHOUSE_URL"] = find_clickhouse().url
        try:
            with own_server() as (endpoint, _):
                asyncio.run(run(endpoint, arguments))
        finally:
            del os.environ["AAICLICK_CLICKHOUSE_URL"]
            get_settings.cache_clear()
            stop_stack()


if __name__ == "__main__":
    main()
