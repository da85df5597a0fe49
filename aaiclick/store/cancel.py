"""Cancelling: what waits ends at once, what is leased is asked to end and has the last word."""

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

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection


async def cancel_job(
    connection: Connection, job_id: int, *, error: str | None = None, now: datetime | None = None
) -> bool:
    """End a job; with `error` it has FAILED because of that, else it is CANCELLED. False if it was over already.

    It is over when its last running task has ended, at once if there is none.
    """

    async def work() -> bool:
        async with faults.transaction(connection, "cancel_job"):
            await connection.execute(statement("lock_job"), job_id)
            head = await connection.fetchrow(statement("job_head"), job_id)
            if head is None:
                raise NotFoundError(f"There is no job {job_id}.", remedy="'aaiclick jobs ls' lists the jobs there are.")
            if head["ended"]:
                return False
            waiting = await connection.fetch(statement("cancel_waiting"), job_id, [], now)
            await connection.fetch(statement("cancel_live"), job_id, [], now)
            await connection.execute(statement("cancel_groups"), job_id, now)
            await admit(connection, ((row["org_id"], row["concurrency_key"]) for row in waiting))
            if await connection.fetchrow(statement("request_cancel"), job_id, error, now) is None:
                return False
            await settle(connection, cancelled=Counter({job_id: len(waiting)}), now=now)
            return True

    return await again(work)


async def cancel_tasks(connection: Connection, task_ids: Sequence[int], *, now: datetime | None = None) -> set[int]:
    """Cancel tasks, and with them what can no longer run; returns those that were not over yet."""

    async def work() -> set[int]:
        async with faults.transaction(connection, "cancel_tasks"):
            for row in await connection.fetch(statement("task_jobs"), list(task_ids)):
                await connection.execute(statement("lock_job"), row["job_id"])
            ended = await connection.fetch(statement("cancel_waiting"), None, sorted(task_ids), now)
            asked = await connection.fetch(statement("cancel_live"), None, sorted(task_ids), now)
            await propagate(connection, ended, now)
            return {row["id"] for row in (*ended, *asked)}

    return await again(work)
