"""Cancel jobs and tasks.

Waiting tasks become CANCELLED at once. Leased tasks are marked, and from then on can only become CANCELLED: a
completion that arrives later is recorded as a cancelled attempt, so an acknowledged cancellation is never undone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from aaiclick import failpoints
from aaiclick.errors import NotFoundError
from aaiclick.store.deadlock_retry import retry_on_deadlock
from aaiclick.store.engine.claims import notify_ready
from aaiclick.store.engine.concurrency_keys import admit_held_tasks
from aaiclick.store.engine.incidents import record_job_timeout
from aaiclick.store.engine.propagate import Progress, propagate, propagate_to_handlers, update_jobs
from aaiclick.store.enums import Cancellation
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.postgres_connections import Connection


async def cancel_job(
    connection: Connection, job_id: int, *, error: str | None = None, now: datetime | None = None
) -> Cancellation:
    """Cancel a job; with `error` it becomes FAILED with that error instead.

    REQUESTED while tasks of it are leased or its handlers run: it ends with the last of them. A second request cancels
    the handlers and what they have added too. A timeout (`error`) cancels neither.
    """

    async def cancel_in_transaction() -> Cancellation:
        async with failpoints.transaction(connection, "cancel_job"):
            return await _cancel_job(connection, job_id, error, now)

    return await retry_on_deadlock(cancel_in_transaction)


async def _cancel_job(connection: Connection, job_id: int, error: str | None, now: datetime | None) -> Cancellation:
    """Cancel a job and its children within a transaction."""
    await connection.execute(statement("lock_job"), job_id)
    head = await connection.fetchrow(statement("get_job_head"), job_id)
    if head is None:
        raise NotFoundError(f"There is no job {job_id}.", remedy="'aaiclick jobs ls' lists the jobs there are.")
    if head["ended"]:
        return Cancellation.OVER
    if head["cancelled"] and error is not None:  # another worker, or a user, was first: the handlers run
        return Cancellation.REQUESTED
    waiting, live = await _cancel_tasks_of_job(connection, job_id, head["cancelled"], now)
    if not waiting and not live and error is None:  # handlers alone are left: the request would have no effect
        waiting, live = await _cancel_tasks_of_job(connection, job_id, True, now)
    # After the requests: an attempt that submits a child at the same time is refused, or its child is found.
    await cancel_children(connection, jobs=[job_id], now=now)
    await connection.execute(statement("cancel_groups"), job_id, now)
    if await connection.fetchrow(statement("request_job_cancellation"), job_id, error, now) is None:
        return Cancellation.OVER
    progress = Progress(
        keys={(row["org_id"], row["concurrency_key"]) for row in waiting},
        cancelled=Counter({job_id: len(waiting)}),
        ended={row["id"] for row in waiting if row["has_dependents"]},
    )
    await propagate_to_handlers(connection, (), progress, now)
    progress.ready |= await admit_held_tasks(connection, progress.keys)
    await notify_ready(connection, progress.ready)
    statuses = await update_jobs(connection, completed=progress.completed, cancelled=progress.cancelled, now=now)
    if error is not None:
        await record_job_timeout(connection, head["org_id"], job_id, head["name"], error, now)
    return Cancellation.REQUESTED if statuses[job_id] in ("PENDING", "RUNNING") else Cancellation.CANCELLED


async def cancel_children(
    connection: Connection, *, jobs: Sequence[int] = (), tasks: Sequence[int] = (), now: datetime | None
) -> None:
    """Cancel the unfinished child jobs of jobs and tasks, in the transaction of their parents."""
    for row in await connection.fetch(statement("list_unfinished_children"), list(jobs), list(tasks)):
        await _cancel_job(connection, row["id"], None, now)


async def _cancel_tasks_of_job(
    connection: Connection, job_id: int, with_handlers: bool, now: datetime | None
) -> tuple[list[asyncpg.Record], list[asyncpg.Record]]:
    """Cancel waiting tasks and request the cancellation of leased ones; returns both."""
    waiting = await connection.fetch(statement("cancel_waiting_tasks"), job_id, [], now, with_handlers)
    return waiting, await connection.fetch(statement("request_task_cancellation"), job_id, [], now, with_handlers)


async def cancel_tasks(
    connection: Connection, task_ids: Sequence[int], *, now: datetime | None = None
) -> dict[int, Cancellation]:
    """Cancel tasks and the dependents that can no longer run."""

    async def cancel_in_transaction() -> dict[int, Cancellation]:
        async with failpoints.transaction(connection, "cancel_tasks"):
            for row in await connection.fetch(statement("list_jobs_of_tasks"), list(task_ids)):
                await connection.execute(statement("lock_job"), row["job_id"])
            ended = await connection.fetch(statement("cancel_waiting_tasks"), None, sorted(task_ids), now, True)
            live = await connection.fetch(statement("request_task_cancellation"), None, sorted(task_ids), now, True)
            await cancel_children(connection, tasks=[row["id"] for row in (*ended, *live)], now=now)
            await propagate(connection, ended, now)
            answers = dict.fromkeys(task_ids, Cancellation.OVER)
            answers.update((row["id"], Cancellation.CANCELLED) for row in ended)
            answers.update((row["id"], Cancellation.REQUESTED) for row in live)
            return answers

    return await retry_on_deadlock(cancel_in_transaction)
