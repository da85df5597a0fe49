"""Routes of events that tasks wait for."""

from __future__ import annotations

from aaiclick.api.workflow_events import SendEventRequest, SentEvent
from aaiclick.operations import workflow_events as operations
from aaiclick.operations.actor import Permission
from aaiclick.server.routing import Context, Routes

routes = Routes("events")


@routes.post("/v1/events", Permission.WRITER)
async def send_event(context: Context, body: SendEventRequest) -> SentEvent:
    """Send an event: tasks that wait for its name and key go on with its payload."""
    return await context.perform(operations.send_event, body)
