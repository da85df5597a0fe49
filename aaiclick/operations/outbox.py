"""Operations on the outbox: events of datasets that are pending or could not be routed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aaiclick.api.dead_letters import OutboxEvent, OutboxRetryRequest, OutboxState
from aaiclick.api.field_types import ChangedIdsResponse, Page
from aaiclick.operations.actor import Actor, Permission
from aaiclick.operations.job_and_task_lookups import changed_ids, storable_ids
from aaiclick.operations.operation import operation, write_audit
from aaiclick.operations.pagination import make_page, read_id_cursor
from aaiclick.operations.row_conversion import from_row
from aaiclick.store.catalog import outbox

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

MAX_AUDITED_IDS = 100


@operation(Permission.ADMIN, changes=False)
async def list_outbox_events(
    connection: Connection,
    actor: Actor,
    *,
    status: OutboxState | None = None,
    cursor: str | None = None,
    limit: int = 100,
) -> Page[OutboxEvent]:
    """List pending and failed events, newest first."""
    before = read_id_cursor(cursor, outbox.LAST_ID)
    rows = await outbox.list_events(
        connection, org_id=actor.visible_org_id, status=status, before=before, limit=limit + 1
    )
    return make_page(rows, limit, lambda row: from_row(OutboxEvent, row), lambda row: row["id"])


@operation(Permission.ADMIN)
async def retry_outbox_events(
    connection: Connection, actor: Actor, selection: OutboxRetryRequest
) -> ChangedIdsResponse:
    """Retry failed events, at most ten thousand at a time; their jobs continue."""
    ids = storable_ids(selection.ids)
    retried = await outbox.retry_events(connection, ids, org_id=actor.visible_org_id)
    counts = (
        {actor.org_id: len(retried)}
        if actor.visible_org_id is not None
        else await outbox.count_events_by_org(connection, retried)
    )
    named = None if ids is None else [str(event_id) for event_id in ids[:MAX_AUDITED_IDS]]
    for org_id, count in counts.items():
        await write_audit(connection, actor, "events.retry", "events", {"named": named, "events": count}, org_id=org_id)
    return changed_ids(retried)
