"""aaiclick as one of the queues of an external harness that compares queues on one PostgreSQL, one run each.

    queue_adapter.py setup | enqueue_single N | enqueue_bulk N | producer N INTERVAL_MS | worker | sql NAME

The harness sets QB_URI (the database), for workers QB_PROGRESS (a file with the number of executed tasks), and for
latencies QB_LAT (a file with milliseconds). `worker` is `aaiclick worker start` with one process and default options:
it prints "ready", and begins after a line on standard input, when its queue is resumed.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import uvloop

from aaiclick.orchestration import OrchContext, enqueue, enqueue_many
from aaiclick.server_addresses import PostgresEndpoint, parse_postgres_url
from aaiclick.store.engine.pause import pause_queue, resume_queue
from aaiclick.store.migrate import upgrade
from aaiclick.store.postgres_connections import connect

ROOT = Path(__file__).parent.parent
TYPE = "bench.counted"
BULK = 1_000
STATES = """
    remaining: SELECT count(*) FROM tasks WHERE readiness = 'READY' OR status IN ('CLAIMED', 'RUNNING')
    seed_finished: INSERT INTO tasks (id, type, status, readiness, completed_at, attempt) SELECT n, 'x', 'COMPLETED', NULL, now(), 1 FROM generate_series(1, {n}) AS n
    seed_future: INSERT INTO tasks (id, type, readiness, available_at) SELECT n, 'x', 'TIME', now() + interval '1 day' FROM generate_series(1, {n}) AS n
    seed_blocked: INSERT INTO tasks (id, type, readiness, unmet) SELECT n, 'x', 'BLOCKED', 1 FROM generate_series(1, {n}) AS n
"""  # noqa: E501


async def fill(count: int) -> None:
    clock = time.perf_counter()
    for start in range(0, count, BULK):
        await enqueue_many(TYPE, [{}] * min(BULK, count - start))
    print(json.dumps({"n": count, "secs": time.perf_counter() - clock}))


async def fill_singly(count: int) -> None:
    await enqueue(TYPE, {})
    clock = time.perf_counter()
    for _ in range(count):
        await enqueue(TYPE, {})
    print(json.dumps({"n": count, "secs": time.perf_counter() - clock}))


async def produce(count: int, interval_ms: float) -> None:
    for _ in range(count):
        await enqueue(TYPE, {"sent_ns": time.monotonic_ns()})
        await asyncio.sleep(interval_ms / 1e3)


async def work(endpoint: PostgresEndpoint) -> None:
    connection = await connect(endpoint)
    await pause_queue(connection, "default")
    workers = "SELECT count(*) FROM workers"
    before = await connection.fetchval(workers)
    with tempfile.TemporaryDirectory(prefix="aaiclick-bench-") as home:
        command = [sys.executable, "-m", "aaiclick", "worker", "start", "--processes", "1", "--import", "bench.counted"]
        environment = os.environ | {"AAICLICK_DATABASE_URL": endpoint.dsn, "AAICLICK_HOME": home}
        worker = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)  # noqa: ASYNC220
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.terminate)
        while await connection.fetchval(workers) <= before:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        await asyncio.sleep(1.5)  # its processes connect
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await resume_queue(connection, "default")
        await connection.close()
        await asyncio.to_thread(worker.wait)


async def main() -> None:
    command, *numbers = sys.argv[1:]
    if command == "sql":
        lines = (line.strip().partition(": ") for line in STATES.strip().splitlines())
        print({name: sql for name, _, sql in lines}[numbers[0]])
        return
    endpoint = parse_postgres_url(os.environ["QB_URI"])
    if command == "setup":
        await upgrade(endpoint)
    elif command == "worker":
        await work(endpoint)
    else:
        fillers = {"enqueue_bulk": fill, "enqueue_single": fill_singly, "producer": produce}
        async with OrchContext(endpoint=endpoint):
            await fillers[command](*(int(float(number)) for number in numbers))


if __name__ == "__main__":
    uvloop.run(main())
