"""Jobs: submit, look, end, start over."""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Query, Request, Response
from pydantic import BaseModel

from aaiclick.catalog.readable import as_seen, attempts_as_seen, jobs_as_seen
from aaiclick.data.shown import show as in_words
from aaiclick.orchestration.planning import closure, make_plan
from aaiclick.orchestration.tracing import get_tracing
from aaiclick.server import shapes
from aaiclick.server.graphs import nodes_of
from aaiclick.server.once import IdempotencyKey, once
from aaiclick.server.paging import Cursor, Limit, Page, id_cursor, page
from aaiclick.server.permissions import Permission
from aaiclick.server.routes.common import changed, changing, given_tables, note, own_job, reading, tagged, text_id
from aaiclick.server.routes.datasets import reader
from aaiclick.server.routing import Caller, Routes
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store import control, reads
from aaiclick.store.plan import Plan
from aaiclick.store.submit import NewJob, submit_job
from aaiclick.store.tables import release_jobs

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

routes = Routes("jobs")

RESULTS = 5

_FIELDS = tuple(shapes.Job.model_fields)


@routes.post(
    "/v1/jobs",
    Permission.WRITER,
    status_code=HTTPStatus.CREATED,
    response_model=shapes.Created,
)
async def create(call: Caller, request: Request, body: shapes.NewJob, key: IdempotencyKey = None) -> Response:
    """Submit a job: one entry point, or a graph of tasks."""
    plan, names = await asyncio.to_thread(_plan, body)
    timeout = body.timeout_seconds or call.service.settings.job_default_timeout_seconds
    new = NewJob(get_snowflake_id(), body.name, call.principal.org_id, timeout, body.idempotency_key)

    async def work(connection: Connection) -> BaseModel:
        job_id = await submit_job(connection, new, plan, names)
        if job_id == new.id:
            await note(call, connection, "job.create", job_id, {"name": body.name, "tasks": len(plan.tasks)})
            if (tracing := get_tracing()) is not None:
                tracing.submitted(job_id, new.org_id, new.name, len(plan.tasks))
        return shapes.Created(id=str(job_id))

    return await once(call, request, key, work)


def _plan(body: shapes.NewJob) -> tuple[Plan, dict[int, str]]:
    """The plan of a job and the names of its nodes. Takes long for a large graph, so it runs in a thread."""
    plan, names = make_plan(closure(nodes_of(body)))
    plan.tables = given_tables(plan.tasks)
    return plan, names


@routes.get("/v1/jobs", Permission.READER)
async def index(
    call: Caller, status: shapes.JobState | None = None, cursor: Cursor = None, limit: Limit = 100
) -> Page[shapes.Job]:
    """List jobs, newest first."""
    async with reading(call) as connection:
        rows = await reads.list_jobs(
            connection,
            status=status,
            org_id=call.principal.org_id,
            before=id_cursor(cursor, reads.LAST_ID),
            limit=limit + 1,
        )
        seen = await jobs_as_seen(connection, await reader(call, connection), rows)
    return page(seen, limit, job, lambda row: row["id"])


@routes.get("/v1/jobs/{job_id}", Permission.READER, response_model=shapes.Job)
async def show(call: Caller, request: Request, response: Response, job_id: shapes.PathId) -> Any:
    """Show a job."""
    async with reading(call) as connection:
        row = await own_job(call, connection, job_id)
        (seen,) = await jobs_as_seen(connection, await reader(call, connection), [row])
    # Of what is cut, who may read what is a part; and that may change while the row does not.
    if seen is row and tagged(request, response, row["id"], row["updated_at"]):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=dict(response.headers))
    return job(seen)


@routes.get("/v1/jobs/{job_id}/progress", Permission.READER)
async def progress(call: Caller, job_id: shapes.PathId) -> list[shapes.Progress]:
    """Show how far each group of a job is."""
    async with reading(call) as connection:
        await own_job(call, connection, job_id)
        rows = await reads.job_progress(connection, job_id)
    return [
        shapes.Progress(group=row["name"], **{name: row[name] for name in shapes.Progress.model_fields if name in row})
        for row in (dict(row) for row in rows)
    ]


@routes.get("/v1/jobs/{job_id}/results", Permission.READER)
async def results(call: Caller, job_id: shapes.PathId) -> list[shapes.Result]:
    """Show what a job came to: the results of tasks that nothing waits for, a few of them."""
    async with reading(call) as connection:
        await own_job(call, connection, job_id)
        found = await reads.job_results(connection, job_id, RESULTS)
        rows = await as_seen(connection, await reader(call, connection), found)
    target = await call.service.clickhouse(call.principal.org_id)
    return [
        shapes.Result(task_id=str(row["id"]), name=row["name"], value=await in_words(json.loads(row["result"]), target))
        for row in rows
    ]


@routes.get("/v1/jobs/{job_id}/events", Permission.READER)
async def events(call: Caller, job_id: shapes.PathId) -> list[shapes.Event]:
    """Show what happened to a job: its beginning, attempts that did not succeed (the last thousand), its end."""
    async with reading(call) as connection:
        who = await reader(call, connection)
        (row,) = await jobs_as_seen(connection, who, [await own_job(call, connection, job_id)])
        attempts = await attempts_as_seen(connection, who, await reads.job_attempts(connection, job_id))
    found = [
        shapes.Event(at=row[column], kind=kind, detail=row["error"] if kind == "ended" else None)
        for column, kind in (
            ("created_at", "created"),
            ("started_at", "started"),
            ("cancel_requested_at", "cancel_requested"),
            ("completed_at", "ended"),
        )
        if row[column] is not None
    ]
    found += [
        shapes.Event(
            at=each["ended_at"],
            kind=f"attempt_{each['outcome'].lower()}",
            task_id=str(each["task_id"]),
            attempt=each["attempt"],
            detail=each["error"],
        )
        for each in attempts
    ]
    return sorted(found, key=lambda event: event.at)


@routes.post("/v1/jobs/{job_id}/cancel", Permission.WRITER)
async def cancel(call: Caller, job_id: shapes.PathId) -> shapes.Cancelled:
    """Cancel a job: waiting tasks end at once, running ones are told to stop."""
    async with changing(call) as connection:
        await own_job(call, connection, job_id)
        outcome = await control.cancel_job(connection, job_id)
        await note(call, connection, "job.cancel", job_id)
    return shapes.Cancelled(outcome=outcome)


@routes.post("/v1/jobs/{job_id}/retry", Permission.WRITER)
async def retry(
    call: Caller, job_id: shapes.PathId, cancelled: Annotated[bool, Query(description="Cancelled tasks too")] = False
) -> shapes.Changed:
    """Start over what failed in a job, and what was cancelled because of it."""
    async with changing(call) as connection:
        await own_job(call, connection, job_id)
        back = await control.retry_failed_tasks(connection, job_id, cancelled=cancelled)
        await note(call, connection, "job.retry", job_id, {"tasks": len(back)})
    return changed(back)


@routes.post("/v1/jobs/{job_id}/release", Permission.WRITER)
async def release(call: Caller, job_id: shapes.PathId) -> shapes.Released:
    """Let go of the results of a job that is over: their tables are dropped unless somebody else needs them."""
    async with changing(call) as connection:
        await own_job(call, connection, job_id)
        tables = await release_jobs(connection, [job_id])
        await note(call, connection, "job.release", job_id, {"tables": tables})
    return shapes.Released(tables=tables)


@routes.post("/v1/jobs/{job_id}/pause", Permission.WRITER, status_code=HTTPStatus.NO_CONTENT)
async def pause(call: Caller, job_id: shapes.PathId) -> None:
    """Let nothing more of a job begin."""
    async with changing(call) as connection:
        await own_job(call, connection, job_id)
        await control.pause_job(connection, job_id)
        await note(call, connection, "job.pause", job_id)


@routes.post("/v1/jobs/{job_id}/resume", Permission.WRITER, status_code=HTTPStatus.NO_CONTENT)
async def resume(call: Caller, job_id: shapes.PathId) -> None:
    """Let a paused job go on."""
    async with changing(call) as connection:
        await own_job(call, connection, job_id)
        await control.resume_job(connection, job_id)
        await note(call, connection, "job.resume", job_id)


def job(row: Any) -> shapes.Job:
    """A job as it leaves."""
    return shapes.Job(**{name: row[name] for name in _FIELDS if name != "id"}, id=text_id(row["id"]) or "")
