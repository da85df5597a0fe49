"""Workers: who is there to run tasks."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Query

from aaiclick.errors import NotFoundError
from aaiclick.server import shapes
from aaiclick.server.paging import Cursor, Limit, Page, id_cursor, page
from aaiclick.server.permissions import Permission
from aaiclick.server.routes.common import note, operating, reading
from aaiclick.server.routing import Call, Caller, Routes
from aaiclick.store import queue, reads

routes = Routes("workers")

_SEEN = (
    "status", "queues", "pool_size", "version", "started_at", "last_heartbeat", "stopped_at", "is_leader",
    "drain_requested_at",
)  # fmt: skip
_INSIDE = ("hostname", "pid", "tasks_completed", "tasks_failed")


@routes.get("/v1/workers", Permission.READER)
async def index(
    call: Caller,
    stopped: Annotated[bool, Query(description="Stopped ones too")] = False,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Page[shapes.Worker]:
    """List workers that serve the organisation."""
    async with reading(call) as connection:
        rows = await reads.workers_of(
            connection, call.principal.org_id, stopped=stopped, after=id_cursor(cursor, 0), limit=limit + 1
        )
    return page(rows, limit, lambda row: shown(call, row), lambda row: row["id"])


@routes.get("/v1/workers/{worker_id}", Permission.READER)
async def show(call: Caller, worker_id: shapes.PathId) -> shapes.Worker:
    """Show a worker."""
    async with reading(call) as connection:
        row = await reads.worker_of(connection, call.principal.org_id, worker_id)
    if row is None:
        raise NotFoundError(f"There is no worker {worker_id}.", remedy="GET /v1/workers lists them.")
    return shown(call, row)


@routes.post("/v1/workers/{worker_id}/drain", Permission.OPERATOR, status_code=HTTPStatus.NO_CONTENT)
async def drain(call: Caller, worker_id: shapes.PathId) -> None:
    """Have a worker finish what it runs and end. It may serve everybody, so this is the operator's to say."""
    async with operating(call) as connection:
        await queue.drain_worker(connection, worker_id)
        await note(call, connection, "worker.drain", worker_id)


def shown(call: Call, row: Any) -> shapes.Worker:
    """How busy a shared worker is tells of other organisations, and where it is of the operator: theirs to know."""
    shared = row["org_id"] is None
    told = _INSIDE if not shared or call.principal.is_operator else ()
    return shapes.Worker(id=str(row["id"]), shared=shared, **{name: row[name] for name in (*_SEEN, *told)})
