"""Routes of job functions: list, show, run."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import Path

from aaiclick.api.field_types import CreatedResponse, Page
from aaiclick.api.job_functions import JobFunction, JobFunctionDetail, RunFunctionRequest
from aaiclick.operations import job_functions as operations
from aaiclick.operations.actor import Permission
from aaiclick.server.pagination import Cursor, Limit
from aaiclick.server.routing import Context, Routes

routes = Routes("functions")

FunctionName = Annotated[str, Path(min_length=1, max_length=500, pattern=r"^[A-Za-z_][\w.]*$")]


@routes.get("/v1/functions", Permission.READER)
async def list_job_functions(context: Context, cursor: Cursor = None, limit: Limit = 100) -> Page[JobFunction]:
    """List the `@job` functions that workers have registered."""
    return await context.perform(operations.list_job_functions, cursor=cursor, limit=limit)


@routes.get("/v1/functions/{function}", Permission.READER)
async def get_job_function(context: Context, function: FunctionName) -> JobFunctionDetail:
    """Get a job function: its documentation, parameters and last jobs."""
    return await context.perform(operations.get_job_function, function)


@routes.post("/v1/functions/{function}/run", Permission.WRITER, status_code=HTTPStatus.CREATED)
async def run_job_function(context: Context, function: FunctionName, body: RunFunctionRequest) -> CreatedResponse:
    """Validate arguments and submit a job."""
    return await context.perform(operations.run_job_function, function, body.arguments)
