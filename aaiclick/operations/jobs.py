"""Operations on jobs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from aaiclick.api.field_types import ChangedIdsResponse, CreatedResponse, JobState, Page
from aaiclick.api.jobs import GroupProgress, Job, JobEvent, JobResult, ReleasedTablesResponse
from aaiclick.api.tasks import CancelResponse
from aaiclick.catalog.visibility import redact_attempts, redact_jobs, redact_tasks
from aaiclick.operations.actor import Actor, Permission
from aaiclick.operations.databases import Databases
from aaiclick.operations.lookups import changed_ids, find_job
from aaiclick.operations.operation import databases_operation, operation, write_audit
from aaiclick.operations.pagination import make_page, read_id_cursor
from aaiclick.operations.rows import to_group_progress, to_job
from aaiclick.operations.visibility import dataset_reader
from aaiclick.store.engine import cancel, pause, queries, rerun, retry
from aaiclick.store.tables.literals import load_result_literals
from aaiclick.store.tables.table_references import release_jobs

if TYPE_CHECKING:
    from aaiclick.store.connections import Connection

MAX_RESULTS = 5
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
    task_ids = await retry.retry_failed_tasks(connection, job_id, cancelled=cancelled)
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
async def rerun_job(connection: Connection, actor: Actor, job_id: int) -> CreatedResponse:
    """Submit the tasks and arguments of a job as a new job."""
    job = await find_job(connection, actor, job_id)
    new_id = await rerun.rerun_job(connection, job)
    detail = {"name": job["name"], "again": str(job_id)}
    await write_audit(connection, actor, "job.create", new_id, detail, org_id=job["org_id"])
    return CreatedResponse(id=new_id)


@operation(Permission.READER, changes=False)
async def list_jobs(
    connection: Connection,
    actor: Actor,
    *,
    status: JobState | None = None,
    cursor: str | None = None,
    limit: int = 100,
) -> Page[Job]:
    """List jobs, newest first."""
    before = read_id_cursor(cursor, queries.LAST_ID)
    rows = await queries.list_jobs(
        connection, status=status, org_id=actor.visible_org_id, before=before, limit=limit + 1
    )
    visible_rows = await redact_jobs(connection, await dataset_reader(connection, actor), rows)
    return make_page(visible_rows, limit, to_job, lambda row: row["id"])


@operation(Permission.READER, changes=False)
async def get_job(connection: Connection, actor: Actor, job_id: int) -> Job:
    """Get a job."""
    row = await find_job(connection, actor, job_id)
    (visible_row,) = await redact_jobs(connection, await dataset_reader(connection, actor), [row])
    return to_job(visible_row)


@operation(Permission.READER, changes=False)
async def get_job_progress(connection: Connection, actor: Actor, job_id: int) -> list[GroupProgress]:
    """Get the progress of each group of a job."""
    await find_job(connection, actor, job_id)
    return [to_group_progress(row) for row in await queries.load_job_progress(connection, job_id)]


@databases_operation(Permission.READER)
async def get_job_results(databases: Databases, actor: Actor, job_id: int) -> list[JobResult]:
    """Get the results of the first tasks of a job without dependents, as text."""
    async with databases.connect() as connection:
        await find_job(connection, actor, job_id)
        result_rows = await queries.load_job_results(connection, job_id, MAX_RESULTS)
        rows = await redact_tasks(connection, await dataset_reader(connection, actor), result_rows)
        literals = await load_result_literals(connection, (row["result"] for row in rows), actor.org_id)
    from aaiclick.data.preview import preview_result  # slow import: the ClickHouse client

    endpoint = await databases.clickhouse()
    return [
        JobResult(
            task_id=row["id"],
            name=row["name"],
            value=await preview_result(json.loads(row["result"]), endpoint, literals),
        )
        for row in rows
    ]


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
