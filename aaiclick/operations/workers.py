"""Operations on workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aaiclick.api.field_types import Page
from aaiclick.api.workers import Worker
from aaiclick.errors import NotFoundError
from aaiclick.operations.actor import Actor, Permission
from aaiclick.operations.operation import operation, write_audit
from aaiclick.operations.pagination import make_page, read_id_cursor
from aaiclick.operations.row_conversion import to_worker
from aaiclick.store.engine import queries, queue

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection


@operation(Permission.READER, changes=False)
async def list_workers(
    connection: Connection, actor: Actor, *, stopped: bool = False, cursor: str | None = None, limit: int = 100
) -> Page[Worker]:
    """List workers that serve the organisation; with `stopped` also stopped ones."""
    rows = await queries.list_workers_for_org(
        connection, actor.visible_org_id, stopped=stopped, after=read_id_cursor(cursor, 0), limit=limit + 1
    )
    return make_page(rows, limit, lambda row: to_worker(actor, row), lambda row: row["id"])


@operation(Permission.READER, changes=False)
async def get_worker(connection: Connection, actor: Actor, worker_id: int) -> Worker:
    """Get a worker."""
    row = await queries.get_worker_for_org(connection, actor.visible_org_id, worker_id)
    if row is None:
        raise NotFoundError(f"There is no worker {worker_id}.", remedy="GET /v1/workers lists them.")
    return to_worker(actor, row)


@operation(Permission.OPERATOR, as_owner=True)
async def drain_worker(connection: Connection, actor: Actor, worker_id: int) -> None:
    """Drain a worker: it finishes its tasks and stops. It may serve all organisations, so only the operator may."""
    await queue.drain_worker(connection, worker_id)
    await write_audit(connection, actor, "worker.drain", worker_id)
