"""The entry of a worker process: `python -m aaiclick.orchestration.worker.main`, its orders on standard input.

The end of standard input means that the supervisor has gone: finish at once and give back what runs; once its leases
have run out nobody waits for that any more, and the process ends as it is. SIGTERM means: claim nothing more, finish
what runs, then end.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import random
import signal
import sys
from typing import Any, NoReturn

import uvloop

from aaiclick.errors import EntrypointError, SettingsError
from aaiclick.orchestration.loops.cleanup import PgCleanupWorker
from aaiclick.orchestration.runtimes.sqs import TaskQueue
from aaiclick.orchestration.worker.isolated import Isolation, work_alone
from aaiclick.orchestration.worker.logs import captured_output
from aaiclick.orchestration.worker.orders import FINISHED, UNFIT, WORN, Duty, Setup
from aaiclick.orchestration.worker.process import WorkerProcess
from aaiclick.orchestration.worker.setup import make_executor
from aaiclick.orchestration.worker.summons import Summons
from aaiclick.orchestration.worker.template import Template
from aaiclick.settings import get_settings
from aaiclick.targets import PostgresTarget

ORDER_BYTES = 16_000_000
LEFT_ALONE = 6
SUSPECTS_AT_ONCE = 2
SUSPECTS = 8
"""Tasks that may have killed a process, run alone, at once; each has a process of its own."""


async def serve(template: Template) -> int:
    """Read the orders, work until told to stop or until there is nothing left to do; returns the exit code."""
    reader = asyncio.StreamReader(limit=ORDER_BYTES)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    order: dict[str, Any] = json.loads(await reader.readline())
    setup = Setup.from_json(order["setup"])
    duty = Duty.from_json(order["duty"])
    executor = await make_executor(setup, threads=duty.concurrency)
    places = duty.concurrency if duty.isolate else min(duty.concurrency, SUSPECTS)
    at_once = places if duty.isolate else SUSPECTS_AT_ONCE
    isolation = Isolation(setup, places, executor.transport, template, at_once=at_once)
    summons = None
    if duty.called_by is not None:
        summons = Summons(TaskQueue(duty.called_by), until_silent=duty.drain)
    process = WorkerProcess(duty, executor.transport, executor, isolation, summons)
    gc.freeze()  # what was imported stays: looking through it again and again would only cost
    loop.add_signal_handler(signal.SIGTERM, process.stop)
    loop.add_signal_handler(signal.SIGINT, lambda: None)  # a terminal's Ctrl-C is for the supervisor to act on
    watch = asyncio.create_task(_end_with_supervisor(reader, process, duty.lease_seconds))
    cleanup = None
    if isinstance(setup.work, PostgresTarget):  # tables of a server's workers are dropped where the server is
        cleanup = PgCleanupWorker(postgres=setup.work, clickhouse=setup.clickhouse)
        await cleanup.start(delay_seconds=random.uniform(0.5, 1) * cleanup.poll_interval)  # noqa: S311  (spread)
    try:
        await process.run()
    finally:
        watch.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watch
        await isolation.close()
        await executor.close()
        if cleanup is not None:
            await cleanup.stop()
    if process.worn:
        _exit(WORN)  # here: who closes the loop waits for its tasks
    return FINISHED


async def _end_with_supervisor(reader: asyncio.StreamReader, process: WorkerProcess, lease_seconds: float) -> None:
    await reader.read()
    process.stop()
    process.release_all()
    await asyncio.sleep(lease_seconds)
    os._exit(LEFT_ALONE)  # PostgreSQL cannot be told: what we held is somebody else's by now


def main() -> None:
    get_settings()  # children of the template find it read
    template = Template.fork(work_alone)  # first of all: what has a loop, threads or connections cannot be forked
    with captured_output():
        try:
            code = uvloop.run(serve(template))
        except (EntrypointError, SettingsError) as error:
            os.write(2, f"error: {error}\n".encode())
            code = UNFIT
    _exit(code)


def _exit(code: int) -> NoReturn:
    sys.stdout.flush()
    os._exit(code)  # a task's thread that does not end must not keep the process


if __name__ == "__main__":
    main()
