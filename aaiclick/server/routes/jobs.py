"""Routes of jobs: submit, list, cancel, retry, pause."""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Query, Request, Response
from pydantic import BaseModel

from aaiclick.api.field_types import ChangedIdsResponse, CreatedResponse, JobState, Page
from aaiclick.api.jobs import GroupProgress, Job, JobEvent, JobRequest, JobResult, ReleasedTablesResponse
from aaiclick.api.tasks import CancelResponse
from aaiclick.catalog.visibility import redact_attempts, redact_jobs, redact_tasks
from aaiclick.data.preview import preview_result as in_words
from aaiclick.operations import jobs as operations
from aaiclick.operations.actor import Permission
from aaiclick.operations.pagination import make_page, read_id_cursor
from aaiclick.operations.visibility import dataset_reader
from aaiclick.orchestration.submit_plan import collect_unsubmitted, make_plan
from aaiclick.orchestration.tracing import get_tracing
from aaiclick.server.idempotency import IdempotencyKey, run_idempotent
from aaiclick.server.job_graph import build_nodes
from aaiclick.server.pagination import Cursor, Limit
from aaiclick.server.routes.common import (
    argument_tables,
    get_own_job,
    set_etag,
    tenant_connection,
    write_audit,
)
from aaiclick.server.routing import Context, PathId, Routes
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.engine import queries
from aaiclick.store.engine.plan import Plan
from aaiclick.store.engine.submit import NewJob, submit_job

if TYPE_CHECKING:
    from aaiclick.store.connections import Connection

routes = Routes("jobs")

MAX_RESULTS = 5

_JOB_FIELDS = tuple(Job.model_fields)


@routes.post(
    "/v1/jobs",
    Permission.WRITER,
    status_code=HTTPStatus.CREATED,
    response_model=CreatedResponse,
)
async def create_job(context: Context, request: Request, body: JobRequest, key: IdempotencyKey = None) -> Response:
    """Submit a job: one entry point, or a graph of tasks."""
    plan, names = await asyncio.to_thread(_plan_job, body)
    timeout = body.timeout_seconds or context.app_state.settings.job_default_timeout_seconds
    new_job = NewJob(get_snowflake_id(), body.name, context.actor.org_id, timeout, body.idempotency_key)

    async def submit(connection: Connection) -> BaseModel:
        job_id = await submit_job(connection, new_job, plan, names)
        if job_id == new_job.id:
            await write_audit(context, connection, "job.create", job_id, {"name": body.name, "tasks": len(plan.tasks)})
            if (tracing := get_tracing()) is not None:
                tracing.record_submission(job_id, new_job.org_id, new_job.name, len(plan.tasks))
        return CreatedResponse(id=job_id)

    return await run_idempotent(context, request, key, submit)


def _plan_job(body: JobRequest) -> tuple[Plan, dict[int, str]]:
    """Plan of a job and names of its nodes. Runs in a thread, since a large graph takes long."""
    plan, names = make_plan(collect_unsubmitted(build_nodes(body)))
    plan.tables = argument_tables(plan.tasks)
    return plan, names


@routes.get("/v1/jobs", Permission.READER)
async def list_jobs(
    context: Context, status: JobState | None = None, cursor: Cursor = None, limit: Limit = 100
) -> Page[Job]:
    """List jobs, newest first."""
    async with tenant_connection(context) as connection:
        rows = await queries.list_jobs(
            connection,
            status=status,
            org_id=context.actor.org_id,
            before=read_id_cursor(cursor, queries.LAST_ID),
            limit=limit + 1,
        )
        visible_rows = await redact_jobs(connection, await dataset_reader(connection, context.actor), rows)
    return make_page(visible_rows, limit, to_job, lambda row: row["id"])


@routes.get("/v1/jobs/{job_id}", Permission.READER, response_model=Job)
async def get_job(context: Context, request: Request, response: Response, job_id: PathId) -> Any:
    """Get a job."""
    async with tenant_connection(context) as connection:
        row = await get_own_job(context, connection, job_id)
        (visible_row,) = await redact_jobs(connection, await dataset_reader(connection, context.actor), [row])
    # No ETag on a redacted row: read permissions may change while the row does not.
    if visible_row is row and set_etag(request, response, row["id"], row["updated_at"]):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=dict(response.headers))
    return to_job(visible_row)


@routes.get("/v1/jobs/{job_id}/progress", Permission.READER)
async def get_job_progress(context: Context, job_id: PathId) -> list[GroupProgress]:
    """Get the progress of each group of a job."""
    async with tenant_connection(context) as connection:
        await get_own_job(context, connection, job_id)
        rows = await queries.load_job_progress(connection, job_id)
    return [
        GroupProgress(group=row["name"], **{name: row[name] for name in GroupProgress.model_fields if name in row})
        for row in (dict(row) for row in rows)
    ]


@routes.get("/v1/jobs/{job_id}/results", Permission.READER)
async def get_job_results(context: Context, job_id: PathId) -> list[JobResult]:
    """Get results of a job: those of its first tasks without dependents."""
    async with tenant_connection(context) as connection:
        await get_own_job(context, connection, job_id)
        result_rows = await queries.load_job_results(connection, job_id, MAX_RESULTS)
        rows = await redact_tasks(connection, await dataset_reader(connection, context.actor), result_rows)
    endpoint = await context.app_state.clickhouse_endpoint(context.actor.org_id)
    return [
        JobResult(task_id=row["id"], name=row["name"], value=await in_words(json.loads(row["result"]), endpoint))
        for row in rows
    ]


@routes.get("/v1/jobs/{job_id}/events", Permission.READER)
async def get_job_events(context: Context, job_id: PathId) -> list[JobEvent]:
    """List events of a job: start, unsuccessful attempts (the last thousand), end."""
    async with tenant_connection(context) as connection:
        reader = await dataset_reader(connection, context.actor)
        (row,) = await redact_jobs(connection, reader, [await get_own_job(context, connection, job_id)])
        attempts = await redact_attempts(connection, reader, await queries.list_job_attempts(connection, job_id))
    job_events = [
        JobEvent(at=row[column], kind=event_name, detail=row["error"] if event_name == "ended" else None)
        for column, event_name in (
            ("created_at", "created"),
            ("started_at", "started"),
            ("cancel_requested_at", "cancel_requested"),
            ("completed_at", "ended"),
        )
        if row[column] is not None
    ]
    job_events += [
        JobEvent(
            at=attempt["ended_at"],
            kind=f"attempt_{attempt['outcome'].lower()}",
            task_id=attempt["task_id"],
            attempt=attempt["attempt"],
            detail=attempt["error"],
        )
        for attempt in attempts
    ]
    return sorted(job_events, key=lambda event: event.at)


@routes.post("/v1/jobs/{job_id}/cancel", Permission.WRITER)
async def cancel_job(context: Context, job_id: PathId) -> CancelResponse:
    """Cancel a job: waiting tasks end at once, running ones are requested to stop."""
    return await context.perform(operations.cancel_job, job_id)


@routes.post("/v1/jobs/{job_id}/retry", Permission.WRITER)
async def retry_job(
    context: Context, job_id: PathId, cancelled: Annotated[bool, Query(description="Cancelled tasks too")] = False
) -> ChangedIdsResponse:
    """Retry the failed tasks of a job and their cancelled dependents."""
    return await context.perform(operations.retry_job, job_id, cancelled=cancelled)


@routes.post("/v1/jobs/{job_id}/release", Permission.WRITER)
async def release_job(context: Context, job_id: PathId) -> ReleasedTablesResponse:
    """Release the results of an ended job: their tables are dropped unless something else refers to them."""
    return await context.perform(operations.release_job, job_id)


@routes.post("/v1/jobs/{job_id}/pause", Permission.WRITER, status_code=HTTPStatus.NO_CONTENT)
async def pause_job(context: Context, job_id: PathId) -> None:
    """Pause a job: none of its tasks starts."""
    await context.perform(operations.pause_job, job_id)


@routes.post("/v1/jobs/{job_id}/resume", Permission.WRITER, status_code=HTTPStatus.NO_CONTENT)
async def resume_job(context: Context, job_id: PathId) -> None:
    """Resume a paused job."""
    await context.perform(operations.resume_job, job_id)


def to_job(row: Any) -> Job:
    """Convert a row to the response schema."""
    return Job(**{name: row[name] for name in _JOB_FIELDS})
