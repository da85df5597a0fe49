"""Routes of queues: depths, limits, pause and resume."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import Path

from aaiclick.api.field_types import Name
from aaiclick.api.workers import LimitsRequest, Queue, QueueScale
from aaiclick.operations import queues as operations
from aaiclick.operations.actor import Permission
from aaiclick.server.routing import Context, Routes

routes = Routes("queues")

QueueName = Annotated[Name, Path(description="Name of a queue")]


@routes.get("/v1/queues", Permission.READER)
async def list_queues(context: Context) -> list[Queue]:
    """List queues with the number of tasks in each state."""
    return await context.app_state.queue_depths.get(
        context.actor.org_id, lambda: context.perform(operations.list_queues)
    )


@routes.get("/v1/queues/{name:path}/scale", Permission.READER)
async def get_queue_scale(context: Context, name: QueueName) -> QueueScale:
    """Return waiting and running tasks of a queue, for an autoscaler of its workers."""
    return await context.perform(operations.get_queue_scale, name)


@routes.put("/v1/queues/{name:path}", Permission.WRITER, status_code=HTTPStatus.NO_CONTENT)
async def set_queue_limits(context: Context, name: QueueName, body: LimitsRequest) -> None:
    """Set the weight and limits of a queue; an omitted limit is removed."""
    await context.perform(operations.set_queue_limits, name, body)
    context.app_state.queue_depths.invalidate(context.actor.org_id)


@routes.post("/v1/queues/{name:path}/pause", Permission.WRITER, status_code=HTTPStatus.NO_CONTENT)
async def pause_queue(context: Context, name: QueueName) -> None:
    """Pause a queue: no task of it starts."""
    await context.perform(operations.pause_queue, name)
    context.app_state.queue_depths.invalidate(context.actor.org_id)


@routes.post("/v1/queues/{name:path}/resume", Permission.WRITER, status_code=HTTPStatus.NO_CONTENT)
async def resume_queue(context: Context, name: QueueName) -> None:
    """Resume a paused queue."""
    await context.perform(operations.resume_queue, name)
    context.app_state.queue_depths.invalidate(context.actor.org_id)
