"""Routes of jobs: submit, list, cancel, retry, pause."""

from __future__ import annotations

import asyncio
import json
from dataclasses import fields, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

from fastapi import Query, Request, Response
from pydantic import BaseModel

from aaiclick.api.field_types import MAX_ID, ChangedIdsResponse, CreatedResponse, JobState, Page
from aaiclick.api.jobs import (
    GroupProgress,
    Job,
    JobCall,
    JobEvent,
    JobRequest,
    JobResult,
    JobTreeNode,
    ReleasedTablesResponse,
    RerunRequest,
)
from aaiclick.api.tasks import CancelResponse
from aaiclick.errors import SubmitError
from aaiclick.operations import jobs as operations
from aaiclick.operations.actor import Permission
from aaiclick.operations.enqueue import argument_tables
from aaiclick.operations.operation import write_audit
from aaiclick.orchestration.function_registry import check_registered_arguments
from aaiclick.orchestration.job_labels import check_labels, dump_labels, make_trigger, parse_tags, registered_labels
from aaiclick.orchestration.jobs_by_function_name import add_function_handlers
from aaiclick.orchestration.submit_plan import collect_unsubmitted, make_plan
from aaiclick.orchestration.tracing import get_tracing
from aaiclick.server.idempotency import IdempotencyKey, run_idempotent
from aaiclick.server.job_graph_builder import build_nodes
from aaiclick.server.pagination import Cursor, Limit
from aaiclick.server.routes.common import respond_if_changed
from aaiclick.server.routing import Context, PathId, Routes
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.engine.submission_plan import Plan
from aaiclick.store.engine.submit import NewJob, submit_job
from aaiclick.store.job_policy import DEFAULT_POLICY, JobPolicy

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

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
    default_timeout = context.app_state.settings.job_default_timeout_seconds
    new_job = _make_job(context.actor.org_id, body)

    async def submit(connection: Connection) -> BaseModel:
        job = await _apply_registered_options(connection, new_job, body)
        job = replace(job, timeout_seconds=job.timeout_seconds or default_timeout)
        full_plan = plan if body.entrypoint is None else add_function_handlers(plan, job.policy)
        job_id = await submit_job(connection, job, full_plan, names)
        if job_id == new_job.id:
            detail = {"name": body.name, "tasks": len(full_plan.tasks)}
            await write_audit(connection, context.audited_actor, "job.create", job_id, detail)
            if (tracing := get_tracing()) is not None:
                tracing.record_submission(job_id, new_job.org_id, new_job.name, len(full_plan.tasks))
        return CreatedResponse(id=job_id)

    return await run_idempotent(context, request, key, submit)


def _make_job(org_id: UUID, body: JobRequest) -> NewJob:
    """The job of a request; raises SubmitError for tags that cannot be stored."""
    call = body.call or (
        None if body.entrypoint is None else JobCall(entrypoint=body.entrypoint, arguments=body.kwargs)
    )
    trigger = None if call is None else make_trigger(call.entrypoint.replace(":", "."), call.arguments)
    labels = check_labels(f"The job {body.name!r:.80}", body.tags, body.owner)
    policy = replace(DEFAULT_POLICY, **_policy_fields(body))
    return NewJob(
        get_snowflake_id(), body.name, org_id, body.timeout_seconds, body.idempotency_key, trigger=trigger,
        tags=dump_labels(labels), policy=policy, pinned_version=policy.find_pinned_version(None),
    )  # fmt: skip


def _policy_fields(body: JobRequest) -> dict[str, Any]:
    """Fields of `JobPolicy` that a request has."""
    return body.model_dump(include={field.name for field in fields(JobPolicy)}, exclude_none=True)


async def _apply_registered_options(connection: Connection, job: NewJob, body: JobRequest) -> NewJob:
    """The job with the options of its registered function that the request does not have.

    Raises SubmitError for wrong arguments, and for a version or a policy that lacks what it refers to.
    """
    row = None
    if body.entrypoint is not None:
        entrypoint = body.entrypoint.replace(":", ".")
        row = await check_registered_arguments(connection, job.org_id, entrypoint, body.kwargs)
    if row is None:
        if body.pin_version is True or (body.when_busy is not None and body.concurrency is None):
            raise SubmitError(
                "The request has 'pin_version': true or 'when_busy', and its entry point is no registered @job.",
                remedy="Name a version, and add 'concurrency'.",
            )
        return job
    policy = replace(JobPolicy.from_json(row["policy"]), **_policy_fields(body))
    registered: dict[str, str] = json.loads(registered_labels(row) or "{}")
    labels: dict[str, str] = json.loads(job.tags or "{}")
    return replace(
        job,
        timeout_seconds=job.timeout_seconds or row["timeout_seconds"],
        tags=dump_labels(registered | labels),
        policy=policy,
        pinned_version=policy.require_pinned_version(row["code_version"], row["entrypoint"]),
    )


def _plan_job(body: JobRequest) -> tuple[Plan, dict[int, str]]:
    """Plan of a job and names of its nodes. Runs in a thread, since a large graph takes long."""
    plan, names = make_plan(collect_unsubmitted(build_nodes(body)))
    plan.tables = argument_tables(plan.tasks)
    return plan, names


@routes.get("/v1/jobs", Permission.READER)
async def list_jobs(
    context: Context,
    status: JobState | None = None,
    tag: Annotated[list[str] | None, Query(description="NAME=VALUE; may be repeated", max_length=20)] = None,
    owner: Annotated[str | None, Query(max_length=200)] = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Page[Job]:
    """List jobs, newest first; with all of the tags and this owner."""
    tags = parse_tags(tag or [])
    return await context.perform(
        operations.list_jobs, status=status, tags=tags, owner=owner, cursor=cursor, limit=limit
    )


@routes.get("/v1/jobs/{job_id}", Permission.READER, response_model=Job)
async def get_job(context: Context, request: Request, response: Response, job_id: PathId) -> Job | Response:
    """Get a job."""
    return respond_if_changed(request, response, await context.perform(operations.get_job, job_id))


@routes.get("/v1/jobs/{job_id}/tree", Permission.READER)
async def get_job_tree(context: Context, job_id: PathId) -> list[JobTreeNode]:
    """Get a job with the child jobs below it."""
    return await context.perform(operations.get_job_tree, job_id)


@routes.get("/v1/jobs/{job_id}/progress", Permission.READER)
async def get_job_progress(context: Context, job_id: PathId) -> list[GroupProgress]:
    """Get the progress of each group of a job."""
    return await context.perform(operations.get_job_progress, job_id)


@routes.get("/v1/jobs/{job_id}/results", Permission.READER)
async def get_job_results(
    context: Context, job_id: PathId, after: Annotated[int, Query(ge=0, le=MAX_ID)] = 0
) -> list[JobResult]:
    """Get results of a job: up to 100 of tasks without dependents, after the task `after`; fewer of large results."""
    return await context.perform(operations.get_job_results, job_id, after=after)


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
async def rerun_job(context: Context, job_id: PathId, body: RerunRequest | None = None) -> CreatedResponse:
    """Submit the tasks and arguments of a job as a new job; with `arguments`, its function with these changes."""
    return await context.perform(operations.rerun_job, job_id, arguments=None if body is None else body.arguments)


@routes.post("/v1/jobs/{job_id}/pause", Permission.WRITER, status_code=HTTPStatus.NO_CONTENT)
async def pause_job(context: Context, job_id: PathId) -> None:
    """Pause a job: none of its tasks starts."""
    await context.perform(operations.pause_job, job_id)


@routes.post("/v1/jobs/{job_id}/resume", Permission.WRITER, status_code=HTTPStatus.NO_CONTENT)
async def resume_job(context: Context, job_id: PathId) -> None:
    """Resume a paused job."""
    await context.perform(operations.resume_job, job_id)
