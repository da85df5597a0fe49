"""Routes of tasks: enqueue, list, cancel, clear, explain and read logs."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Query, Request, Response
from pydantic import BaseModel, Field

from aaiclick.api.field_types import MAX_ID, ChangedIdsResponse, CreatedIdsResponse, Key, Name, Page, TaskState
from aaiclick.api.tasks import (
    Attempt,
    CancelResponse,
    EnqueueRequest,
    Task,
    TaskDetail,
    TaskLog,
    TaskRequest,
    WaitReason,
)
from aaiclick.catalog.task_summary import summarize_outputs
from aaiclick.catalog.visibility import REDACTED_ERROR, explain_waiting, hidden_task_ids, redact_attempts, redact_tasks
from aaiclick.errors import ForbiddenError, NotFoundError, SubmitError
from aaiclick.operations.actor import Permission
from aaiclick.operations.pagination import make_page, read_id_cursor
from aaiclick.operations.visibility import dataset_reader
from aaiclick.server.idempotency import IdempotencyKey, run_idempotent
from aaiclick.server.pagination import Cursor, Limit
from aaiclick.server.routes.common import (
    argument_tables,
    changed_ids,
    get_own_job,
    get_own_task,
    set_etag,
    tenant_connection,
    tenant_transaction,
    write_audit,
)
from aaiclick.server.routing import Context, PathId, RequestContext, Routes
from aaiclick.server.sse import EventStream
from aaiclick.server.task_logs import MAX_PART_BYTES, follow_log, read_part
from aaiclick.snowflake import get_snowflake_ids
from aaiclick.store.engine import control, queries
from aaiclick.store.engine.enqueue import enqueue_tasks, enqueue_with_tables
from aaiclick.store.engine.plan import NewTask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aaiclick.store.connections import Connection

routes = Routes("tasks")

IdValue = Annotated[int, Field(ge=1, le=MAX_ID)]

_TASK_FIELDS = tuple(name for name in Task.model_fields if name != "output_summary")
_ENCODER = json.JSONEncoder(allow_nan=False)
"""Shared, since `json.dumps` with options creates an encoder per call."""
_DETAIL_FIELDS = ("timeout_seconds", "lease_expires_at", "idempotency_key", "concurrency_key")


@routes.post("/v1/tasks", Permission.WRITER, status_code=HTTPStatus.CREATED, response_model=CreatedIdsResponse)
async def create_tasks(
    context: Context, request: Request, body: EnqueueRequest, key: IdempotencyKey = None
) -> Response:
    """Enqueue items, all of them or none. An item with an existing idempotency key gets the id of that task."""
    items = _to_new_tasks(body.items)
    tables = argument_tables(items)

    async def enqueue(connection: Connection) -> BaseModel:
        org_id = context.actor.org_id
        if tables:
            ids = await enqueue_with_tables(connection, items, tables, {}, org_id)
        else:
            ids = await enqueue_tasks(connection, items, org_id)
        return CreatedIdsResponse(ids=list(ids))

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
    org_id = context.actor.org_id
    async with tenant_connection(context) as connection:
        if type is not None and idempotency_key is not None:
            row = await queries.find_task_by_key(connection, org_id, type, idempotency_key)
            rows = [] if row is None else [row]
        elif job_id is not None:
            await get_own_job(context, connection, job_id)
            after = read_id_cursor(cursor, 0)
            rows = await queries.list_tasks_of_job(
                connection, org_id, job_id, status=status, type=type, after=after, limit=limit + 1
            )
        else:
            before = read_id_cursor(cursor, queries.LAST_ID)
            rows = await queries.list_tasks_of_org(
                connection, org_id, status=status, type=type, queue=queue, before=before, limit=limit + 1
            )
        visible_rows = await redact_tasks(connection, await dataset_reader(connection, context.actor), rows)
    return make_page(visible_rows, limit, to_task, lambda row: row["id"])


@routes.get("/v1/tasks/{task_id}", Permission.READER, response_model=TaskDetail)
async def get_task(context: Context, request: Request, response: Response, task_id: PathId) -> Any:
    """Get a task with its arguments, result and unsuccessful attempts."""
    async with tenant_connection(context) as connection:
        row = await get_own_task(context, connection, task_id)
        reader = await dataset_reader(connection, context.actor)
        (visible_row,) = await redact_tasks(connection, reader, [row])
        attempts = await redact_attempts(connection, reader, await queries.list_task_attempts(connection, task_id))
    # No ETag on a redacted row: read permissions may change while the row does not.
    if visible_row is row and set_etag(request, response, row["id"], row["updated_at"]):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=dict(response.headers))
    return TaskDetail(
        **to_task(visible_row).model_dump(),
        **{name: visible_row[name] for name in _DETAIL_FIELDS},
        kwargs=json.loads(visible_row["kwargs"]),
        result=None if visible_row["result"] is None else json.loads(visible_row["result"]),
        attempts=[_to_attempt(attempt) for attempt in attempts],
    )


@routes.get("/v1/tasks/{task_id}/why", Permission.READER)
async def explain_task(context: Context, task_id: PathId) -> list[WaitReason]:
    """Explain why a task is not running."""
    async with tenant_connection(context) as connection:
        await get_own_task(context, connection, task_id)
        reasons = await explain_waiting(connection, await dataset_reader(connection, context.actor), task_id)
    return [WaitReason(code=reason.code, text=reason.text) for reason in reasons]


@routes.post("/v1/tasks/{task_id}/cancel", Permission.WRITER)
async def cancel_task(context: Context, task_id: PathId) -> CancelResponse:
    """Cancel a task: a waiting one ends at once, a running one is requested to stop."""
    async with tenant_transaction(context) as connection:
        await get_own_task(context, connection, task_id)
        outcomes = await control.cancel_tasks(connection, [task_id])
        await write_audit(context, connection, "task.cancel", task_id)
    return CancelResponse(outcome=outcomes[task_id])


@routes.post("/v1/tasks/{task_id}/clear", Permission.WRITER)
async def clear_task(
    context: Context,
    task_id: PathId,
    also: Annotated[list[IdValue], Query(description="Other tasks of its job", max_length=100)] = [],  # noqa: B006
) -> ChangedIdsResponse:
    """Run a task and its dependents again.

    Refused if a table that it reads was released; the error lists the tasks that have to run again as well.
    """
    async with tenant_transaction(context) as connection:
        for cleared_id in (task_id, *also):
            await get_own_task(context, connection, cleared_id)
        cleared = await control.clear_tasks(connection, task_id, also)
        await write_audit(context, connection, "task.clear", task_id, {"tasks": len(cleared)})
    return changed_ids(cleared)


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
    await _require_log_access(context, task_id)
    ended = await _has_ended(context, task_id)  # before the log is read, so that an ended task's log is complete
    text, next_offset = await read_part(context.app_state.settings, task_id, offset, limit)
    return TaskLog(text=text, next_offset=next_offset, ended=ended)


@routes.get(
    "/v1/tasks/{task_id}/log/follow",
    Permission.READER,
    response_class=EventStream,
    responses={200: EventStream.openapi_response("Parts of the log as they are written, then `end`.")},
)
async def follow_task_log(context: Context, task_id: PathId) -> EventStream:
    """Stream the log of a task until it ends."""
    await _require_log_access(context, task_id)

    async def has_ended() -> bool:
        try:
            return await _has_ended(context, task_id)
        except NotFoundError:  # the task was deleted meanwhile
            return True

    return EventStream(follow_log(context.app_state.settings, task_id, has_ended), context.app_state.closing)


async def _require_log_access(context: RequestContext, task_id: int) -> None:
    """Raise ForbiddenError unless the caller may read the log of a task."""
    async with tenant_connection(context) as connection:
        await get_own_task(context, connection, task_id)
        if await hidden_task_ids(connection, await dataset_reader(connection, context.actor), [task_id]):
            what, _, remedy = REDACTED_ERROR.partition(". ")
            raise ForbiddenError(f"{what}.", remedy=remedy)


async def _has_ended(context: RequestContext, task_id: int) -> bool:
    async with tenant_connection(context) as connection:
        return (await get_own_task(context, connection, task_id))["completed_at"] is not None


def _to_new_tasks(items: Sequence[TaskRequest]) -> list[NewTask]:
    return [
        NewTask(
            task_id, item.type, item.entrypoint, _encode_payload(item), None, item.idempotency_key, item.to_options()
        )
        for task_id, item in zip(get_snowflake_ids(len(items)), items, strict=True)
    ]


def _encode_payload(item: TaskRequest) -> str:
    """Encode the payload of an item; raises SubmitError for NaN and infinity, which Python's parser accepts."""
    try:
        return _ENCODER.encode(item.payload)
    except ValueError:
        raise SubmitError(f"The item of type {item.type!r} has a number that JSON does not have.") from None


def to_task(row: Any) -> Task:
    """Convert a row to the response schema."""
    return Task(**{name: row[name] for name in _TASK_FIELDS}, output_summary=summarize_outputs(row["outputs"]))


def _to_attempt(row: Any) -> Attempt:
    return Attempt(**{name: row[name] for name in Attempt.model_fields})
