"""Tasks that wait for a runtime, and what it was told of them.

What is to be told is read from the rows of the tasks: a ready task of a queue `runtime:NAME` is all it takes, whatever
made it ready (an event, a retry, a resume, a redrive). So nothing is lost when whoever tells it dies: the next one
finds the same rows. That a runtime was told is noted (`dispatches`) before it is: a crash in between costs a while, and
telling twice changes nothing, since it is the claim that decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick import faults
from aaiclick.store.leases import Claim
from aaiclick.store.statements import statement
from aaiclick.store.words import DEFAULT_QUEUE, RUNTIME_QUEUE

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

FORGOTTEN_AT_ONCE = 1_000


def queue_of(runtime: str) -> str:
    """The queue of a runtime's tasks; the pool's is everybody's."""
    return DEFAULT_QUEUE if runtime == "pool" else RUNTIME_QUEUE + runtime


async def org_ids(connection: Connection, slugs: Sequence[str]) -> dict[str, UUID]:
    rows = await connection.fetch(statement("org_slugs"), list(slugs))
    return {row["slug"]: row["id"] for row in rows}


async def take(
    connection: Connection,
    queue: str,
    *,
    limit: int,
    again_seconds: float,
    org_id: UUID | None = None,
    without: Sequence[UUID] = (),
    now: datetime | None = None,
) -> list[int]:
    """Tasks that a runtime is to be told of now, noted as told."""
    async with faults.statement("take_dispatches"):
        rows = await connection.fetch(
            statement("take_dispatches"), queue, limit, org_id, list(without), again_seconds, now
        )
    return [row["task_id"] for row in rows]


async def note_failure(connection: Connection, task_ids: Sequence[int], error: str) -> None:
    """Telling failed; it is tried again when it would have been told again."""
    async with faults.statement("fail_dispatches"):
        await connection.execute(statement("fail_dispatches"), list(task_ids), error)


async def note_refusal(connection: Connection, claim: Claim, error: str) -> None:
    """A runtime did not take a task that was claimed for it and given back."""
    lease = claim.lease
    async with faults.statement("note_dispatch"):
        await connection.execute(statement("note_dispatch"), lease.task_id, claim.org_id, lease.attempt, error)


async def forget(connection: Connection) -> None:
    """Forget what was told of tasks that have gone on."""
    async with faults.statement("forget_dispatches"):
        await connection.execute(statement("forget_dispatches"), FORGOTTEN_AT_ONCE)
