"""Worker pages: list, tasks in progress, drain."""

from __future__ import annotations

from datetime import UTC, datetime

from starlette.responses import Response

from aaiclick.operations import workers as operations
from aaiclick.operations.actor import Permission
from aaiclick.operations.row_conversion import to_worker
from aaiclick.server.routes.common import tenant_connection
from aaiclick.server.ui.pages.job import parse_path_id
from aaiclick.server.ui.routing import PageRequest, Pages
from aaiclick.store.ui import job_queries

pages = Pages()

MAX_WORKERS = 100
LATE_HEARTBEAT_SECONDS = 90


@pages.get("/workers", Permission.READER)
async def list_workers(page: PageRequest) -> Response:
    stopped = page.query_param("stopped") == "yes"
    org = page.caller.org_id
    async with tenant_connection(page.call) as connection:
        worker_rows = await job_queries.list_org_workers(
            connection, org, stopped=stopped, limit=MAX_WORKERS + 1, offset=page.offset
        )
        busy = await job_queries.count_tasks_by_worker(connection, org)
    rows = worker_rows[:MAX_WORKERS]
    workers = [to_worker(page.caller, row) for row in rows]
    return page.render(
        "workers.html",
        workers=workers,
        more=len(worker_rows) > MAX_WORKERS,
        busy=busy,
        stopped=stopped,
        now=datetime.now(UTC),
        late_seconds=LATE_HEARTBEAT_SECONDS,
    )


@pages.get("/workers/{worker_id:id}", Permission.READER)
async def show_worker(page: PageRequest) -> Response:
    worker_id = parse_path_id(page, "worker_id")
    worker = await page.call.perform(operations.get_worker, worker_id)
    async with tenant_connection(page.call) as connection:
        tasks = await job_queries.list_worker_tasks(connection, worker_id)
    return page.render("worker.html", worker=worker, tasks=tasks, now=datetime.now(UTC))


@pages.post("/workers/{worker_id:id}/drain", Permission.OPERATOR)
async def drain_worker(page: PageRequest) -> Response:
    """Ask a worker to finish its tasks and stop."""
    await page.call.perform(operations.drain_worker, parse_path_id(page, "worker_id"))
    return page.redirect_back("Worker is draining. It finishes its tasks, then stops.")
