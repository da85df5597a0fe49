"""List pending and failed events, and retry failed ones.

Routed events are deleted (`event_routing`), so the outbox holds nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick.errors import ConflictError, NotFoundError
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.postgres_connections import Connection

LAST_ID = 2**63 - 1
RETRY_BATCH_SIZE = 10_000


async def list_events(
    connection: Connection,
    *,
    org_id: UUID | None = None,
    status: str | None = None,
    before: int = LAST_ID,
    limit: int = 100,
) -> list[asyncpg.Record]:
    """List events, newest first; the last id is the `before` of the next page."""
    return await connection.fetch(statement("list_events"), org_id, status, before, limit)


async def count_events_by_status(connection: Connection, org_id: UUID | None = None) -> dict[str, int]:
    """Numbers of pending and failed events."""
    rows = await connection.fetch(statement("count_events_by_status"), org_id)
    return {"Pending": 0, "Failed": 0} | {row["status"]: row["count"] for row in rows}


async def count_events_by_org(connection: Connection, ids: Sequence[int]) -> dict[UUID, int]:
    """Organisation → number of these events."""
    rows = await connection.fetch(statement("count_events_by_org"), list(ids))
    return {row["org_id"]: row["count"] for row in rows}


async def retry_events(
    connection: Connection, ids: Sequence[int] | None = None, *, org_id: UUID | None = None
) -> list[int]:
    """Retry failed events: `ids`, or all (at most RETRY_BATCH_SIZE); their jobs wait for them again.

    Runs in the caller's transaction. Raises NotFoundError if a named event has not failed, ConflictError if its job was
    cancelled.
    """
    named = None if ids is None else sorted(set(ids))
    rows = await connection.fetch(statement("lock_failed_events"), org_id, named, RETRY_BATCH_SIZE)
    missing = sorted(set(named or ()) - {row["id"] for row in rows})
    if missing:
        raise NotFoundError(f"There is no failed event {missing[0]}.", remedy="'aaiclick events ls' lists them.")
    cancelled = [row["id"] for row in rows if row["cancelled"]]
    if cancelled and named is not None:
        raise ConflictError(
            f"The job of event {cancelled[0]} was cancelled.", remedy="Start the source again to have its data routed."
        )
    retried = [row["id"] for row in rows if not row["cancelled"]]
    if retried:
        await connection.fetchval(statement("retry_events"), retried)
    return retried
