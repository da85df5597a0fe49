"""Operations on tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from aaiclick.api.field_types import ChangedIdsResponse, CreatedIdsResponse, Page, TaskState, parse_fields
from aaiclick.api.tasks import CancelResponse, EnqueueRequest, Task, TaskDetail, TaskLog, WaitReason
from aaiclick.catalog.dataset_visibility import (
    REDACTED_ERROR,
    explain_waiting,
    hidden_task_ids,
    redact_attempts,
    redact_tasks,
)
from aaiclick.errors import ForbiddenError
from aaiclick.operations.actor import Actor, Permission
from aaiclick.operations.dataset_reader import dataset_reader
from aaiclick.operations.job_and_task_lookups import changed_ids, find_job, find_task
from aaiclick.operations.log_files import log_path, read_part
from aaiclick.operations.operation import operation, write_audit
from aaiclick.operations.pagination import make_page, read_id_cursor
from aaiclick.operations.row_conversion import to_task, to_task_detail
from aaiclick.settings import get_settings
from aaiclick.store.engine import queries, user_actions

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection


@operation(Permission.WRITER)
async def enqueue(connection: Connection, actor: Actor, items: Sequence[Mapping[str, object]]) -> CreatedIdsResponse:
    """Enqueue items, all of them or none. An item with an existing idempotency key gets the id of that task."""
    from aaiclick.operations.enqueue import ParsedItems, insert_items  # slow import: the Python API of jobs

    request = parse_fields(EnqueueRequest, {"items": list(items)})
    return await insert_items(connection, actor, ParsedItems(request.items))


@operation(Permission.READER, changes=False)
async def list_tasks(
    connection: Connection,
    actor: Actor,
    job_id: int | None = None,
    *,
    status: TaskState | None = None,
    type: str | None = None,  # noqa: A002  (the column's name)
    queue: str | None = None,
    idempotency_key: str | None = None,
    cursor: str | None = None,
    limit: int = 100,
) -> Page[Task]:
    """List tasks: those of a job in their order, or all of the organisation's, newest first."""
    if type is not None and idempotency_key is not None:
        row = await queries.find_task_by_key(connection, actor.org_id, type, idempotency_key)
        rows = [] if row is None else [row]
    elif job_id is not None:
        job = await find_job(connection, actor, job_id)
        after = read_id_cursor(cursor, 0)
        rows = await queries.list_tasks_of_job(
            connection, job["org_id"], job_id, status=status, type=type, after=after, limit=limit + 1
        )
    else:
        before = read_id_cursor(cursor, queries.LAST_ID)
        rows = await queries.list_tasks_of_org(
            connection, actor.org_id, status=status, type=type, queue=queue, before=before, limit=limit + 1
        )
    visible_rows = await redact_tasks(connection, await dataset_reader(connection, actor), rows)
    return make_page(visible_rows, limit, to_task, lambda row: row["id"])


@operation(Permission.READER, changes=False)
async def get_task(connection: Connection, actor: Actor, task_id: int) -> TaskDetail:
    """Get a task with its arguments, result and unsuccessful attempts."""
    row = await find_task(connection, actor, task_id)
    reader = await dataset_reader(connection, actor)
    (visible_row,) = await redact_tasks(connection, reader, [row])
    attempts = await redact_attempts(connection, reader, await queries.list_task_attempts(connection, task_id))
    return to_task_detail(visible_row, attempts)


@operation(Permission.READER, changes=False)
async def explain_task(connection: Connection, actor: Actor, task_id: int) -> list[WaitReason]:
    """Explain why a task is not running."""
    await find_task(connection, actor, task_id)
    reasons = await explain_waiting(connection, await dataset_reader(connection, actor), task_id)
    return [WaitReason(code=reason.code, text=reason.text) for reason in reasons]


@operation(Permission.READER, changes=False)
async def read_task_log(
    connection: Connection, actor: Actor, task_id: int, *, offset: int = 0, limit: int = 1_000_000
) -> TaskLog:
    """Read a part of a task's log, in bytes; a negative offset counts from the end."""
    row = await find_task(connection, actor, task_id)  # before the log is read: that of an ended task is complete
    if await hidden_task_ids(connection, await dataset_reader(connection, actor), [task_id]):
        what, _, remedy = REDACTED_ERROR.partition(". ")
        raise ForbiddenError(f"{what}.", remedy=remedy)
    # The server never opens a path that a worker reports, since it could name any file.
    path = Path(row["log_path"]) if actor.is_local and row["log_path"] else log_path(get_settings(), task_id)
    text, next_offset = await read_part(path, offset, limit)
    return TaskLog(text=text, next_offset=next_offset, ended=row["completed_at"] is not None)


@operation(Permission.WRITER)
async def cancel_task(connection: Connection, actor: Actor, task_id: int) -> CancelResponse:
    """Cancel a task: a waiting one ends at once, a running one is requested to stop."""
    task = await find_task(connection, actor, task_id)
    outcomes = await user_actions.cancel_tasks(connection, [task_id])
    await write_audit(connection, actor, "task.cancel", task_id, org_id=task["org_id"])
    return CancelResponse(outcome=outcomes[task_id])


@operation(Permission.WRITER)
async def clear_task(
    connection: Connection, actor: Actor, task_id: int, also: Sequence[int] = ()
) -> ChangedIdsResponse:
    """Run a task and its dependents again, and the tasks `also` of its job.

    Refused if a table that it reads was released; the error lists the tasks that have to run again as well.
    """
    task, *_ = [await find_task(connection, actor, cleared_id) for cleared_id in (task_id, *also)]
    cleared = await user_actions.clear_tasks(connection, task_id, also)
    await write_audit(connection, actor, "task.clear", task_id, {"tasks": len(cleared)}, org_id=task["org_id"])
    return changed_ids(cleared)
