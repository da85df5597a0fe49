"""Workers: who is there, what they have in hand, and how to send one home."""

from __future__ import annotations

from datetime import UTC, datetime

from starlette.responses import Response

from aaiclick.server.permissions import Permission
from aaiclick.server.routes import workers as api
from aaiclick.server.routes.common import reading
from aaiclick.server.ui.pages.job import path_id
from aaiclick.server.ui.routing import Pages, Visit
from aaiclick.store import reads, ui_reads

pages = Pages()

LISTED = 100
QUIET_SECONDS = 90


@pages.get("/workers", Permission.READER)
async def index(visit: Visit) -> Response:
    stopped = visit.query("stopped") == "yes"
    org = visit.who.org_id
    async with reading(visit.call) as connection:
        found = await ui_reads.workers(connection, org, stopped=stopped, limit=LISTED + 1, offset=visit.offset)
        busy = await ui_reads.workers_busy(connection, org)
    rows = found[:LISTED]
    workers = [api.shown(visit.call, row) for row in rows]
    draining = {str(row["id"]) for row in rows if row["drain_requested_at"] is not None and row["stopped_at"] is None}
    return visit.page(
        "workers.html",
        workers=workers,
        more=len(found) > LISTED,
        draining=draining,
        busy={str(worker): count for worker, count in busy.items()},
        stopped=stopped,
        now=datetime.now(UTC),
        quiet=QUIET_SECONDS,
    )


@pages.get("/workers/{worker_id:int}", Permission.READER)
async def show(visit: Visit) -> Response:
    worker_id = path_id(visit, "worker_id")
    worker = await api.show(visit.call, worker_id)
    async with reading(visit.call) as connection:
        tasks = await ui_reads.worker_tasks(connection, worker_id)
        row = await reads.worker_of(connection, visit.who.org_id, worker_id)
    draining = row is not None and row["drain_requested_at"] is not None and row["stopped_at"] is None
    return visit.page("worker.html", worker=worker, tasks=tasks, draining=draining, now=datetime.now(UTC))


@pages.post("/workers/{worker_id:int}/drain", Permission.OPERATOR)
async def drain(visit: Visit) -> Response:
    """Have a worker finish what it runs and end."""
    await api.drain(visit.call, path_id(visit, "worker_id"))
    return visit.back("It finishes what it runs, then it ends.")
