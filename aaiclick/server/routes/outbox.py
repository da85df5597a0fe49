"""Routes of the outbox: events that are pending or could not be routed."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from aaiclick.api.dead_letters import OutboxEvent, OutboxRetryRequest, OutboxState
from aaiclick.api.field_types import ChangedIdsResponse, Page
from aaiclick.operations import outbox as operations
from aaiclick.operations.actor import Permission
from aaiclick.server.pagination import Cursor, Limit
from aaiclick.server.routing import Context, Routes

routes = Routes("outbox")


@routes.get("/v1/outbox", Permission.ADMIN)
async def list_outbox_events(
    context: Context,
    status: Annotated[OutboxState | None, Query()] = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Page[OutboxEvent]:
    """List Pending and Failed outbox events, newest first."""
    return await context.perform(operations.list_outbox_events, status=status, cursor=cursor, limit=limit)


@routes.post("/v1/outbox/retry", Permission.ADMIN)
async def retry_outbox_events(context: Context, body: OutboxRetryRequest) -> ChangedIdsResponse:
    """Retry failed events (at most ten thousand at a time); their jobs continue."""
    return await context.perform(operations.retry_outbox_events, body)
