"""Many failures with one fingerprint, by real workers, with a rule that sends them to a real HTTP server.

    python -m bench.incidents [--failures 100000] [--processes 2]

Runs the same number of items that succeed first, for comparison. Prints the rates, the incidents, the count of the
incident, and the messages that the channel received while it was down for a third of the run, and after it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import tempfile
import time
from typing import Any

from aaiclick.local import stop_stack
from aaiclick.orchestration import OrchContext
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.engine import notification_rules
from aaiclick.store.engine.enqueue import enqueue_tasks
from aaiclick.store.engine.notification_rules import Channel, Rule
from aaiclick.store.engine.submission_plan import NewTask
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.task_options import TaskOptions
from bench.map import start_worker

SETTLE_SECONDS = 30.0


async def succeed() -> None:
    """Do nothing."""


async def fail() -> None:
    """Fail."""
    raise ValueError("The table has no column 7.")


class Sink:
    """An HTTP server that counts requests, and refuses them while it is down."""

    def __init__(self) -> None:
        self.accepted: list[dict[str, object]] = []
        self.refused = 0
        self.is_down = False

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.split("content-length:")[1].split("\r\n")[0])
        body = await reader.readexactly(length)
        if self.is_down:
            self.refused += 1
        else:
            self.accepted.append(json.loads(body))
        status = b"503 Down" if self.is_down else b"204 OK"
        writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()


async def drain(connection: Any, function: str, count: int) -> float:
    """Enqueue items and wait until all have ended; returns how many ended per second."""
    options = TaskOptions(max_attempts=1)
    for start in range(0, count, 10_000):
        size = min(10_000, count - start)
        tasks = [
            NewTask(get_snowflake_id(), function, f"bench.incidents.{function}", options=options) for _ in range(size)
        ]
        await enqueue_tasks(connection, tasks)
    began, open_tasks = time.perf_counter(), count
    query = "SELECT count(*) FROM tasks WHERE type = $1 AND completed_at IS NULL"
    while open_tasks:
        await asyncio.sleep(0.2)
        open_tasks = await connection.fetchval(query, function)
    return count / (time.perf_counter() - began)


async def run(arguments: argparse.Namespace) -> None:
    sink = Sink()
    server = await asyncio.start_server(sink.handle, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    async with server, OrchContext() as context, context.connection() as connection:
        await notification_rules.set_channel(connection, Channel(DEFAULT_ORG_ID, "ops", "webhook", {"url": url}))
        await notification_rules.set_rule(connection, DEFAULT_ORG_ID, Rule("all", ("ops",)))
        worker = start_worker(arguments.processes, 16)
        try:
            await drain(connection, "succeed", 1_000)  # the workers have started
            succeeded = await drain(connection, "succeed", arguments.failures)
            sink.is_down = True
            failed = await drain(connection, "fail", arguments.failures)
            sink.is_down = False
            end = time.monotonic() + SETTLE_SECONDS
            undelivered = "SELECT count(*) FROM notifications WHERE delivered_at IS NULL"
            while time.monotonic() < end and await connection.fetchval(undelivered):  # noqa: ASYNC110
                await asyncio.sleep(0.5)
            rows = await connection.fetch("SELECT rule, count FROM incidents ORDER BY id")
        finally:
            worker.terminate()
            worker.wait()
    print(json.dumps({
        "succeeded_per_s": round(succeeded), "failed_per_s": round(failed),
        "incidents": [(row["rule"], row["count"]) for row in rows],
        "messages": len(sink.accepted), "refused": sink.refused,
    }), flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--failures", type=int, default=100_000)
    parser.add_argument("--processes", type=int, default=2)
    home = tempfile.mkdtemp(prefix="bench-incidents-")
    os.environ |= {"AAICLICK_HOME": home, "AAICLICK_PRIVATE_HOSTS": "127.0.0.1"}
    try:
        asyncio.run(run(parser.parse_args()))
    finally:
        stop_stack()
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
