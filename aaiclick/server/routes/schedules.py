"""Routes of schedules: create, list, pause, fire, backfill, sync."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import Path

from aaiclick.api.dags import BackfillResponse
from aaiclick.api.field_types import CreatedResponse, Page
from aaiclick.api.schedules import (
    BackfillScheduleRequest,
    FireScheduleRequest,
    Schedule,
    ScheduleDetail,
    ScheduleRequest,
    ScheduleState,
    SyncSchedulesRequest,
    SyncSchedulesResponse,
)
from aaiclick.operations import schedules as operations
from aaiclick.operations.actor import Permission
from aaiclick.server.pagination import Cursor, Limit
from aaiclick.server.routing import Context, Routes

routes = Routes("schedules")

ScheduleName = Annotated[str, Path(min_length=1, max_length=200, pattern=r"^[^/\x00-\x1f]+$")]


@routes.get("/v1/schedules", Permission.READER)
async def list_schedules(
    context: Context, state: ScheduleState | None = None, cursor: Cursor = None, limit: Limit = 100
) -> Page[Schedule]:
    """List schedules by name."""
    return await context.perform(operations.list_schedules, state=state, cursor=cursor, limit=limit)


@routes.post("/v1/schedules", Permission.WRITER, status_code=HTTPStatus.CREATED)
async def create_schedule(context: Context, body: ScheduleRequest) -> Schedule:
    """Create a schedule of a job or a queue item."""
    return await context.perform(operations.create_schedule, body)


@routes.post("/v1/schedules/sync", Permission.WRITER)
async def sync_schedules(context: Context, body: SyncSchedulesRequest) -> SyncSchedulesResponse:
    """Make the schedules of a module those that its code declares."""
    return await context.perform(operations.sync_schedules, body.module, body.schedules, dry_run=body.dry_run)


@routes.get("/v1/schedules/{schedule}", Permission.READER)
async def get_schedule(context: Context, schedule: ScheduleName) -> ScheduleDetail:
    """Get a schedule with its next times and its last runs."""
    return await context.perform(operations.get_schedule, schedule)


@routes.delete("/v1/schedules/{schedule}", Permission.WRITER, status_code=HTTPStatus.NO_CONTENT)
async def delete_schedule(context: Context, schedule: ScheduleName) -> None:
    """Delete a schedule; its jobs continue."""
    await context.perform(operations.delete_schedule, schedule)


@routes.post("/v1/schedules/{schedule}/pause", Permission.WRITER, status_code=HTTPStatus.NO_CONTENT)
async def pause_schedule(context: Context, schedule: ScheduleName) -> None:
    """Pause a schedule: no run of it starts."""
    await context.perform(operations.pause_schedule, schedule)


@routes.post("/v1/schedules/{schedule}/resume", Permission.WRITER, status_code=HTTPStatus.NO_CONTENT)
async def resume_schedule(context: Context, schedule: ScheduleName) -> None:
    """Resume a paused schedule."""
    await context.perform(operations.resume_schedule, schedule)


@routes.post("/v1/schedules/{schedule}/fire", Permission.WRITER, status_code=HTTPStatus.CREATED)
async def fire_schedule(context: Context, schedule: ScheduleName, body: FireScheduleRequest) -> CreatedResponse:
    """Start a run of a schedule now."""
    return await context.perform(operations.fire_schedule, schedule, body.nominal)


@routes.post("/v1/schedules/{schedule}/backfill", Permission.WRITER)
async def backfill_schedule(
    context: Context, schedule: ScheduleName, body: BackfillScheduleRequest
) -> BackfillResponse:
    """Start the runs of past nominal times in a range that have not run."""
    return await context.perform(operations.backfill_schedule, schedule, body.first, body.last, dry_run=body.dry_run)
