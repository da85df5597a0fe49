"""Jobs and tasks that an actor sees."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from aaiclick.api.field_types import MAX_ID, ChangedIdsResponse
from aaiclick.errors import NotFoundError
from aaiclick.store.engine import queries

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.operations.actor import Actor
    from aaiclick.store.postgres_connections import Connection

MAX_LISTED_IDS = 1_000


async def find_job(connection: Connection, actor: Actor, job_id: int) -> asyncpg.Record:
    """A job that the actor sees; a job of another org does not exist."""
    row = await queries.get_job(connection, job_id)
    if row is None or not actor.sees(row["org_id"]):
        raise NotFoundError(f"There is no job {job_id}.", remedy="GET /v1/jobs lists jobs.")
    return row


async def find_task(connection: Connection, actor: Actor, task_id: int) -> asyncpg.Record:
    """A task that the actor sees; a task of another org does not exist."""
    row = await queries.get_task(connection, task_id)
    if row is None or not actor.sees(row["org_id"]):
        raise NotFoundError(
            f"There is no task {task_id}.",
            remedy="GET /v1/tasks lists tasks.",
        )
    return row


def storable_ids(ids: Iterable[int] | None) -> list[int] | None:
    """Ids that a bigint can hold; others name nothing."""
    return None if ids is None else [item_id for item_id in ids if item_id <= MAX_ID]


def changed_ids(ids: Iterable[int]) -> ChangedIdsResponse:
    """The number of changed items and the first thousand ids."""
    ordered = sorted(ids)
    return ChangedIdsResponse(count=len(ordered), ids=ordered[:MAX_LISTED_IDS])
