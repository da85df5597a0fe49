"""Operations on job functions: the `@job`s that workers have registered."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import accumulate
from typing import TYPE_CHECKING

from aaiclick.api.field_types import CreatedResponse, Page
from aaiclick.api.job_functions import FunctionRun, JobFunction, JobFunctionDetail
from aaiclick.operations.actor import Actor, Permission
from aaiclick.operations.operation import operation, write_audit
from aaiclick.operations.pagination import make_page, read_text_cursor
from aaiclick.operations.row_conversion import from_row
from aaiclick.orchestration.function_registry import run_job_function as submit_function_job
from aaiclick.orchestration.function_registry import unknown_job_function
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.engine import job_functions as store
from aaiclick.store.job_policy import JobPolicy

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.postgres_connections import Connection

SHOWN_JOBS = 20
MAX_PAGE_CHARACTERS = 1_000_000
"""Maximum length of the schemas and the documentation of one page, except for a single function."""


@operation(Permission.READER, changes=False)
async def list_job_functions(
    connection: Connection, actor: Actor, *, cursor: str | None = None, limit: int = 100
) -> Page[JobFunction]:
    """List job functions by entrypoint."""
    after = read_text_cursor(cursor) or ""
    rows = await store.list_job_functions(connection, actor.org_id, after=after, limit=limit + 1)
    sizes = accumulate(len(row["parameters"]) + len(row["documentation"]) for row in rows)
    limit = min(limit, max(sum(size <= MAX_PAGE_CHARACTERS for size in sizes), 1))
    return make_page(rows, limit, _to_job_function, lambda row: row["entrypoint"])


@operation(Permission.READER, changes=False)
async def get_job_function(connection: Connection, actor: Actor, entrypoint: str) -> JobFunctionDetail:
    """Get a job function with its last jobs."""
    row = await store.find_job_function(connection, actor.org_id, entrypoint)
    if row is None:
        raise unknown_job_function(entrypoint)
    jobs = await store.list_named_jobs(connection, actor.org_id, row["name"], SHOWN_JOBS)
    last = jobs[0] if jobs else None
    return from_row(
        JobFunctionDetail,
        row,
        parameters=json.loads(row["parameters"]),
        tags=json.loads(row["tags"]),
        policy=JobPolicy.from_json(row["policy"]),
        last_job_id=None if last is None else last["id"],
        last_job_status=None if last is None else last["status"],
        last_job_at=None if last is None else last["created_at"],
        jobs=[from_row(FunctionRun, job) for job in jobs],
    )


@operation(Permission.WRITER, as_owner=True)
async def run_job_function(
    connection: Connection, actor: Actor, entrypoint: str, arguments: Mapping[str, object] | None = None
) -> CreatedResponse:
    """Validate arguments and submit a job of a function."""
    new_id = get_snowflake_id()
    job_id, name = await submit_function_job(connection, actor.org_id, entrypoint, arguments or {}, new_id=new_id)
    if job_id == new_id:
        await write_audit(connection, actor, "job.create", job_id, {"name": name, "entrypoint": entrypoint})
    return CreatedResponse(id=job_id)


def _to_job_function(row: asyncpg.Record) -> JobFunction:
    return from_row(
        JobFunction,
        row,
        parameters=json.loads(row["parameters"]),
        tags=json.loads(row["tags"]),
        policy=JobPolicy.from_json(row["policy"]),
        last_job_id=row["job_id"],
        last_job_status=row["job_status"],
        last_job_at=row["job_at"],
    )
