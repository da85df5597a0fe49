"""Cancelling jobs and tasks.

Waiting tasks become CANCELLED at once. Leased tasks are marked, and from then on can only become CANCELLED: a
completion that arrives later is recorded as a cancelled attempt, so an acknowledged cancellation is never undone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from aaiclick import faults
from aaiclick.errors import NotFoundError
from aaiclick.store.deadlocks import again
from aaiclick.store.propagate import propagate, settle
from aaiclick.store.slots import admit
from aaiclick.store.statements import statement
from aaiclick.store.words import Cancellation

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection


async def cancel_job(
    connection: Connection, job_id: int, *, error: str | None = None, now: datetime | None = None
) -> Cancellation:
    """Cancel a job; with `error` it becomes FAILED with that error instead.

    REQUESTED while tasks of it are leased: it ends with the last of them.
    """

    async def work() -> Cancellation:
        async with faults.transaction(connection, "cancel_job"):
            await connection.execute(statement("lock_job"), job_id)
            head = await connection.fetchrow(statement("job_head"), job_id)
            if head is None:
                raise NotFoundError(f"There is no job {job_id}.", remedy="'aaiclick jobs ls' lists the jobs there are.")
            if head["ended"]:
                return Cancellation.OVER
            waiting = await connection.fetch(statement("cancel_waiting"), job_id, [], now)
            await connection.fetch(statement("cancel_live"), job_id, [], now)
            await connection.execute(statement("cancel_groups"), job_id, now)
            await admit(connection, ((row["org_id"], row["concurrency_key"]) for row in waiting))
            if await connection.fetchrow(statement("request_cancel"), job_id, error, now) is None:
                return Cancellation.OVER
            statuses = await settle(connection, cancelled=Counter({job_id: len(waiting)}), now=now)
            return Cancellation.REQUESTED if statuses[job_id] in ("PENDING", "RUNNING") else Cancellation.CANCELLED

    return await again(work)


async def cancel_tasks(
    connection: Connection, task_ids: Sequence[int], *, now: datetime | None = None
) -> dict[int, Cancellation]:
    """Cancel tasks, and with them the tasks that can no longer run."""

    async def work() -> dict[int, Cancellation]:
        async with faults.transaction(connection, "cancel_tasks"):
            for row in await connection.fetch(statement("task_jobs"), list(task_ids)):
                await connection.execute(statement("lock_job"), row["job_id"])
            ended = await connection.fetch(statement("cancel_waiting"), None, sorted(task_ids), now)
            live = await connection.fetch(statement("cancel_live"), None, sorted(task_ids), now)
            await propagate(connection, ended, now)
            answers = dict.fromkeys(task_ids, Cancellation.OVER)
            answers.update((row["id"], Cancellation.CANCELLED) for row in ended)
            answers.update((row["id"], Cancellation.REQUESTED) for row in live)
            return answers

    return await again(work)
