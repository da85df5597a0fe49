"""Routes of workers: list, get and drain."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import Query

from aaiclick.api.field_types import Page
from aaiclick.api.workers import Worker
from aaiclick.operations import workers as operations
from aaiclick.operations.actor import Permission
from aaiclick.server.pagination import Cursor, Limit
from aaiclick.server.routing import Context, PathId, Routes

routes = Routes("workers")


@routes.get("/v1/workers", Permission.READER)
async def list_workers(
    context: Context,
    stopped: Annotated[bool, Query(description="Include stopped workers")] = False,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Page[Worker]:
    """List workers that serve the organisation."""
    return await context.perform(operations.list_workers, stopped=stopped, cursor=cursor, limit=limit)


@routes.get("/v1/workers/{worker_id}", Permission.READER)
async def get_worker(context: Context, worker_id: PathId) -> Worker:
    """Get a worker."""
    return await context.perform(operations.get_worker, worker_id)


@routes.post("/v1/workers/{worker_id}/drain", Permission.OPERATOR, status_code=HTTPStatus.NO_CONTENT)
async def drain_worker(context: Context, worker_id: PathId) -> None:
    """Drain a worker: it finishes its tasks and stops. It may serve all organisations, so only the operator may."""
    await context.perform(operations.drain_worker, worker_id)
