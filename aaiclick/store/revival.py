"""Starting over: retry of what failed, redrive of dead letters, clearing a task and everything after it.

A failure changed no counter (see `plan`), so what comes back finds them right. What was cancelled because of a task
that comes back comes back too, unless something else still stands in its way: then it is cancelled again, with that as
the cause.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick import faults
from aaiclick.errors import NotFoundError, SubmitError
from aaiclick.store.claims import notify_ready
from aaiclick.store.clock import clock
from aaiclick.store.deadlocks import again
from aaiclick.store.inputs import check_inputs
from aaiclick.store.slots import admit
from aaiclick.store.statements import statement
from aaiclick.store.tables import release_results

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.engine import Connection

AT_ONCE = 10_000
"""Dead letters in one transaction."""


async def retry_failed_tasks(
    connection: Connection, job_id: int, *, cancelled: bool = False, now: datetime | None = None
) -> set[int]:
    """Start over what failed in a job (and what was cancelled by hand, if asked); returns everything that came back."""

    async def work() -> set[int]:
        async with faults.transaction(connection, "retry"):
            await connection.execute(statement("lock_job"), job_id)
            rows = await connection.fetch(statement("unsuccessful"), job_id)
            if not rows and await connection.fetchrow(statement("job_head"), job_id) is None:
                raise NotFoundError(f"There is no job {job_id}.", remedy="'aaiclick jobs ls' lists the jobs there are.")
            roots = [row["id"] for row in rows if cancelled or row["status"] != "CANCELLED"]
            return await _revive(connection, job_id, roots, now)

    return await again(work)


async def redrive(
    connection: Connection,
    *,
    task_ids: Sequence[int] | None = None,
    org_id: UUID | None = None,
    type: str | None = None,  # noqa: A002  (the column's name)
    fingerprint: str | None = None,
    limit: int | None = AT_ONCE,
    per_second: float | None = None,
    behind: int = 0,
    now: datetime | None = None,
) -> set[int]:
    """Start over dead letters: these, or all that match, oldest first; `per_second` spreads them over time, behind so
    many others. Without a limit it goes on, some at a time, until none is left that was dead when it began.
    """
    ids = None if task_ids is None else list(task_ids)
    began = await clock(connection, now) if limit is None else None
    spacing = 1.0 / per_second if per_second else 0.0
    begun = behind
    back: set[int] = set()
    before: set[int] = set()
    while rows := await connection.fetch(
        statement("dead_letters"), org_id, type, fingerprint, ids, AT_ONCE if limit is None else limit, began
    ):
        found = {row["id"] for row in rows}
        if found == before:  # what does not come back would be found for ever
            break
        before = found
        for job_id, roots in _by_job(rows).items():
            back |= await _redrive(connection, job_id, roots, now, spacing, begun)
            begun += len(roots)
        if limit is not None:
            break
    return back


def _by_job(rows: Sequence[asyncpg.Record]) -> dict[int | None, list[int]]:
    by_job: dict[int | None, list[int]] = defaultdict(list)
    for row in rows:
        by_job[row["job_id"]].append(row["id"])
    return by_job


async def _redrive(
    connection: Connection,
    job_id: int | None,
    roots: Sequence[int],
    now: datetime | None,
    spacing: float,
    behind: int,
) -> set[int]:
    async def work() -> set[int]:
        async with faults.transaction(connection, "redrive"):
            if job_id is not None:
                await connection.execute(statement("lock_job"), job_id)
            dead = {row["id"] for row in await connection.fetch(statement("still_dead"), roots)}
            return await _revive(connection, job_id, [root for root in roots if root in dead], now, spacing, behind)

    return await again(work)


async def discard(
    connection: Connection,
    *,
    task_ids: Sequence[int] | None = None,
    org_id: UUID | None = None,
    type: str | None = None,  # noqa: A002  (the column's name)
    fingerprint: str | None = None,
    limit: int | None = AT_ONCE,
) -> set[int]:
    """Give dead letters up: these, or all that match. They have failed for good; their jobs do not change. Without a
    limit it goes on, some at a time, until none is left.
    """
    ids = None if task_ids is None else list(task_ids)
    at_once = AT_ONCE if limit is None else limit
    gone: set[int] = set()
    while rows := await connection.fetch(statement("discard"), org_id, type, fingerprint, ids, at_once):
        gone |= {row["id"] for row in rows}
        if limit is not None:
            break
    return gone


async def _revive(
    connection: Connection,
    job_id: int | None,
    roots: Sequence[int],
    now: datetime | None,
    spacing: float = 0.0,
    behind: int = 0,
) -> set[int]:
    if not roots:
        return set()
    rows = await connection.fetch(statement("revive"), list(roots), job_id, spacing, now, behind)
    if job_id is not None:
        await connection.execute(statement("unmark_groups"), job_id, [*roots, job_id])
        await _doom_again(connection, job_id, now)
    await _make_ready(connection, rows)
    if job_id is not None:
        await connection.execute(statement("recount_job"), job_id, now)
    return {row["id"] for row in rows}


async def clear(
    connection: Connection, task_id: int, also: Sequence[int] = (), *, now: datetime | None = None
) -> set[int]:
    """Run a task and everything after it once more, with others of its job if need be; returns the ids. Whoever is at
    work on one of them loses it. Refused if something that they read is there no more.
    """
    cleared = [task_id, *also]

    async def work() -> set[int]:
        async with faults.transaction(connection, "clear"):
            jobs = await connection.fetch(statement("task_jobs"), cleared)
            if len(jobs) > 1:
                raise SubmitError("These tasks are not of one job.", remedy="Clear those of each job by themselves.")
            job_id = jobs[0]["job_id"] if jobs else None
            if job_id is not None:
                await connection.execute(statement("lock_job"), job_id)
            nodes = [row for each in cleared for row in await connection.fetch(statement("downstream"), each)]
            tasks = sorted({row["id"] for row in nodes if row["is_task"]})
            if job_id is not None:
                await check_inputs(connection, job_id, cleared, tasks)
            done = await connection.execute(statement("reset_tasks"), tasks, now)
            if done == "UPDATE 0":
                raise NotFoundError(f"There is no task {task_id}.", remedy="'aaiclick tasks ls' lists them.")
            await release_results(connection, tasks)
            if job_id is None:
                rows = await connection.fetch(statement("unblock"), task_id)
                await _make_ready(connection, rows)
            else:
                await recount(connection, job_id, tasks, now)
            return set(tasks)

    return await again(work)


async def recount(connection: Connection, job_id: int, tasks: Sequence[int], now: datetime | None) -> None:
    """Bring all counters of a job in line with its tasks, of which `tasks` have just started over."""
    await connection.execute(statement("unmark_groups"), job_id, list(tasks))
    while await connection.fetch(statement("recount_groups"), job_id, now):
        pass
    rows = await connection.fetch(statement("recount_tasks"), job_id, now)
    await _doom_again(connection, job_id, now)
    await _make_ready(connection, rows)
    await connection.execute(statement("recount_job"), job_id, now)


async def _doom_again(connection: Connection, job_id: int, now: datetime | None) -> None:
    for row in await connection.fetch(statement("unsuccessful"), job_id):
        await connection.fetchval(statement("doom"), row["id"], now)


async def _make_ready(connection: Connection, rows: Sequence[asyncpg.Record]) -> None:
    ready = {row["queue"] for row in rows if row["readiness"] == "READY"}
    ready |= await admit(
        connection, ((row["org_id"], row["concurrency_key"]) for row in rows if row["readiness"] == "HELD")
    )
    await notify_ready(connection, ready)
