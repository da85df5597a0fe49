"""Routes of tasks: enqueue, list, cancel, clear, explain and read logs."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated

from fastapi import Query, Request, Response
from pydantic import BaseModel, Field

from aaiclick.api.field_types import MAX_ID, ChangedIdsResponse, CreatedIdsResponse, Key, Name, Page, TaskState
from aaiclick.api.tasks import (
    CancelResponse,
    EnqueueRequest,
    Task,
    TaskDetail,
    TaskLog,
    WaitReason,
)
from aaiclick.errors import ForbiddenError, NotFoundError
from aaiclick.operations import tasks as operations
from aaiclick.operations.actor import Permission
from aaiclick.operations.enqueue import ParsedItems, insert_items
from aaiclick.server.idempotency import IdempotencyKey, run_idempotent
from aaiclick.server.pagination import Cursor, Limit
from aaiclick.server.routes.common import respond_if_changed
from aaiclick.server.routing import Context, PathId, Routes
from aaiclick.server.sse import EventStream
from aaiclick.server.task_logs import MAX_PART_BYTES, follow_log

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

routes = Routes("tasks")

IdValue = Annotated[int, Field(ge=1, le=MAX_ID)]


@routes.post("/v1/tasks", Permission.WRITER, status_code=HTTPStatus.CREATED, response_model=CreatedIdsResponse)
async def create_tasks(
    context: Context, request: Request, body: EnqueueRequest, key: IdempotencyKey = None
) -> Response:
    """Enqueue items, all of them or none. An item with an existing idempotency key gets the id of that task."""
    items = ParsedItems(body.items)

    async def enqueue(connection: Connection) -> BaseModel:
        return await insert_items(connection, context.actor, items)

    return await run_idempotent(context, request, key, enqueue)


@routes.get("/v1/tasks", Permission.READER)
async def list_tasks(
    context: Context,
    job_id: Annotated[int | None, Query(ge=1, le=MAX_ID)] = None,
    status: TaskState | None = None,
    type: Annotated[Name | None, Query()] = None,  # noqa: A002  (the column's name)
    queue: Annotated[Name | None, Query()] = None,
    idempotency_key: Annotated[Key | None, Query(description="Together with `type`")] = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Page[Task]:
    """List tasks: those of a job in their order, or all of the organisation's, newest first."""
    return await context.perform(
        operations.list_tasks,
        job_id,
        status=status,
        type=type,
        queue=queue,
        idempotency_key=idempotency_key,
        cursor=cursor,
        limit=limit,
    )


@routes.get("/v1/tasks/{task_id}", Permission.READER, response_model=TaskDetail)
async def get_task(context: Context, request: Request, response: Response, task_id: PathId) -> TaskDetail | Response:
    """Get a task with its arguments, result and unsuccessful attempts."""
    return respond_if_changed(request, response, await context.perform(operations.get_task, task_id))


@routes.get("/v1/tasks/{task_id}/why", Permission.READER)
async def explain_task(context: Context, task_id: PathId) -> list[WaitReason]:
    """Explain why a task is not running."""
    return await context.perform(operations.explain_task, task_id)


@routes.post("/v1/tasks/{task_id}/cancel", Permission.WRITER)
async def cancel_task(context: Context, task_id: PathId) -> CancelResponse:
    """Cancel a task: a waiting one ends at once, a running one is requested to stop."""
    return await context.perform(operations.cancel_task, task_id)


@routes.post("/v1/tasks/{task_id}/clear", Permission.WRITER)
async def clear_task(
    context: Context,
    task_id: PathId,
    also: Annotated[list[IdValue], Query(description="Other tasks of its job", max_length=100)] = [],  # noqa: B006
) -> ChangedIdsResponse:
    """Run a task and its dependents again.

    Refused if a table that it reads was released; the error lists the tasks that have to run again as well.
    """
    return await context.perform(operations.clear_task, task_id, also)


@routes.get("/v1/tasks/{task_id}/log", Permission.READER)
async def read_task_log(
    context: Context,
    task_id: PathId,
    offset: Annotated[
        int, Query(ge=-MAX_PART_BYTES, le=MAX_ID, description="In bytes; a negative one counts from the end")
    ] = 0,
    limit: Annotated[int, Query(ge=1, le=MAX_PART_BYTES, description="In bytes")] = 100_000,
) -> TaskLog:
    """Read a part of a task's log."""
    return await context.perform(operations.read_task_log, task_id, offset=offset, limit=limit)


@routes.get(
    "/v1/tasks/{task_id}/log/follow",
    Permission.READER,
    response_class=EventStream,
    responses={200: EventStream.openapi_response("Parts of the log as they are written, then `end`.")},
)
async def follow_task_log(context: Context, task_id: PathId) -> EventStream:
    """Stream the log of a task until it ends."""
    await context.perform(operations.read_task_log, task_id, limit=0)  # checks that the caller may read it

    async def has_ended() -> bool:
        try:
            return (await context.perform(operations.read_task_log, task_id, limit=0)).ended
        except (NotFoundError, ForbiddenError):  # the task was deleted, or a role revoked
            return True

    return EventStream(follow_log(context.app_state.settings, task_id, has_ended), context.app_state.closing)
