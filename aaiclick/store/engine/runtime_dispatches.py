"""Dispatches of ready tasks to external runtimes.

Tasks to dispatch are the ready tasks of the queues `runtime:NAME`, so a dispatcher that dies loses nothing. A dispatch
is recorded (table `dispatches`) before the runtime is notified: a crash in between only delays the task, and a second
notification is harmless, since the runtime claims the task.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick import failpoints
from aaiclick.store.engine.leases_and_outcomes import Claim
from aaiclick.store.enums import DEFAULT_QUEUE, RUNTIME_QUEUE
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

DELETE_BATCH_SIZE = 1_000


def runtime_queue(runtime: str) -> str:
    """The queue of a runtime's tasks; the pool uses the default queue."""
    return DEFAULT_QUEUE if runtime == "pool" else RUNTIME_QUEUE + runtime


async def load_org_ids(connection: Connection, slugs: Sequence[str]) -> dict[str, UUID]:
    rows = await connection.fetch(statement("load_org_ids"), list(slugs))
    return {row["slug"]: row["id"] for row in rows}


async def take_dispatches(
    connection: Connection,
    queue: str,
    *,
    limit: int,
    repeat_seconds: float,
    org_id: UUID | None = None,
    excluded_org_ids: Sequence[UUID] = (),
    now: datetime | None = None,
) -> list[int]:
    """Tasks to dispatch to a runtime now; recorded as dispatched."""
    async with failpoints.statement("take_dispatches"):
        rows = await connection.fetch(
            statement("take_dispatches"), queue, limit, org_id, list(excluded_org_ids), repeat_seconds, now
        )
    return [row["task_id"] for row in rows]


async def record_dispatch_failure(connection: Connection, task_ids: Sequence[int], error: str) -> None:
    """Record that a dispatch failed; it is repeated after the usual interval."""
    async with failpoints.statement("record_dispatch_failure"):
        await connection.execute(statement("record_dispatch_failure"), list(task_ids), error)


async def record_dispatch_refusal(connection: Connection, claim: Claim, error: str) -> None:
    """Record that a runtime refused a task, which was claimed for it and then released."""
    lease = claim.lease
    async with failpoints.statement("record_dispatch_refusal"):
        await connection.execute(
            statement("record_dispatch_refusal"), lease.task_id, claim.org_id, lease.attempt, error
        )


async def delete_finished_dispatches(connection: Connection) -> None:
    """Delete dispatches of tasks that are no longer ready."""
    async with failpoints.statement("delete_finished_dispatches"):
        await connection.execute(statement("delete_finished_dispatches"), DELETE_BATCH_SIZE)
