"""Tasks: enqueue, look, end, run again, and why they wait."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Query, Request, Response
from pydantic import BaseModel, Field

from aaiclick.catalog.made import made_in_words
from aaiclick.catalog.readable import WITHHELD, as_seen, attempts_as_seen, untold, why_as_seen
from aaiclick.errors import ForbiddenError, NotFoundError, SubmitError
from aaiclick.server import shapes
from aaiclick.server.logs import LARGEST_PART, follow_log, read_part
from aaiclick.server.once import IdempotencyKey, once
from aaiclick.server.paging import Cursor, Limit, Page, id_cursor, page
from aaiclick.server.permissions import Permission
from aaiclick.server.routes.common import (
    changed,
    changing,
    given_tables,
    note,
    own_job,
    own_task,
    reading,
    tagged,
    text_id,
)
from aaiclick.server.routes.datasets import reader
from aaiclick.server.routing import Call, Caller, Routes
from aaiclick.server.sse import EventStream
from aaiclick.snowflake import get_snowflake_ids
from aaiclick.store import control, reads
from aaiclick.store.enqueue import enqueue_tasks, enqueue_with_tables
from aaiclick.store.plan import NewTask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aaiclick.store.engine import Connection

routes = Routes("tasks")

AnId = Annotated[int, Field(ge=1, le=shapes.LARGEST_ID)]

_IDS = ("id", "job_id", "group_id", "worker_id", "cause_id")
_PLAIN = tuple(name for name in shapes.Task.model_fields if name not in (*_IDS, "made"))
_ENCODER = json.JSONEncoder(allow_nan=False)
"""Made once: `json.dumps` makes one for each item."""
_DETAILS = ("timeout_seconds", "lease_expires_at", "idempotency_key", "concurrency_key")


@routes.post("/v1/tasks", Permission.WRITER, status_code=HTTPStatus.CREATED, response_model=shapes.CreatedMany)
async def create(call: Caller, request: Request, body: shapes.NewItems, key: IdempotencyKey = None) -> Response:
    """Put items into queues, all of them or none. One whose own idempotency key is taken gets the id of the first."""
    items = _items(call, body.items)
    given = given_tables(items)

    async def work(connection: Connection) -> BaseModel:
        org_id = call.principal.org_id
        if given:
            ids = await enqueue_with_tables(connection, items, given, {}, org_id)
        else:
            ids = await enqueue_tasks(connection, items, org_id)
        return shapes.CreatedMany(ids=[str(task_id) for task_id in ids])

    return await once(call, request, key, work)


@routes.get("/v1/tasks", Permission.READER)
async def index(
    call: Caller,
    job_id: Annotated[int | None, Query(ge=1, le=shapes.LARGEST_ID)] = None,
    status: shapes.TaskState | None = None,
    type: Annotated[shapes.Name | None, Query()] = None,  # noqa: A002  (the column's name)
    queue: Annotated[shapes.Name | None, Query()] = None,
    idempotency_key: Annotated[shapes.Key | None, Query(description="Together with `type`")] = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Page[shapes.Task]:
    """List tasks: those of a job in their order, or all of the organisation's, newest first."""
    org_id = call.principal.org_id
    async with reading(call) as connection:
        if type is not None and idempotency_key is not None:
            found = await reads.task_of_key(connection, org_id, type, idempotency_key)
            rows = [] if found is None else [found]
        elif job_id is not None:
            await own_job(call, connection, job_id)
            after = id_cursor(cursor, 0)
            rows = await reads.tasks_of_job(
                connection, org_id, job_id, status=status, type=type, after=after, limit=limit + 1
            )
        else:
            before = id_cursor(cursor, reads.LAST_ID)
            rows = await reads.tasks_of_org(
                connection, org_id, status=status, type=type, queue=queue, before=before, limit=limit + 1
            )
        seen = await as_seen(connection, await reader(call, connection), rows)
    return page(seen, limit, task, lambda row: row["id"])


@routes.get("/v1/tasks/{task_id}", Permission.READER, response_model=shapes.TaskDetail)
async def show(call: Caller, request: Request, response: Response, task_id: shapes.PathId) -> Any:
    """Show a task with its arguments, its result and the attempts that did not succeed."""
    async with reading(call) as connection:
        row = await own_task(call, connection, task_id)
        who = await reader(call, connection)
        (seen,) = await as_seen(connection, who, [row])
        attempts = await attempts_as_seen(connection, who, await reads.task_attempts(connection, task_id))
    # Of what is cut, who may read what is a part; and that may change while the row does not.
    if seen is row and tagged(request, response, row["id"], row["updated_at"]):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=dict(response.headers))
    return shapes.TaskDetail(
        **task(seen).model_dump(),
        **{name: seen[name] for name in _DETAILS},
        kwargs=json.loads(seen["kwargs"]),
        result=None if seen["result"] is None else json.loads(seen["result"]),
        attempts=[_attempt(each) for each in attempts],
    )


@routes.get("/v1/tasks/{task_id}/why", Permission.READER)
async def why(call: Caller, task_id: shapes.PathId) -> list[shapes.Reason]:
    """Say what stands between a task and its end."""
    async with reading(call) as connection:
        await own_task(call, connection, task_id)
        reasons = await why_as_seen(connection, await reader(call, connection), task_id)
    return [shapes.Reason(code=reason.code, words=reason.words) for reason in reasons]


@routes.post("/v1/tasks/{task_id}/cancel", Permission.WRITER)
async def cancel(call: Caller, task_id: shapes.PathId) -> shapes.Cancelled:
    """Cancel a task: a waiting one ends at once, a running one is told to stop."""
    async with changing(call) as connection:
        await own_task(call, connection, task_id)
        outcomes = await control.cancel_tasks(connection, [task_id])
        await note(call, connection, "task.cancel", task_id)
    return shapes.Cancelled(outcome=outcomes[task_id])


@routes.post("/v1/tasks/{task_id}/clear", Permission.WRITER)
async def clear(
    call: Caller,
    task_id: shapes.PathId,
    also: Annotated[list[AnId], Query(description="Other tasks of its job", max_length=100)] = [],  # noqa: B006
) -> shapes.Changed:
    """Run a task again, and everything that depends on it. Refused if something it reads was released: the answer says
    which tasks have to run again as well.
    """
    async with changing(call) as connection:
        for each in (task_id, *also):
            await own_task(call, connection, each)
        again = await control.clear(connection, task_id, also)
        await note(call, connection, "task.clear", task_id, {"tasks": len(again)})
    return changed(again)


@routes.get("/v1/tasks/{task_id}/log", Permission.READER)
async def log(
    call: Caller,
    task_id: shapes.PathId,
    offset: Annotated[
        int, Query(ge=-LARGEST_PART, le=shapes.LARGEST_ID, description="In bytes; a negative one counts from the end")
    ] = 0,
    limit: Annotated[int, Query(ge=1, le=LARGEST_PART, description="In bytes")] = 100_000,
) -> shapes.Log:
    """Read a part of what a task said."""
    await _may_listen(call, task_id)
    ended = await _is_over(call, task_id)  # before the log is read: what it says until its end is in there
    text, next_offset = await read_part(call.service.settings, task_id, offset, limit)
    return shapes.Log(text=text, next_offset=next_offset, ended=ended)


@routes.get(
    "/v1/tasks/{task_id}/log/follow",
    Permission.READER,
    response_class=EventStream,
    responses={200: EventStream.documented("Parts of the log as they are written, then `end`.")},
)
async def follow(call: Caller, task_id: shapes.PathId) -> EventStream:
    """Follow what a task says until it ends."""
    await _may_listen(call, task_id)

    async def over() -> bool:
        try:
            return await _is_over(call, task_id)
        except NotFoundError:  # forgotten meanwhile
            return True

    return EventStream(follow_log(call.service.settings, task_id, over), call.service.closing)


async def _may_listen(call: Call, task_id: int) -> None:
    """Raises ForbiddenError if what the task says is not for the caller."""
    async with reading(call) as connection:
        await own_task(call, connection, task_id)
        if await untold(connection, await reader(call, connection), [task_id]):
            what, _, remedy = WITHHELD.partition(". ")
            raise ForbiddenError(f"{what}.", remedy=remedy)


async def _is_over(call: Call, task_id: int) -> bool:
    async with reading(call) as connection:
        return (await own_task(call, connection, task_id))["completed_at"] is not None


def _items(call: Call, items: Sequence[shapes.NewItem]) -> list[NewTask]:
    most = call.service.settings.worker_max_retries + 1
    return [
        NewTask(
            task_id,
            item.type,
            item.entrypoint,
            _json(item),
            None,
            item.queue,
            item.priority,
            item.max_attempts or most,
            item.timeout_seconds,
            None if item.retry_policy is None else item.retry_policy.model_dump_json(),
            item.run_at,
            item.idempotency_key,
            item.concurrency_key,
            item.concurrency_limit,
            item.critical,
        )
        for task_id, item in zip(get_snowflake_ids(len(items)), items, strict=True)
    ]


def _json(item: shapes.NewItem) -> str:
    """What came as JSON is JSON, but for numbers that only Python reads."""
    try:
        return _ENCODER.encode(item.payload)
    except ValueError:
        raise SubmitError(f"The item of type {item.type!r} has a number that JSON does not have.") from None


def task(row: Any) -> shapes.Task:
    """A task as it leaves."""
    plain = {name: row[name] for name in _PLAIN}
    ids = {name: text_id(row[name]) for name in _IDS}
    return shapes.Task(**plain, **ids, made=made_in_words(row["outputs"]))  # pyright: ignore[reportArgumentType]


def _attempt(row: Any) -> shapes.Attempt:
    plain = {name: row[name] for name in shapes.Attempt.model_fields if name != "worker_id"}
    return shapes.Attempt(**plain, worker_id=text_id(row["worker_id"]))
