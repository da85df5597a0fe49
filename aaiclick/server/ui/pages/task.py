"""One task: what went wrong first, then its attempts, what it says, why it waits, what it got and gave."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Any, cast

from starlette.responses import Response

from aaiclick.catalog.readable import WITHHELD, as_seen, attempts_as_seen, untold, why_as_seen
from aaiclick.data import inspect
from aaiclick.errors import AaiclickError
from aaiclick.server.logs import read_part
from aaiclick.server.permissions import Permission
from aaiclick.server.routes import tasks as api
from aaiclick.server.routes.common import own_task, reading
from aaiclick.server.routes.datasets import reader
from aaiclick.server.ui.pages.job import path_id
from aaiclick.server.ui.routing import Pages, Visit
from aaiclick.server.ui.words import CANCELLATIONS
from aaiclick.store import reads, ui_reads
from aaiclick.store.words import Cancellation

pages = Pages()

TAIL_BYTES = 64_000
PREVIEWED = 3
ROWS = 10
PREVIEW_SECONDS = 3.0
LISTED = 200


@pages.get("/tasks/{task_id:int}", Permission.READER)
async def show(visit: Visit) -> Response:
    task_id = path_id(visit, "task_id")
    async with reading(visit.call) as connection:
        task = await own_task(visit.call, connection, task_id)
        who = await reader(visit.call, connection)
        (seen,) = await as_seen(connection, who, [task])
        hidden = bool(await untold(connection, who, [task_id]))
        job = None if task["job_id"] is None else await reads.get_job(connection, task["job_id"])
        attempts = await attempts_as_seen(connection, who, await reads.task_attempts(connection, task_id))
        reasons = await why_as_seen(connection, who, task_id) if task["completed_at"] is None else []
        near = await ui_reads.neighbours(connection, task_id)
    text, end = "", 0
    if not hidden:
        text, end = await read_part(visit.service.settings, task_id, -TAIL_BYTES, TAIL_BYTES)
    given = json.loads(seen["kwargs"])
    result = None if seen["result"] is None else json.loads(seen["result"])
    previews = await _previews(visit, {"result": result, **given})
    return visit.page(
        "task.html",
        task=seen,
        withheld=WITHHELD if hidden else None,
        job=job,
        attempts=sorted(attempts, key=lambda row: -row["attempt"]),
        reasons=reasons,
        up=[row for row in near if row["up"]],
        down=[row for row in near if not row["up"]],
        log=text,
        log_cut=end > TAIL_BYTES,
        kwargs=given,
        result=result,
        previews=previews,
        now=datetime.now(UTC),
    )


async def _previews(visit: Visit, values: dict[str, Any]) -> list[dict[str, Any]]:
    """The first rows of Objects among these values. One that is gone, or a ClickHouse that is away, says so."""
    tables = {
        name: str(cast("dict[str, Any]", value).get("table_id"))
        for name, value in values.items()
        if isinstance(value, dict) and cast("dict[str, Any]", value).get("object_type") in ("object", "view")
    }
    if not tables:
        return []
    kept, org = visit.house.kept, visit.who.org_id
    return await asyncio.gather(
        *(
            kept.get(("rows", org, name, table), lambda name=name, table=table: _preview(visit, name, table), seconds=5)
            for name, table in list(tables.items())[:PREVIEWED]
        )
    )


async def _preview(visit: Visit, name: str, table: str) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name, "table": table, "rows": [], "problem": None}
    try:
        async with asyncio.timeout(PREVIEW_SECONDS):
            target = await visit.service.clickhouse(visit.who.org_id)
            found["rows"] = await inspect.preview_object(target, table, limit=ROWS)
    except TimeoutError:
        found["problem"] = "ClickHouse needs too long to answer."
    except AaiclickError as error:
        found["problem"] = error.what
    return found


@pages.get("/tasks/{task_id:int}/log", Permission.READER)
async def follow(visit: Visit) -> Response:
    """The log as it is written."""
    return await api.follow(visit.call, path_id(visit, "task_id"))


@pages.get("/tasks/{task_id:int}/clear", Permission.WRITER)
async def ask_clear(visit: Visit) -> Response:
    """What would run again."""
    task_id = path_id(visit, "task_id")
    async with reading(visit.call) as connection:
        task = await own_task(visit.call, connection, task_id)
        ids = await ui_reads.downstream(connection, task_id)
        rows = await ui_reads.tasks_named(connection, ids[:LISTED])
    return visit.page("clear.html", task=task, tasks=sorted(rows, key=lambda row: row["id"]), count=len(ids))


@pages.post("/tasks/{task_id:int}/clear", Permission.WRITER)
async def clear(visit: Visit) -> Response:
    task_id = path_id(visit, "task_id")
    done = await api.clear(visit.call, task_id)
    return visit.go(f"/tasks/{task_id}", f"{done.count} {'task runs' if done.count == 1 else 'tasks run'} again.")


@pages.post("/tasks/{task_id:int}/cancel", Permission.WRITER)
async def cancel(visit: Visit) -> Response:
    done = await api.cancel(visit.call, path_id(visit, "task_id"))
    return visit.back(CANCELLATIONS[done.outcome], bad=done.outcome is Cancellation.OVER)
