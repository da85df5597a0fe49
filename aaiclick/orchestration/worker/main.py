"""Entry point of a worker process: `python -m aaiclick.orchestration.worker.main`, with its configuration on stdin.

The end of stdin means that the supervisor is gone: the process releases its running tasks, and exits when their leases
have expired at the latest. SIGTERM: claim nothing more, finish running tasks, then exit.
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
from pathlib import Path
from typing import Any, NoReturn

import uvloop

from aaiclick.errors import EntrypointError, SettingsError, UserCodeError
from aaiclick.orchestration.loops.table_cleanup import PgCleanupWorker
from aaiclick.orchestration.process_code_version import set_code_version
from aaiclick.orchestration.runtimes.sqs_queue import SqsTaskQueue
from aaiclick.orchestration.worker.executor_factory import make_executor
from aaiclick.orchestration.worker.fork_server import ForkServer
from aaiclick.orchestration.worker.function_registration import register_functions
from aaiclick.orchestration.worker.isolation import Isolation, run_isolated_child
from aaiclick.orchestration.worker.loaded_code import LoadedCode
from aaiclick.orchestration.worker.logs import captured_output
from aaiclick.orchestration.worker.process_config import (
    EXIT_FINISHED,
    EXIT_MISCONFIGURED,
    EXIT_STUCK,
    ProcessSetup,
    WorkerConfig,
)
from aaiclick.orchestration.worker.sqs_wakeup import SqsWakeup
from aaiclick.orchestration.worker.worker_process import WorkerProcess
from aaiclick.server_addresses import PostgresEndpoint
from aaiclick.settings import get_settings

ORDER_BYTES = 16_000_000
EXIT_ORPHANED = 6
SUSPECTS_STARTED_AT_ONCE = 2
MAX_SUSPECTS = 8
"""Isolated processes for suspects: tasks that may have killed a process."""

CODE_CHECK_SECONDS = 1.0
GC_THRESHOLDS = 10_000, 20, 20
"""Collections scan what the attempts of a batch allocate; the default of 700 objects is a few attempts."""


async def run_process(fork_server: ForkServer) -> int:
    """Read the configuration and run tasks until the process is stopped or finished; returns the exit code."""
    reader = asyncio.StreamReader(limit=ORDER_BYTES)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    line = await reader.readline()
    if not line:  # the supervisor ended before it needed this process
        return EXIT_FINISHED
    order: dict[str, Any] = json.loads(line)
    setup = ProcessSetup.from_json(order["setup"])
    config = WorkerConfig.from_json(order["config"])
    set_code_version(config.code_version)
    loaded_code = LoadedCode(Path(setup.directory), setup.imports)
    executor = await make_executor(setup, threads=config.concurrency, on_import=loaded_code.record_files)
    slots = config.concurrency if config.isolate else min(config.concurrency, MAX_SUSPECTS)
    at_once = slots if config.isolate else SUSPECTS_STARTED_AT_ONCE
    isolation = Isolation(setup, slots, executor.gateway, fork_server, at_once=at_once)
    wakeup = None
    if config.wakeup_queue_url is not None:
        wakeup = SqsWakeup(SqsTaskQueue(config.wakeup_queue_url), stop_when_idle=config.drain)
    process = WorkerProcess(config, executor.gateway, executor, isolation, wakeup)
    gc.freeze()  # imported modules stay: scanning them in each collection costs time
    gc.set_threshold(*GC_THRESHOLDS)
    loop.add_signal_handler(signal.SIGTERM, process.stop)
    loop.add_signal_handler(signal.SIGINT, lambda: None)  # Ctrl-C in a terminal is handled by the supervisor
    watch = asyncio.create_task(_end_with_supervisor(reader, process, config.lease_seconds))
    code_check = asyncio.create_task(_report_changed_code(loaded_code, setup, config))
    registration = asyncio.create_task(register_functions(executor.gateway, setup, config))
    cleanup = None
    if isinstance(setup.work, PostgresEndpoint):  # the server drops tables of HTTP workers
        cleanup = PgCleanupWorker(postgres=setup.work, clickhouse=setup.clickhouse)
        await cleanup.start(delay_seconds=random.uniform(0.5, 1) * cleanup.poll_interval)  # noqa: S311  (spread)
    try:
        await process.run()
    finally:
        for background in (watch, code_check, registration):
            background.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await background
        await isolation.close()
        await executor.close()
        if cleanup is not None:
            await cleanup.stop()
    if process.has_stuck_tasks:
        _exit_process(EXIT_STUCK)  # here, since closing the loop would wait for its tasks
    return EXIT_FINISHED


async def _end_with_supervisor(reader: asyncio.StreamReader, process: WorkerProcess, lease_seconds: float) -> None:
    await reader.read()
    process.stop()
    process.release_all()
    await asyncio.sleep(lease_seconds)
    os._exit(EXIT_ORPHANED)  # the tasks could not be released, and their leases have expired


async def _report_changed_code(loaded: LoadedCode, setup: ProcessSetup, config: WorkerConfig) -> None:
    """Warn when files of the user's code change after this process has loaded them."""
    while setup.directory and not config.reload:
        await asyncio.sleep(CODE_CHECK_SECONDS)
        changed = loaded.list_changed()
        if changed:
            names = ", ".join(sorted(str(path) for path in changed))
            sys.stderr.write(  # logging goes to the logs of tasks only
                f"Warning: {names} changed after this worker loaded the code: tasks run the old one. "
                "Restart the worker, or start it with --reload.\n"
            )
            sys.stderr.flush()


def main() -> None:
    get_settings()  # read once, for all children of the fork server
    fork_server = ForkServer.fork(
        run_isolated_child
    )  # first: a process with a loop, threads or connections cannot be forked
    with captured_output():
        try:
            code = uvloop.run(run_process(fork_server))
        except (EntrypointError, SettingsError, UserCodeError) as error:
            os.write(2, f"error: {error}\n".encode())
            code = EXIT_MISCONFIGURED
    _exit_process(code)


def _exit_process(code: int) -> NoReturn:
    sys.stdout.flush()
    os._exit(code)  # does not wait for threads of tasks


if __name__ == "__main__":
    main()
