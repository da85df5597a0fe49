"""Routes of incidents: list, acknowledge, snooze, close."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from aaiclick.api.field_types import Page
from aaiclick.api.incidents import Incident, SnoozeIncidentRequest
from aaiclick.operations import incidents as operations
from aaiclick.operations.actor import Permission
from aaiclick.server.pagination import Cursor, Limit
from aaiclick.server.routing import Context, PathId, Routes
from aaiclick.store.enums import IncidentRule

routes = Routes("incidents")


@routes.get("/v1/incidents", Permission.READER)
async def list_incidents(
    context: Context,
    acknowledged: Annotated[bool | None, Query()] = None,
    rule: Annotated[IncidentRule | None, Query()] = None,
    closed: Annotated[bool, Query(description="Closed ones too")] = False,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Page[Incident]:
    """List open incidents, newest first."""
    return await context.perform(
        operations.list_incidents, acknowledged=acknowledged, rule=rule, closed=closed, cursor=cursor, limit=limit
    )


@routes.get("/v1/incidents/{incident_id}", Permission.READER)
async def get_incident(context: Context, incident_id: PathId) -> Incident:
    """Get an incident."""
    return await context.perform(operations.get_incident, incident_id)


@routes.post("/v1/incidents/{incident_id}/acknowledge", Permission.WRITER)
async def acknowledge_incident(context: Context, incident_id: PathId) -> Incident:
    """Acknowledge an open incident: it is not escalated any more."""
    return await context.perform(operations.acknowledge_incident, incident_id)


@routes.post("/v1/incidents/{incident_id}/snooze", Permission.WRITER)
async def snooze_incident(context: Context, incident_id: PathId, body: SnoozeIncidentRequest) -> Incident:
    """Send no messages about an open incident for some time; then one if it is still open."""
    return await context.perform(operations.snooze_incident, incident_id, body.seconds)


@routes.post("/v1/incidents/{incident_id}/close", Permission.WRITER)
async def close_incident(context: Context, incident_id: PathId) -> Incident:
    """Close an open incident; another occurrence opens a new one."""
    return await context.perform(operations.close_incident, incident_id)
