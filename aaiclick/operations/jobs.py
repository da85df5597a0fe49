"""Operations on jobs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aaiclick.api.field_types import ChangedIdsResponse, CreatedResponse, JobState, Page
from aaiclick.api.jobs import GroupProgress, Job, JobEvent, JobResult, JobTreeNode, ReleasedTablesResponse
from aaiclick.api.tasks import CancelResponse
from aaiclick.catalog.dataset_visibility import redact_attempts, redact_jobs, redact_tasks
from aaiclick.errors import SubmitError
from aaiclick.operations.actor import Actor, Permission
from aaiclick.operations.database_access import Databases
from aaiclick.operations.dataset_reader import dataset_reader
from aaiclick.operations.job_and_task_lookups import changed_ids, find_job
from aaiclick.operations.operation import databases_operation, operation, write_audit
from aaiclick.operations.pagination import make_page, read_id_cursor
from aaiclick.operations.row_conversion import from_row, to_group_progress, to_job
from aaiclick.orchestration.function_registry import run_job_function
from aaiclick.orchestration.job_labels import check_labels
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.engine import cancel, pause, queries, rerun, retry_and_redrive
from aaiclick.store.engine.result_placeholders import temporary_tables_in
from aaiclick.store.tables.literal_results import load_result_literals
from aaiclick.store.tables.table_references import release_jobs

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

MAX_RESULTS = 100
"""Results in one response."""
MAX_RESULT_BYTES = 2 * 2**20
"""Encoded bytes of the results in one response, since the server decodes them between other requests; a larger one is
alone in its response."""
JOB_EVENTS = {
    "created_at": "created",
    "started_at": "started",
    "cancel_requested_at": "cancel_requested",
    "completed_at": "ended",
}
"""Column of a job → event of its history."""


@operation(Permission.WRITER)
async def cancel_job(connection: Connection, actor: Actor, job_id: int) -> CancelResponse:
    """Cancel a job: waiting tasks end at once, running ones are asked to stop."""
    job = await find_job(connection, actor, job_id)
    outcome = await cancel.cancel_job(connection, job_id)
    await write_audit(connection, actor, "job.cancel", job_id, org_id=job["org_id"])
    return CancelResponse(outcome=outcome)


@operation(Permission.WRITER)
async def retry_job(
    connection: Connection, actor: Actor, job_id: int, *, cancelled: bool = False
) -> ChangedIdsResponse:
    """Start failed tasks again, and tasks that were cancelled because of them; with `cancelled` all cancelled ones."""
    job = await find_job(connection, actor, job_id)
    task_ids = await retry_and_redrive.retry_failed_tasks(connection, job_id, cancelled=cancelled)
    await write_audit(connection, actor, "job.retry", job_id, {"tasks": len(task_ids)}, org_id=job["org_id"])
    return changed_ids(task_ids)


@operation(Permission.WRITER)
async def release_job(connection: Connection, actor: Actor, job_id: int) -> ReleasedTablesResponse:
    """Release the results of a job that has ended; tables that nothing else refers to are dropped."""
    job = await find_job(connection, actor, job_id)
    tables = await release_jobs(connection, [job_id])
    await write_audit(connection, actor, "job.release", job_id, {"tables": tables}, org_id=job["org_id"])
    return ReleasedTablesResponse(tables=tables)


@operation(Permission.WRITER)
async def pause_job(connection: Connection, actor: Actor, job_id: int) -> None:
    """Pause a job: running tasks continue, no task starts."""
    job = await find_job(connection, actor, job_id)
    await pause.pause_job(connection, job_id)
    await write_audit(connection, actor, "job.pause", job_id, org_id=job["org_id"])


@operation(Permission.WRITER)
async def resume_job(connection: Connection, actor: Actor, job_id: int) -> None:
    """Resume a paused job."""
    job = await find_job(connection, actor, job_id)
    await pause.resume_job(connection, job_id)
    await write_audit(connection, actor, "job.resume", job_id, org_id=job["org_id"])


@operation(Permission.WRITER, as_owner=True)
async def rerun_job(
    connection: Connection, actor: Actor, job_id: int, *, arguments: Mapping[str, object] | None = None
) -> CreatedResponse:
    """Submit the tasks and arguments of a job as a new job; with `arguments`, its function with these changes."""
    job = await find_job(connection, actor, job_id)
    new_id = get_snowflake_id()
    if arguments:
        submitted_id = await _run_with_changes(connection, job, arguments, new_id)
    else:
        submitted_id = await rerun.rerun_job(connection, job, new_id=new_id)
    if submitted_id == new_id:  # else an unfinished job runs instead
        detail = {"name": job["name"], "rerun_of": str(job_id)}
        await write_audit(connection, actor, "job.create", new_id, detail, org_id=job["org_id"])
    return CreatedResponse(id=submitted_id)


async def _run_with_changes(connection: Connection, job: Any, changes: Mapping[str, object], new_id: int) -> int:
    trigger: dict[str, Any] = {} if job["trigger"] is None else json.loads(job["trigger"])
    if trigger.get("entrypoint") is None:
        raise SubmitError(
            f"It is not known by which call job {job['id']} was submitted.",
            remedy="Run it without changes, or run its function: aaiclick functions run.",
        )
    arguments = trigger.get("arguments", {}) | dict(changes)
    function = trigger["entrypoint"]
    submitted = await run_job_function(connection, job["org_id"], function, arguments, tags=job["tags"], new_id=new_id)
    return submitted[0]


@operation(Permission.READER, changes=False)
async def list_jobs(
    connection: Connection,
    actor: Actor,
    *,
    status: JobState | None = None,
    tags: Mapping[str, str] | None = None,
    owner: str | None = None,
    cursor: str | None = None,
    limit: int = 100,
) -> Page[Job]:
    """List jobs, newest first; with all of the tags and this owner."""
    before = read_id_cursor(cursor, queries.LAST_ID)
    labels = check_labels("The filter", tags, owner)
    rows = await queries.list_jobs(
        connection, status=status, org_id=actor.visible_org_id, labels=labels, before=before, limit=limit + 1
    )
    visible_rows = await redact_jobs(connection, await dataset_reader(connection, actor), rows)
    return make_page(visible_rows, limit, to_job, lambda row: row["id"])


@operation(Permission.READER, changes=False)
async def get_job(connection: Connection, actor: Actor, job_id: int) -> Job:
    """Get a job."""
    row = await find_job(connection, actor, job_id)
    (visible_row,) = await redact_jobs(connection, await dataset_reader(connection, actor), [row])
    return to_job(visible_row, await queries.list_code_versions(connection, job_id))


@operation(Permission.READER, changes=False)
async def get_job_tree(connection: Connection, actor: Actor, job_id: int) -> list[JobTreeNode]:
    """Get a job with the child jobs below it, each after its parent."""
    await find_job(connection, actor, job_id)
    return [from_row(JobTreeNode, row) for row in await queries.list_job_tree(connection, job_id)]


@operation(Permission.READER, changes=False)
async def get_job_progress(connection: Connection, actor: Actor, job_id: int) -> list[GroupProgress]:
    """Get the progress of each group of a job."""
    await find_job(connection, actor, job_id)
    return [to_group_progress(row) for row in await queries.load_job_progress(connection, job_id)]


@databases_operation(Permission.READER)
async def get_job_results(databases: Databases, actor: Actor, job_id: int, *, after: int = 0) -> list[JobResult]:
    """Get the results of up to 100 tasks of a job without dependents, fewer of large results; those after `after`."""
    async with databases.connect() as connection:
        await find_job(connection, actor, job_id)
        result_rows = await queries.load_job_results(connection, job_id, MAX_RESULTS, after=after)
        rows = await redact_tasks(connection, await dataset_reader(connection, actor), result_rows)
        literals = await load_result_literals(connection, (row["result"] for row in rows), actor.org_id)
    from aaiclick.data.json_results import to_json_value  # slow imports: the ClickHouse client
    from aaiclick.data.result_preview import preview_results

    forms = limit_bytes([json.loads(row["result"]) for row in rows], [len(row["result"]) for row in rows], literals)
    texts = await preview_results(forms, await databases.clickhouse(), literals)
    return [
        JobResult(task_id=row["id"], name=row["name"], value=text, data=to_json_value(form, literals))
        for row, form, text in zip(rows, forms, texts, strict=False)
    ]


def limit_bytes(forms: list[Any], sizes: Sequence[int], literals: Mapping[str, str]) -> list[Any]:
    """The first results, of MAX_RESULT_BYTES with their literals; at least one."""
    total = 0
    for count, (form, size) in enumerate(zip(forms, sizes, strict=True)):
        total += size + sum(len(literals.get(name, "")) for name in temporary_tables_in(form))
        if count and total > MAX_RESULT_BYTES:
            return forms[:count]
    return forms


@operation(Permission.READER, changes=False)
async def list_job_events(connection: Connection, actor: Actor, job_id: int) -> list[JobEvent]:
    """List the events of a job: start, unsuccessful attempts (the last thousand), end."""
    reader = await dataset_reader(connection, actor)
    (row,) = await redact_jobs(connection, reader, [await find_job(connection, actor, job_id)])
    attempts = await redact_attempts(connection, reader, await queries.list_job_attempts(connection, job_id))
    events = [
        JobEvent(at=row[column], kind=event_name, detail=row["error"] if event_name == "ended" else None)
        for column, event_name in JOB_EVENTS.items()
        if row[column] is not None
    ]
    events += [
        JobEvent(
            at=attempt["ended_at"],
            kind=f"attempt_{attempt['outcome'].lower()}",
            task_id=attempt["task_id"],
            attempt=attempt["attempt"],
            detail=attempt["error"],
        )
        for attempt in attempts
    ]
    return sorted(events, key=lambda event: event.at)
