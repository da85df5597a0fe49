"""Watching a job to its end.

Where no worker runs that could take it, one is started for as long as the job takes, so that nothing needs setting up.
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

from aaiclick.cli.jobs import pace
from aaiclick.cli.output import note
from aaiclick.cli.worker import make_plan
from aaiclick.errors import UnreachableError
from aaiclick.orchestration import OrchContext
from aaiclick.orchestration.worker.supervisor import Supervisor
from aaiclick.settings import get_settings
from aaiclick.store import reads
from aaiclick.store.waiting import why_waiting
from aaiclick.store.workers import who_could_claim

if TYPE_CHECKING:
    from collections.abc import Callable

    from aaiclick.store.engine import Connection

LOOK_SECONDS = 0.1
LINE_SECONDS = 5.0
AGAIN_SECONDS = 0.5
TERMINATED = 128 + signal.SIGTERM
GONE = (UnreachableError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)


async def see_through(context: OrchContext, job_id: int) -> None:
    """Watch a job to its end; who does not wait for that is told what becomes of it."""
    try:
        await _work_and_watch(context, job_id)
    except asyncio.CancelledError:
        await _say_left(context, job_id)
        raise


async def _work_and_watch(context: OrchContext, job_id: int) -> None:
    """With a worker of our own while there is no other."""
    watching = asyncio.create_task(_watch(context, job_id))
    working = asyncio.create_task(_stand_in(context, job_id))
    terminated = False

    def terminate() -> None:
        nonlocal terminated
        terminated = True
        watching.cancel()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
    try:
        await asyncio.wait({watching, working}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            await working  # a worker that cannot be: the job would wait for ever
        await watching
    except asyncio.CancelledError:
        if terminated:
            raise SystemExit(TERMINATED) from None
        raise
    finally:
        watching.cancel()
        working.cancel()
        await asyncio.gather(watching, working, return_exceptions=True)


async def _say_left(context: OrchContext, job_id: int) -> None:
    """Say what becomes of a job that is watched no more; our own worker is gone by now, and may have finished it."""
    try:
        async with context.connection() as connection:
            over = await _ended(connection, job_id)
    except GONE:
        over = False
    if over:
        note(f"Job {job_id} is over: aaiclick jobs show {job_id}")
    else:
        note(left(job_id, worked_on=await others_work(context, job_id)))


def left(job_id: int, *, worked_on: bool) -> str:
    """What becomes of a job that is watched no more, and what can be done about it."""
    fate = f"goes on: aaiclick jobs show {job_id}" if worked_on else "waits for a worker: aaiclick worker start"
    return f"Job {job_id} {fate}, or end it: aaiclick jobs cancel {job_id}"


async def _stand_in(context: OrchContext, job_id: int) -> None:
    """Work as soon as nobody else does, until cancelled."""
    while await others_work(context, job_id):  # noqa: ASYNC110  (the database tells nobody)
        await asyncio.sleep(AGAIN_SECONDS)
    supervisor = Supervisor(make_plan(processes=cpu_count() or 1))
    work = asyncio.create_task(supervisor.run())
    try:
        await asyncio.shield(work)
    finally:
        supervisor.stop()
        await work


async def others_work(context: OrchContext, job_id: int) -> bool:
    """Whether each queue of the job has a worker that lives: its row may be there for a while after it died, or for
    ever if nobody has noticed.
    """
    try:
        async with context.connection() as connection:
            found = await who_could_claim(connection, job_id, heard_seconds=get_settings().worker_timeout_seconds)
    except GONE:
        return True  # nobody can tell; who watches says so
    here = socket.gethostname()
    served = {
        row["queue"]
        for row in found
        if row["pid"] is not None and (row["hostname"] != here or psutil.pid_exists(row["pid"]))
    }
    return served == {row["queue"] for row in found}


async def _watch(context: OrchContext, job_id: int) -> None:
    """Follow a job to its end, also while PostgreSQL goes and comes: the job does."""
    told = False
    while True:
        try:
            async with context.connection() as connection:
                await _watch_over(connection, job_id)
            return
        except GONE as error:
            if not told:
                note(f"Waiting for PostgreSQL: {str(error).partition(chr(10))[0]}")
            told = True
            await asyncio.sleep(AGAIN_SECONDS)


async def _watch_over(connection: Connection, job_id: int) -> None:
    """On a terminal with a bar for each group."""
    if not sys.stderr.isatty():
        await _watch_in_lines(connection, job_id)
        return
    from rich.console import Console  # heavy: only a terminal needs it
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bars:
        known: dict[str, TaskID] = {}
        waiting = Waiting(bars.console.print)
        while True:
            ended = await _ended(connection, job_id)
            for row in await reads.job_progress(connection, job_id):
                label = row["name"] or "tasks"
                if label not in known:
                    known[label] = bars.add_task(label)
                failed = f" [red]{row['failed']} failed" if row["failed"] else ""
                rows = f" [dim]{pace(row)} rows" if row["rows"] is not None else ""
                bars.update(
                    known[label], total=row["total"], completed=row["completed"], description=f"{label}{rows}{failed}"
                )
            if ended:
                return
            await waiting.look(connection, job_id)
            await asyncio.sleep(LOOK_SECONDS)


async def _watch_in_lines(connection: Connection, job_id: int) -> None:
    """Where there is no terminal: a line now and then about what works in chunks."""
    said = time.monotonic()
    waiting = Waiting(note)
    while not await _ended(connection, job_id):
        await waiting.look(connection, job_id)
        await asyncio.sleep(LOOK_SECONDS)
        if time.monotonic() - said > LINE_SECONDS:
            said = time.monotonic()
            await _say_chunks(connection, job_id)
    await _say_chunks(connection, job_id)


class Waiting:
    """Says why nothing of a job runs, if that lasts, and again when the reason is another."""

    def __init__(self, say: Callable[[str], object]) -> None:
        self._say = say
        self._said = ""
        self._looked = time.monotonic()

    async def look(self, connection: Connection, job_id: int) -> None:
        if time.monotonic() - self._looked < LINE_SECONDS:
            return
        self._looked = time.monotonic()
        task = await reads.next_task(connection, job_id)
        if task is None:
            return
        reasons = "; ".join(reason.words.partition("\n")[0] for reason in await why_waiting(connection, task["id"]))
        if reasons != self._said:
            self._said = reasons
            self._say(f"{task['type']} waits: {reasons}")


async def _say_chunks(connection: Connection, job_id: int) -> None:
    for row in await reads.job_progress(connection, job_id):
        if row["rows"] is not None:
            note(f"{row['name']}: {row['completed']:,} of {row['total']:,} chunks, {pace(row)} rows")


async def _ended(connection: Connection, job_id: int) -> bool:
    row = await reads.get_job(connection, job_id)
    return row is None or row["completed_at"] is not None
