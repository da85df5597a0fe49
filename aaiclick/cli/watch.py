"""Wait for a job and show its progress.

If no running worker can take the job, a worker is started until the job has finished, so that no setup is needed.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import time
from os import cpu_count
from typing import TYPE_CHECKING

import asyncpg
import psutil

from aaiclick.cli import remote
from aaiclick.cli.jobs import format_row_rate
from aaiclick.cli.output import print_message
from aaiclick.cli.worker import build_supervisor_config
from aaiclick.errors import UnreachableError
from aaiclick.operations.actor import local_actor
from aaiclick.operations.jobs import get_job
from aaiclick.orchestration import OrchContext
from aaiclick.orchestration.worker.supervisor import Supervisor
from aaiclick.settings import get_settings
from aaiclick.store.engine import queries
from aaiclick.store.engine.explain import explain_task
from aaiclick.store.engine.workers import list_eligible_workers

if TYPE_CHECKING:
    from collections.abc import Callable

    from aaiclick.api.jobs import Job
    from aaiclick.client.endpoints import SyncEndpoints
    from aaiclick.store.connections import Connection

POLL_SECONDS = 0.1
MESSAGE_SECONDS = 5.0
RETRY_SECONDS = 0.5
EXIT_TERMINATED = 128 + signal.SIGTERM
CONNECTION_ERRORS = (
    UnreachableError,
    OSError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)


def wait_for_job(operations: SyncEndpoints, job_id: int) -> Job:
    """Wait for a job and return it. Without a remote server, this command runs a worker if there is none."""
    if remote.is_remote():
        return remote.watch_job(operations, job_id)
    return asyncio.run(_watch_local(job_id))


async def _watch_local(job_id: int) -> Job:
    async with OrchContext() as context:
        await watch_job(context, job_id)
        async with context.connection() as connection:
            return await get_job(connection, local_actor(), job_id)


async def watch_job(context: OrchContext, job_id: int) -> None:
    """Wait for a job; when interrupted, print how to follow or cancel it."""
    try:
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
    except CONNECTION_ERRORS:
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
        async with context.connection() as connection:
            rows = await list_eligible_workers(connection, job_id, alive_seconds=get_settings().worker_timeout_seconds)
    except CONNECTION_ERRORS:
        return True  # unknown; the watcher reports the outage
    hostname = socket.gethostname()
    served_queues = {
        row["queue"]
        for row in rows
        if row["pid"] is not None and (row["hostname"] != hostname or psutil.pid_exists(row["pid"]))
    }
    return served_queues == {row["queue"] for row in rows}


async def _watch_reconnecting(context: OrchContext, job_id: int) -> None:
    """Watch a job until it has finished, reconnecting after outages of PostgreSQL."""
    has_warned = False
    while True:
        try:
            async with context.connection() as connection:
                await _watch_connected(connection, job_id)
            return
        except CONNECTION_ERRORS as error:
            if not has_warned:
                print_message(f"Waiting for PostgreSQL: {str(error).partition(chr(10))[0]}")
            has_warned = True
            await asyncio.sleep(RETRY_SECONDS)


async def _watch_connected(connection: Connection, job_id: int) -> None:
    """Show a progress bar per group on a terminal, else messages."""
    if not sys.stderr.isatty():
        await _watch_without_terminal(connection, job_id)
        return
    from rich.console import Console  # slow import, only needed on a terminal
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bars:
        bar_ids: dict[str, TaskID] = {}
        waiting = WaitingReporter(bars.console.print)
        while True:
            ended = await _has_ended(connection, job_id)
            for row in await queries.load_job_progress(connection, job_id):
                label = row["name"] or "tasks"
                if label not in bar_ids:
                    bar_ids[label] = bars.add_task(label)
                failed = f" [red]{row['failed']} failed" if row["failed"] else ""
                rows = f" [dim]{format_row_rate(row['rows'], row['seconds'])} rows" if row["rows"] is not None else ""
                bars.update(
                    bar_ids[label], total=row["total"], completed=row["completed"], description=f"{label}{rows}{failed}"
                )
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
        reasons = "; ".join(reason.text.partition("\n")[0] for reason in await explain_task(connection, task["id"]))
        if reasons != self._said:
            self._said = reasons
            self._say(f"{task['type']} waits: {reasons}")


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
