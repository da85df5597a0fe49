"""The outbox: events that wait for the router or could not be routed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import Query

from aaiclick.server import shapes
from aaiclick.server.paging import Cursor, Limit, Page, id_cursor, page
from aaiclick.server.permissions import Permission
from aaiclick.server.routes.common import changed, changing, note, reading, text_id
from aaiclick.server.routing import Caller, Routes
from aaiclick.store import outbox

if TYPE_CHECKING:
    import asyncpg

routes = Routes("outbox")


@routes.get("/v1/outbox", Permission.ADMIN)
async def index(
    call: Caller,
    status: Annotated[shapes.OutboxState | None, Query()] = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Page[shapes.OutboxEvent]:
    """List events that are not routed, newest first: Pending ones wait, Failed ones could not be routed."""
    async with reading(call) as connection:
        rows = await outbox.list_events(
            connection,
            org_id=call.principal.org_id,
            status=status,
            before=id_cursor(cursor, outbox.LAST_ID),
            limit=limit + 1,
        )
    return page(rows, limit, _event, lambda row: row["id"])


@routes.post("/v1/outbox/retry", Permission.ADMIN)
async def retry(call: Caller, body: shapes.OutboxRetry) -> shapes.Changed:
    """Route failed events again (at most ten thousand at a time); their jobs go on."""
    ids = None if body.ids is None else [int(event_id) for event_id in body.ids if int(event_id) < 2**63]
    async with changing(call) as connection:
        done = await outbox.retry_events(connection, ids, org_id=call.principal.org_id)
        named = None if ids is None else [str(event_id) for event_id in ids[:100]]
        await note(call, connection, "events.retry", "events", {"named": named, "events": len(done)})
    return changed(done)


def _event(row: asyncpg.Record) -> shapes.OutboxEvent:
    plain = {name: row[name] for name in shapes.OutboxEvent.model_fields if name not in ("id", "job_id")}
    return shapes.OutboxEvent(**plain, id=str(row["id"]), job_id=text_id(row["job_id"]))
