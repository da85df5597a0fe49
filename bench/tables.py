"""Number of ClickHouse tables while many tasks create Objects, and after the cleanup.

    .venv/bin/python -m bench.tables [--tasks 10000] [--processes 2]

Starts separate servers in a temporary directory and a real worker with its cleanup, and samples both databases twice a
second: tables in ClickHouse, and referenced ones. Then the job is released, and one pass of cleanup and sweeper must
leave no table.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from aaiclick.data import create_object_from_value
from aaiclick.data.runtime.clickhouse_client import connect as connect_clickhouse
from aaiclick.local import clickhouse_endpoint, postgres_endpoint, stop_stack
from aaiclick.orchestration import create_job, create_task, get_job
from aaiclick.orchestration.loops.table_cleanup import PgCleanupWorker
from aaiclick.orchestration.loops.table_sweeper import TableSweeper
from aaiclick.settings import get_settings
from aaiclick.store.postgres_connections import connect
from aaiclick.store.tables.table_references import release_jobs

LIVE = "SELECT count(*) FILTER (WHERE refcount > 0), count(*) FROM table_refcounts"
TABLES = "SELECT count() FROM system.tables WHERE database = currentDatabase()"


async def make(number: int) -> object:
    await (await create_object_from_value([number, number]) + 1)
    return await create_object_from_value([number])


async def measure(tasks: int, processes: int) -> None:
    postgres, clickhouse = await postgres_endpoint(), await clickhouse_endpoint()
    job = await create_job("tables", [create_task("bench.tables.make", {"number": n}) for n in range(tasks)])
    db, client = await connect(postgres), await connect_clickhouse(clickhouse)
    worker = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-m", "aaiclick", "worker", "start", "--processes", str(processes)], stderr=subprocess.DEVNULL
    )
    started, peak, waiting, looks = time.perf_counter(), 0, 0, 0
    try:
        while True:
            there = (await client.read_text(TABLES)).column(0)[0].as_py()
            live, _ = await db.fetchrow(LIVE)
            peak, waiting, looks = max(peak, there), max(waiting, there - live), looks + 1
            if (await get_job(job.id)).completed_at is not None:
                break
            await asyncio.sleep(0.5)
        seconds = time.perf_counter() - started
    finally:
        worker.terminate()
        worker.wait()
    print(f"{tasks} tasks, {2 * tasks + tasks} tables made, in {seconds:.1f} s: {tasks / seconds:.0f} tasks/s")
    print(f"most tables at once {peak}, most that nothing referred to {waiting} ({looks} looks)")
    await PgCleanupWorker().run_once()
    print(f"after the job: {(await client.read_text(TABLES)).column(0)[0].as_py()} tables, results of {tasks} tasks")
    released = time.perf_counter()
    await release_jobs(db, [job.id])
    dropped = await PgCleanupWorker().run_once()
    swept = await TableSweeper(max_age_seconds=0).run_once()
    print(f"released: {dropped} dropped, {swept} swept in {time.perf_counter() - released:.1f} s")
    left = (await client.read_text(TABLES)).column(0)[0].as_py()
    print(f"left: {left} tables, {(await db.fetchrow(LIVE))[1]} rows")
    await db.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="aaiclick-bench-") as home:
        os.environ["AAICLICK_HOME"] = str(Path(home) / "home")
        get_settings.cache_clear()
        try:
            asyncio.run(measure(options.tasks, options.processes))
        finally:
            stop_stack()


if __name__ == "__main__":
    main()
