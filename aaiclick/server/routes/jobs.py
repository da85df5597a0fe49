"""Routes of jobs: submit, list, cancel, retry, pause."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated

from fastapi import Query, Request, Response
from pydantic import BaseModel

from aaiclick.api.field_types import ChangedIdsResponse, CreatedResponse, JobState, Page
from aaiclick.api.jobs import GroupProgress, Job, JobEvent, JobRequest, JobResult, ReleasedTablesResponse
from aaiclick.api.tasks import CancelResponse
from aaiclick.operations import jobs as operations
from aaiclick.operations.actor import Permission
from aaiclick.operations.operation import write_audit
from aaiclick.orchestration.submit_plan import collect_unsubmitted, make_plan
from aaiclick.orchestration.tracing import get_tracing
from aaiclick.server.idempotency import IdempotencyKey, run_idempotent
from aaiclick.server.job_graph import build_nodes
from aaiclick.server.pagination import Cursor, Limit
from aaiclick.server.routes.common import argument_tables, respond_if_changed
from aaiclick.server.routing import Context, PathId, Routes
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.engine.plan import Plan
from aaiclick.store.engine.submit import NewJob, submit_job

if TYPE_CHECKING:
    from aaiclick.store.connections import Connection

routes = Routes("jobs")


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
            detail = {"name": body.name, "tasks": len(plan.tasks)}
            await write_audit(connection, context.audited_actor, "job.create", job_id, detail)
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
    return await context.perform(operations.list_jobs, status=status, cursor=cursor, limit=limit)


@routes.get("/v1/jobs/{job_id}", Permission.READER, response_model=Job)
async def get_job(context: Context, request: Request, response: Response, job_id: PathId) -> Job | Response:
    """Get a job."""
    return respond_if_changed(request, response, await context.perform(operations.get_job, job_id))


@routes.get("/v1/jobs/{job_id}/progress", Permission.READER)
async def get_job_progress(context: Context, job_id: PathId) -> list[GroupProgress]:
    """Get the progress of each group of a job."""
    return await context.perform(operations.get_job_progress, job_id)


@routes.get("/v1/jobs/{job_id}/results", Permission.READER)
async def get_job_results(context: Context, job_id: PathId) -> list[JobResult]:
    """Get results of a job: those of its first tasks without dependents."""
    return await context.perform(operations.get_job_results, job_id)


@routes.get("/v1/jobs/{job_id}/events", Permission.READER)
async def get_job_events(context: Context, job_id: PathId) -> list[JobEvent]:
    """List events of a job: start, unsuccessful attempts (the last thousand), end."""
    return await context.perform(operations.list_job_events, job_id)


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


@routes.post("/v1/jobs/{job_id}/rerun", Permission.WRITER, status_code=HTTPStatus.CREATED)
async def rerun_job(context: Context, job_id: PathId) -> CreatedResponse:
    """Submit the tasks and arguments of a job as a new job."""
    return await context.perform(operations.rerun_job, job_id)


@routes.post("/v1/jobs/{job_id}/pause", Permission.WRITER, status_code=HTTPStatus.NO_CONTENT)
async def pause_job(context: Context, job_id: PathId) -> None:
    """Pause a job: none of its tasks starts."""
    await context.perform(operations.pause_job, job_id)


@routes.post("/v1/jobs/{job_id}/resume", Permission.WRITER, status_code=HTTPStatus.NO_CONTENT)
async def resume_job(context: Context, job_id: PathId) -> None:
    """Resume a paused job."""
    await context.perform(operations.resume_job, job_id)
