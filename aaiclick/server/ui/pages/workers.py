"""Worker pages: list, tasks in progress, drain."""

from __future__ import annotations

from datetime import UTC, datetime

from starlette.responses import Response

from aaiclick.operations.actor import Permission
from aaiclick.server.routes import workers as api
from aaiclick.server.routes.common import tenant_connection
from aaiclick.server.ui.pages.job import parse_path_id
from aaiclick.server.ui.routing import PageRequest, Pages
from aaiclick.store.engine import queries
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
    workers = [api.to_worker(page.call, row) for row in rows]
    draining = {row["id"] for row in rows if row["drain_requested_at"] is not None and row["stopped_at"] is None}
    return page.render(
        "workers.html",
        workers=workers,
        more=len(worker_rows) > MAX_WORKERS,
        draining=draining,
        busy=busy,
        stopped=stopped,
        now=datetime.now(UTC),
        late_seconds=LATE_HEARTBEAT_SECONDS,
    )


@pages.get("/workers/{worker_id:int}", Permission.READER)
async def show_worker(page: PageRequest) -> Response:
    worker_id = parse_path_id(page, "worker_id")
    worker = await api.get_worker(page.call, worker_id)
    async with tenant_connection(page.call) as connection:
        tasks = await job_queries.list_worker_tasks(connection, worker_id)
        row = await queries.get_worker_for_org(connection, page.caller.org_id, worker_id)
    draining = row is not None and row["drain_requested_at"] is not None and row["stopped_at"] is None
    return page.render("worker.html", worker=worker, tasks=tasks, draining=draining, now=datetime.now(UTC))


@pages.post("/workers/{worker_id:int}/drain", Permission.OPERATOR)
async def drain_worker(page: PageRequest) -> Response:
    """Ask a worker to finish its tasks and stop."""
    await api.drain_worker(page.call, parse_path_id(page, "worker_id"))
    return page.redirect_back("Worker is draining. It finishes its tasks, then stops.")
