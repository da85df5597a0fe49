"""Fan-outs and chains of other workflow engines, run by `bench.work --peers` in the environments of the engines.

    python -P bench/work_peers.py dbos|prefect [--tasks 1000] [--hops 100] [--dsn postgresql://…]

It prints milliseconds per task as JSON. Every task returns an int, and every hop of a chain receives one. DBOS runs
child workflows from a queue, and a chain as the steps of a workflow; Prefect runs tasks of a flow, submitted together
or one after the other, with a server on SQLite, its default: for PostgreSQL it needs the extension pg_trgm, which the
server of the benchmark does not have. It imports nothing of aaiclick.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections.abc import Awaitable, Callable

FAN_OUT = "returns an int"
QUEUE = "bench"
CHAIN = "chain that passes an int, a hop"


async def measure(tasks: int, work: Callable[[], Awaitable[object]]) -> float:
    clock = time.perf_counter()
    await work()
    return (time.perf_counter() - clock) / tasks * 1e3


async def run_dbos(arguments: argparse.Namespace) -> dict[str, float]:
    from dbos import DBOS

    DBOS(
        config={
            "name": "bench",
            "system_database_url": arguments.dsn,
            "log_level": "ERROR",
            "run_admin_server": False,
        }
    )

    @DBOS.workflow()
    async def return_int() -> int:
        return 42

    @DBOS.step()
    async def pass_int(number: int) -> int:
        return number + 1

    @DBOS.workflow()
    async def fan_out(count: int) -> int:
        handles = [await DBOS.enqueue_workflow_async(QUEUE, return_int) for _ in range(count)]
        return sum([await handle.get_result() for handle in handles])

    @DBOS.workflow()
    async def chain(hops: int) -> int:
        number = 0
        for _ in range(hops):
            number = await pass_int(number)
        return number

    DBOS.launch()
    await DBOS.register_queue_async(QUEUE, worker_concurrency=500, polling_interval_sec=0.05)
    await chain(2)
    await fan_out(2)
    figures = {
        FAN_OUT: await measure(arguments.tasks, lambda: fan_out(arguments.tasks)),
        CHAIN: await measure(arguments.hops, lambda: chain(arguments.hops)),
    }
    DBOS.destroy()
    return figures


async def run_prefect(arguments: argparse.Namespace) -> dict[str, float]:
    os.environ |= {
        "PREFECT_HOME": tempfile.mkdtemp(prefix="prefect-"),
        "PREFECT_LOGGING_LEVEL": "ERROR",
        "PREFECT_SERVER_LOGGING_LEVEL": "ERROR",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
        "PREFECT_RESULTS_PERSIST_BY_DEFAULT": "true",
    }
    from prefect import flow, task

    @task
    async def pass_int(number: int) -> int:
        return number + 1

    @flow
    async def fan_out(count: int) -> int:
        futures = [pass_int.submit(number) for number in range(count)]
        return sum(future.result() for future in futures)

    @flow
    async def chain(hops: int) -> int:
        number = 0
        for _ in range(hops):
            number = await pass_int(number)
        return number

    await chain(2)
    return {
        FAN_OUT: await measure(arguments.tasks, lambda: fan_out(arguments.tasks)),
        CHAIN: await measure(arguments.hops, lambda: chain(arguments.hops)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("peer", choices=["dbos", "prefect"])
    parser.add_argument("--tasks", type=int, default=1_000)
    parser.add_argument("--hops", type=int, default=100)
    parser.add_argument("--dsn", required=True)
    arguments = parser.parse_args()
    work = {"dbos": run_dbos, "prefect": run_prefect}[arguments.peer]
    print(json.dumps(asyncio.run(work(arguments))))


if __name__ == "__main__":
    main()
