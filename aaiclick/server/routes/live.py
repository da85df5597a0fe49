"""Live changes as server-sent events."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header, Query

from aaiclick.server import shapes
from aaiclick.server.permissions import Permission
from aaiclick.server.routes.common import own_job, reading
from aaiclick.server.routing import Caller, Routes
from aaiclick.server.sse import EventStream

routes = Routes("live")


@routes.get(
    "/v1/events",
    Permission.READER,
    response_class=EventStream,
    responses={200: EventStream.documented("`ready`: from here on; `job`: a job as it is now; `reset`: look anew.")},
)
async def events(
    call: Caller,
    job_id: Annotated[int | None, Query(ge=1, le=shapes.LARGEST_ID, description="Of this job alone")] = None,
    last_event_id: Annotated[str | None, Header(alias="Last-Event-ID", max_length=100)] = None,
) -> EventStream:
    """Follow the jobs of the organisation as they change."""
    if job_id is not None:
        async with reading(call) as connection:
            await own_job(call, connection, job_id)
    service = call.service
    return EventStream(service.live.listen(call.principal.org_id, last_event_id, job_id), service.closing)
