"""Route of the change feed, as server-sent events."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header, Query

from aaiclick.api.field_types import MAX_ID
from aaiclick.operations import jobs as operations
from aaiclick.operations.actor import Permission
from aaiclick.server.routing import Context, Routes
from aaiclick.server.sse import EventStream

routes = Routes("live")


@routes.get(
    "/v1/events",
    Permission.READER,
    response_class=EventStream,
    responses={
        200: EventStream.openapi_response("`ready`: the stream has begun; `job`: a job has changed; `reset`: reload.")
    },
)
async def stream_job_changes(
    context: Context,
    job_id: Annotated[int | None, Query(ge=1, le=MAX_ID, description="Only this job")] = None,
    last_event_id: Annotated[str | None, Header(alias="Last-Event-ID", max_length=100)] = None,
) -> EventStream:
    """Stream changes of the organisation's jobs."""
    if job_id is not None:
        await context.perform(operations.get_job, job_id)
    app_state = context.app_state
    return EventStream(app_state.change_feed.subscribe(context.actor.org_id, last_event_id, job_id), app_state.closing)
