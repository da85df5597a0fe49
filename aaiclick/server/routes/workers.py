"""Routes of workers: list, get and drain."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Query

from aaiclick.api.field_types import Page
from aaiclick.api.workers import Worker
from aaiclick.errors import NotFoundError
from aaiclick.operations.actor import Permission
from aaiclick.operations.pagination import make_page, read_id_cursor
from aaiclick.server.pagination import Cursor, Limit
from aaiclick.server.routes.common import owner_transaction, tenant_connection, write_audit
from aaiclick.server.routing import Context, PathId, RequestContext, Routes
from aaiclick.store.engine import queries, queue

routes = Routes("workers")

_PUBLIC_FIELDS = (
    "status", "queues", "pool_size", "version", "started_at", "last_heartbeat", "stopped_at", "is_leader",
    "drain_requested_at",
)  # fmt: skip
_OPERATOR_FIELDS = ("hostname", "pid", "tasks_completed", "tasks_failed")


@routes.get("/v1/workers", Permission.READER)
async def list_workers(
    context: Context,
    stopped: Annotated[bool, Query(description="Include stopped workers")] = False,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Page[Worker]:
    """List workers that serve the organisation."""
    async with tenant_connection(context) as connection:
        rows = await queries.list_workers_for_org(
            connection, context.actor.org_id, stopped=stopped, after=read_id_cursor(cursor, 0), limit=limit + 1
        )
    return make_page(rows, limit, lambda row: to_worker(context, row), lambda row: row["id"])


@routes.get("/v1/workers/{worker_id}", Permission.READER)
async def get_worker(context: Context, worker_id: PathId) -> Worker:
    """Get a worker."""
    async with tenant_connection(context) as connection:
        row = await queries.get_worker_for_org(connection, context.actor.org_id, worker_id)
    if row is None:
        raise NotFoundError(f"There is no worker {worker_id}.", remedy="GET /v1/workers lists them.")
    return to_worker(context, row)


@routes.post("/v1/workers/{worker_id}/drain", Permission.OPERATOR, status_code=HTTPStatus.NO_CONTENT)
async def drain_worker(context: Context, worker_id: PathId) -> None:
    """Drain a worker: it finishes its tasks and stops. It may serve all organisations, so only the operator may."""
    async with owner_transaction(context) as connection:
        await queue.drain_worker(connection, worker_id)
        await write_audit(context, connection, "worker.drain", worker_id)


def to_worker(context: RequestContext, row: Any) -> Worker:
    """Convert a row; host and counts of a shared worker are hidden from other organisations than the operator's."""
    shared = row["org_id"] is None
    operator_fields = _OPERATOR_FIELDS if not shared or context.actor.is_operator else ()
    return Worker(id=row["id"], shared=shared, **{name: row[name] for name in (*_PUBLIC_FIELDS, *operator_fields)})
