"""Wait for a job and show its progress.

If no running worker can take the job, a worker is started until the job has finished, so that no setup is needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
import time
from os import cpu_count
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import psutil

from aaiclick.cli import remote
from aaiclick.cli.failure_report import report_failure
from aaiclick.cli.jobs import format_row_rate
from aaiclick.cli.output import print_message
from aaiclick.cli.waiting_reason_text import describe_waiting, without_countdown
from aaiclick.cli.worker import build_supervisor_config
from aaiclick.code_version import read_code_version
from aaiclick.operations.actor import local_actor
from aaiclick.operations.jobs import get_job
from aaiclick.operations.row_conversion import to_group_progress
from aaiclick.orchestration import OrchContext
from aaiclick.orchestration.worker.supervisor import Supervisor
from aaiclick.settings import get_logs_dir, get_settings
from aaiclick.store.engine import queries
from aaiclick.store.engine.explain_task import explain_task
from aaiclick.store.engine.workers import list_eligible_workers
from aaiclick.store.postgres_connections import OUTAGE_ERRORS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aaiclick.api.jobs import Job
    from aaiclick.client.endpoints import SyncEndpoints
    from aaiclick.store.postgres_connections import Connection

POLL_SECONDS = 0.1
MESSAGE_SECONDS = 5.0
RETRY_SECONDS = 0.5
EXIT_TERMINATED = 128 + signal.SIGTERM


def wait_for_job(operations: SyncEndpoints, job_id: int) -> Job:
    """Wait for a job and return it. Without a remote server, this command runs a worker if there is none."""
    if remote.is_remote():
        return remote.watch_job(operations, job_id)
    return asyncio.run(_watch_local(job_id))


def wait_for_runs(operations: SyncEndpoints, job_ids: Sequence[int]) -> int:
    """Wait for the jobs of a backfill one after the other, with a report of each failed one; returns their number."""
    failed = 0
    for number, job_id in enumerate(job_ids, 1):
        print_message(f"Run {number} of {len(job_ids)}: job {job_id}")
        job = wait_for_job(operations, job_id)
        failed += job.status != "COMPLETED"
        report_failure(job)
    return failed


async def _watch_local(job_id: int) -> Job:
    async with OrchContext() as context:
        await watch_job(context, job_id)
        async with context.connection() as connection:
            return await get_job(connection, local_actor(), job_id)


async def watch_job(context: OrchContext, job_id: int) -> None:
    """Wait for a job; when interrupted, print how to follow or cancel it."""
    try:
        await warn_about_other_code(context, job_id)
        await _watch_with_worker(context, job_id)
    except asyncio.CancelledError:
        await _print_unwatched(context, job_id)
        raise


async def _watch_with_worker(context: OrchContext, job_id: int) -> None:
    """Watch the job, and run a worker in this process group while there is no other."""
    watching = asyncio.create_task(_watch_reconnecting(context, job_id))
    working = asyncio.create_task(_run_worker_if_needed(context, job_id))
    terminated = False

    def terminate() -> None:
        nonlocal terminated
        terminated = True
        watching.cancel()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
    try:
        await asyncio.wait({watching, working}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            await working  # the worker cannot run: the job would wait for ever
        await watching
    except asyncio.CancelledError:
        if terminated:
            raise SystemExit(EXIT_TERMINATED) from None
        raise
    finally:
        watching.cancel()
        working.cancel()
        await asyncio.gather(watching, working, return_exceptions=True)


async def _print_unwatched(context: OrchContext, job_id: int) -> None:
    """Print the state of a job that is no longer watched; the worker of this command has stopped."""
    try:
        async with context.connection() as connection:
            is_over = await _has_ended(connection, job_id)
    except OUTAGE_ERRORS:
        is_over = False
    if is_over:
        print_message(f"Job {job_id} has finished. Show it with: aaiclick jobs show {job_id}")
    else:
        print_message(describe_unwatched(job_id, has_worker=await has_other_workers(context, job_id)))


def describe_unwatched(job_id: int, *, has_worker: bool) -> str:
    """Describe how a job that is no longer watched continues, and how to follow or cancel it."""
    outlook = f"continues (aaiclick jobs show {job_id})" if has_worker else "waits for a worker (aaiclick worker start)"
    return f"Job {job_id} {outlook}. Cancel it with: aaiclick jobs cancel {job_id}"


async def _run_worker_if_needed(context: OrchContext, job_id: int) -> None:
    """Run a worker as soon as no other worker serves the job, until cancelled."""
    while await has_other_workers(context, job_id):  # noqa: ASYNC110  (there is no notification)
        await asyncio.sleep(RETRY_SECONDS)
    supervisor = Supervisor(build_supervisor_config(processes=cpu_count() or 1))
    run_task = asyncio.create_task(supervisor.run())
    try:
        await asyncio.shield(run_task)
    finally:
        supervisor.stop()
        await run_task


async def has_other_workers(context: OrchContext, job_id: int) -> bool:
    """Whether each queue of the job has a live worker; workers of this host must have a running process."""
    try:
        rows = await _list_workers(context, job_id)
    except OUTAGE_ERRORS:
        return True  # unknown; the watcher reports the outage
    served_queues = {row["queue"] for row in rows if _is_alive(row)}
    return served_queues == {row["queue"] for row in rows}


async def _list_workers(context: OrchContext, job_id: int) -> list[asyncpg.Record]:
    async with context.connection() as connection:
        return await list_eligible_workers(connection, job_id, alive_seconds=get_settings().worker_timeout_seconds)


def _is_alive(row: asyncpg.Record) -> bool:
    pid: int | None = row["pid"]
    return pid is not None and (row["hostname"] != socket.gethostname() or psutil.pid_exists(pid))


async def warn_about_other_code(context: OrchContext, job_id: int) -> None:
    """Warn if workers that can run the job were started with other contents of modules that are here too."""
    with contextlib.suppress(*OUTAGE_ERRORS):
        rows = [row for row in await _list_workers(context, job_id) if _is_alive(row) and row["code_modules"]]
        if not rows:
            return
        settings = get_settings()
        ignored = (settings.home, get_logs_dir(settings))
        version = await asyncio.to_thread(read_code_version, Path.cwd(), ignored)
        for (hostname, pid), modules in {(row["hostname"], row["pid"]): row["code_modules"] for row in rows}.items():
            differences = version.list_differences(modules)
            if differences:
                print_message(
                    f"Warning: the worker with pid {pid} on {hostname} was started with another version of "
                    f"{', '.join(differences)}; it may run that code. Restart it, or start it with --reload."
                )


async def _watch_reconnecting(context: OrchContext, job_id: int) -> None:
    """Watch a job until it has finished, reconnecting after outages of PostgreSQL."""
    has_warned = False
    while True:
        try:
            async with context.connection() as connection:
                await _watch_connected(connection, job_id)
            return
        except OUTAGE_ERRORS as error:
            if not has_warned:
                print_message(f"Waiting for PostgreSQL: {str(error).partition(chr(10))[0]}")
            has_warned = True
            await asyncio.sleep(RETRY_SECONDS)


async def _watch_connected(connection: Connection, job_id: int) -> None:
    """Show a progress bar per group on a terminal, else messages."""
    if not sys.stderr.isatty():
        await _watch_without_terminal(connection, job_id)
        return
    with remote.show_progress() as update:
        waiting = WaitingReporter(print_message)
        while True:
            ended = await _has_ended(connection, job_id)
            if update is not None:
                update([to_group_progress(row) for row in await queries.load_job_progress(connection, job_id)])
            if ended:
                return
            await waiting.look(connection, job_id)
            await asyncio.sleep(POLL_SECONDS)


async def _watch_without_terminal(connection: Connection, job_id: int) -> None:
    """Print the progress of chunked groups from time to time."""
    printed_at = time.monotonic()
    waiting = WaitingReporter(print_message)
    while not await _has_ended(connection, job_id):
        await waiting.look(connection, job_id)
        await asyncio.sleep(POLL_SECONDS)
        if time.monotonic() - printed_at > MESSAGE_SECONDS:
            printed_at = time.monotonic()
            await _print_chunks(connection, job_id)
    await _print_chunks(connection, job_id)


class WaitingReporter:
    """Prints why no task of a job runs, whenever the reason changes."""

    def __init__(self, say: Callable[[str], object]) -> None:
        self._say = say
        self._said = ""
        self._looked = time.monotonic()

    async def look(self, connection: Connection, job_id: int) -> None:
        if time.monotonic() - self._looked < MESSAGE_SECONDS:
            return
        self._looked = time.monotonic()
        task = await queries.find_next_task(connection, job_id)
        if task is None:
            return
        reasons = await explain_task(connection, task["id"])
        text = describe_waiting(task["type"], reasons, task["error"])
        if without_countdown(text) != self._said:
            self._said = without_countdown(text)
            self._say(text)


async def _print_chunks(connection: Connection, job_id: int) -> None:
    for row in await queries.load_job_progress(connection, job_id):
        if row["rows"] is not None:
            print_message(
                f"{row['name']}: {row['completed']:,} of {row['total']:,} chunks, "
                f"{format_row_rate(row['rows'], row['seconds'])} rows"
            )


async def _has_ended(connection: Connection, job_id: int) -> bool:
    row = await queries.get_job(connection, job_id)
    return row is None or row["completed_at"] is not None
