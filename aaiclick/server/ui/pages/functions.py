"""Job function pages: the `@job`s that workers have registered, and the form that runs one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from aaiclick.errors import AaiclickError, SubmitError
from aaiclick.operations import job_functions as operations
from aaiclick.operations.actor import Permission
from aaiclick.operations.job_and_task_lookups import find_job
from aaiclick.server.ui.pages.jobs import parse_id
from aaiclick.server.ui.parameter_form import make_fields, parse_form
from aaiclick.server.ui.read_transaction import read_transaction
from aaiclick.server.ui.routing import PageRequest, Pages

pages = Pages()

MAX_ROWS = 100


@pages.get("/functions", Permission.READER)
async def list_functions(page: PageRequest) -> Response:
    cursor = page.query_param("cursor") or None
    listed = await page.call.perform(operations.list_job_functions, cursor=cursor, limit=MAX_ROWS)
    return page.render("functions.html", functions=listed.items, next_cursor=listed.next)


@pages.get("/functions/{entrypoint}", Permission.READER)
async def show_function(page: PageRequest) -> Response:
    """Show a function and the form that runs it; `?job=ID` fills in the arguments of that job."""
    arguments = await _load_arguments(page, parse_id(page.query_param("job")))
    return await _render_function(page, arguments)


@pages.post("/functions/{entrypoint}/run", Permission.WRITER)
async def run_function(page: PageRequest) -> Response:
    entrypoint = str(page.request.path_params["entrypoint"])
    function = await page.call.perform(operations.get_job_function, entrypoint)
    arguments = parse_form(function.parameters, page.form)
    try:
        created = await page.call.perform(operations.run_job_function, entrypoint, arguments)
    except SubmitError as error:
        return await _render_function(page, arguments, error)
    return page.redirect(f"/jobs/{created.id}", f"Started job {created.id}.")


async def _render_function(
    page: PageRequest, arguments: Mapping[str, object], error: AaiclickError | None = None
) -> Response:
    entrypoint = str(page.request.path_params["entrypoint"])
    function = await page.call.perform(operations.get_job_function, entrypoint)
    return page.render(
        "function.html",
        HTTPStatus.OK if error is None else HTTPStatus.UNPROCESSABLE_ENTITY,
        function=function,
        fields=make_fields(function.parameters, arguments),
        path=f"/functions/{quote(entrypoint, safe='')}",
        error=error,
    )


async def _load_arguments(page: PageRequest, job_id: int | None) -> Mapping[str, Any]:
    """Arguments of a job, if it is known by which call it was submitted."""
    if job_id is None:
        return {}
    async with read_transaction(page.call) as connection:
        job = await find_job(connection, page.caller, job_id)
    trigger: dict[str, Any] = {} if job["trigger"] is None else json.loads(job["trigger"])
    return trigger.get("arguments") or {}
