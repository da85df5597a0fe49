"""Task page: error, log, attempts, arguments, result and neighbours."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from starlette.responses import Response

from aaiclick.catalog.dataset_visibility import (
    REDACTED_ERROR,
    explain_waiting,
    hidden_task_ids,
    redact_attempts,
    redact_tasks,
)
from aaiclick.errors import AaiclickError
from aaiclick.operations import objects
from aaiclick.operations import tasks as operations
from aaiclick.operations.actor import Permission
from aaiclick.operations.dataset_reader import dataset_reader
from aaiclick.operations.job_and_task_lookups import find_task
from aaiclick.operations.log_files import log_path, read_part
from aaiclick.server.routes import tasks as api
from aaiclick.server.routes.common import tenant_connection
from aaiclick.server.ui.pages.job import parse_path_id
from aaiclick.server.ui.routing import PageRequest, Pages
from aaiclick.server.ui.template_filters import CANCELLATIONS
from aaiclick.store.catalog import data_test_results
from aaiclick.store.engine import queries, user_actions
from aaiclick.store.enums import Cancellation
from aaiclick.store.ui import job_queries

if TYPE_CHECKING:
    from aaiclick.store.catalog.datasets import Reader

pages = Pages()

TAIL_BYTES = 64_000
MAX_PREVIEWS = 3
PREVIEW_ROWS = 10
PREVIEW_SECONDS = 3.0
MAX_ROWS = 200


@pages.get("/tasks/{task_id:id}", Permission.READER)
async def show_task(page: PageRequest) -> Response:
    task_id = parse_path_id(page, "task_id")
    async with tenant_connection(page.call) as connection:
        task = await find_task(connection, page.caller, task_id)
        reader = await dataset_reader(connection, page.caller)
        (redacted,) = await redact_tasks(connection, reader, [task])
        hidden = bool(await hidden_task_ids(connection, reader, [task_id]))
        job = None if task["job_id"] is None else await queries.get_job(connection, task["job_id"])
        attempts = await redact_attempts(connection, reader, await queries.list_task_attempts(connection, task_id))
        reasons = await explain_waiting(connection, reader, task_id) if task["completed_at"] is None else []
        neighbours = await job_queries.list_neighbours(connection, task_id)
        tests = await data_test_results.list_task_tests(connection, reader, task_id)
    text, end = "", 0
    if not hidden:
        text, end = await read_part(log_path(page.app_state.settings, task_id), -TAIL_BYTES, TAIL_BYTES)
    kwargs = json.loads(redacted["kwargs"])
    result = None if redacted["result"] is None else json.loads(redacted["result"])
    previews = await _load_previews(page, reader, {"result": result, **kwargs})
    samples: dict[str, object] = {
        test.test: {"object_type": "object", "table_id": test.sample_table} for test in tests if test.sample_table
    }
    return page.render(
        "task.html",
        task=redacted,
        withheld=REDACTED_ERROR if hidden else None,
        job=job,
        attempts=sorted(attempts, key=lambda row: -row["attempt"]),
        reasons=reasons,
        up=[row for row in neighbours if row["up"]],
        down=[row for row in neighbours if not row["up"]],
        log=text,
        log_cut=end > TAIL_BYTES,
        kwargs=kwargs,
        result=result,
        previews=previews,
        tests=tests[::-1],
        samples=await _load_previews(page, reader, samples),
        now=datetime.now(UTC),
    )


async def _load_previews(page: PageRequest, reader: Reader, values: dict[str, object]) -> list[dict[str, object]]:
    """Load the first rows of the Objects among these values; errors are shown in place of the rows.

    Readers share them only with others that may read the same.
    """
    tables = {
        name: str(cast("dict[str, Any]", value).get("table_id"))
        for name, value in values.items()
        if isinstance(value, dict) and cast("dict[str, Any]", value).get("object_type") in ("object", "view")
    }
    if not tables:
        return []
    cache = page.ui_state.cache
    return await asyncio.gather(
        *(
            cache.get(
                ("rows", reader, name, table),
                lambda name=name, table=table: _load_preview(page, name, table),
                min_ttl_seconds=5,
            )
            for name, table in list(tables.items())[:MAX_PREVIEWS]
        )
    )


async def _load_preview(page: PageRequest, name: str, table: str) -> dict[str, object]:
    preview: dict[str, object] = {"name": name, "table": table, "rows": [], "problem": None}
    try:
        async with asyncio.timeout(PREVIEW_SECONDS):
            response = await page.call.perform(objects.preview_object, table, limit=PREVIEW_ROWS)
            preview["rows"] = response.rows
    except TimeoutError:
        preview["problem"] = "ClickHouse did not respond in time."
    except AaiclickError as error:
        preview["problem"] = error.what
    return preview


@pages.get("/tasks/{task_id:id}/log", Permission.READER)
async def follow_log(page: PageRequest) -> Response:
    """Stream the task's log."""
    return await api.follow_task_log(page.call, parse_path_id(page, "task_id"))


@pages.get("/tasks/{task_id:id}/clear", Permission.WRITER)
async def confirm_clear(page: PageRequest) -> Response:
    """Show which tasks would run again and ask for confirmation."""
    task_id = parse_path_id(page, "task_id")
    async with tenant_connection(page.call) as connection:
        task = await find_task(connection, page.caller, task_id)
        ids = await user_actions.list_cleared_tasks(connection, task_id)
        rows = await job_queries.load_task_names(connection, ids[:MAX_ROWS])
    return page.render("clear.html", task=task, tasks=sorted(rows, key=lambda row: row["id"]), count=len(ids))


@pages.post("/tasks/{task_id:id}/clear", Permission.WRITER)
async def clear_task(page: PageRequest) -> Response:
    task_id = parse_path_id(page, "task_id")
    cleared = await page.call.perform(operations.clear_task, task_id)
    return page.redirect(f"/tasks/{task_id}", f"{cleared.count} {'task' if cleared.count == 1 else 'tasks'} cleared.")


@pages.post("/tasks/{task_id:id}/cancel", Permission.WRITER)
async def cancel_task(page: PageRequest) -> Response:
    result = await page.call.perform(operations.cancel_task, parse_path_id(page, "task_id"))
    return page.redirect_back(CANCELLATIONS[result.outcome], is_error=result.outcome is Cancellation.OVER)
