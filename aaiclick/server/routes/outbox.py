"""Routes of the outbox: events that are pending or could not be routed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import Query

from aaiclick.api.dead_letters import OutboxEvent, OutboxRetryRequest, OutboxState
from aaiclick.api.field_types import ChangedIdsResponse, Page
from aaiclick.operations.actor import Permission
from aaiclick.operations.pagination import make_page, read_id_cursor
from aaiclick.server.pagination import Cursor, Limit
from aaiclick.server.routes.common import changed_ids, tenant_connection, tenant_transaction, write_audit
from aaiclick.server.routing import Context, Routes
from aaiclick.store.catalog import outbox

if TYPE_CHECKING:
    import asyncpg

routes = Routes("outbox")


@routes.get("/v1/outbox", Permission.ADMIN)
async def list_outbox_events(
    context: Context,
    status: Annotated[OutboxState | None, Query()] = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Page[OutboxEvent]:
    """List Pending and Failed outbox events, newest first."""
    async with tenant_connection(context) as connection:
        rows = await outbox.list_events(
            connection,
            org_id=context.actor.org_id,
            status=status,
            before=read_id_cursor(cursor, outbox.LAST_ID),
            limit=limit + 1,
        )
    return make_page(rows, limit, _to_outbox_event, lambda row: row["id"])


@routes.post("/v1/outbox/retry", Permission.ADMIN)
async def retry_outbox_events(context: Context, body: OutboxRetryRequest) -> ChangedIdsResponse:
    """Retry failed events (at most ten thousand at a time); their jobs continue."""
    ids = None if body.ids is None else [event_id for event_id in body.ids if event_id < 2**63]
    async with tenant_transaction(context) as connection:
        retried = await outbox.retry_events(connection, ids, org_id=context.actor.org_id)
        named = None if ids is None else [str(event_id) for event_id in ids[:100]]
        await write_audit(context, connection, "events.retry", "events", {"named": named, "events": len(retried)})
    return changed_ids(retried)


def _to_outbox_event(row: asyncpg.Record) -> OutboxEvent:
    return OutboxEvent(**{name: row[name] for name in OutboxEvent.model_fields})
