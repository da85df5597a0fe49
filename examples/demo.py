"""`make demo`: start the embedded servers, run a job on a worker, print its result, stop."""

from __future__ import annotations

import asyncio
import sys
import time

from aaiclick.cli.main import run_command
from aaiclick.data import DataContext, open_reference
from aaiclick.local import close_stack_connections, find_both, stop_stack
from aaiclick.orchestration import OrchContext, get_task, list_jobs
from aaiclick.store.engine.queries import list_tasks_of_job


async def show_result() -> None:
    """Print the result of the last task, which is an Object (a ClickHouse table)."""
    async with OrchContext() as context, DataContext():
        newest = (await list_jobs(limit=1))[0]
        async with context.connection() as connection:
            last = (await list_tasks_of_job(connection, newest.org_id, newest.id))[-1]
        result = await open_reference((await get_task(last["id"])).result)
        for row in (await result.to_arrow()).to_pylist():
            print(f"  {row['city']:6} {row['mean_fare']:7.2f}")


def main() -> None:
    started = time.perf_counter()
    postgres, clickhouse = find_both()
    print(f"The stack is up after {time.perf_counter() - started:.1f} s:\n  {postgres}\n  {clickhouse}\n", flush=True)
    code = run_command(["run", "examples.trips.fares"])
    if code == 0:
        print("\nIts result, mean fare by city:", flush=True)
        asyncio.run(show_result())
    close_stack_connections()
    stop_stack()
    sys.exit(code)


if __name__ == "__main__":
    main()
