"""Helpers of routes: connections of the caller's org, audit entries, lookups and ETags."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from aaiclick import failpoints
from aaiclick.api.field_types import ChangedIdsResponse
from aaiclick.data.runtime.tables import NAMED
from aaiclick.errors import NotFoundError, SubmitError
from aaiclick.orchestration.argument_tables import TABLE_ID_KEY
from aaiclick.server.routing import RequestContext
from aaiclick.store.engine import queries
from aaiclick.store.engine.plan import NewTask
from aaiclick.store.engine.result_placeholders import is_temporary, table_ids_in
from aaiclick.store.tenancy import audit

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.connections import Connection

MAX_LISTED_IDS = 1_000


@asynccontextmanager
async def tenant_connection(context: RequestContext) -> AsyncGenerator[Connection]:
    """A connection that row-level security restricts to the caller's org."""
    async with context.app_state.tenant_connection(context.actor.org_id) as connection:
        yield connection


@asynccontextmanager
async def tenant_transaction(context: RequestContext) -> AsyncGenerator[Connection]:
    """A transaction of the caller's org, for a change and its audit entry."""
    async with tenant_connection(context) as connection, failpoints.transaction(connection, "change"):
        yield connection


@asynccontextmanager
async def owner_transaction(context: RequestContext) -> AsyncGenerator[Connection]:
    """A transaction of the owner, for a change beyond the caller's org and its audit entry."""
    async with context.app_state.owner_connection() as connection, failpoints.transaction(connection, "operate"):
        yield connection


async def write_audit(
    context: RequestContext,
    connection: Connection,
    action: str,
    target: object,
    detail: Mapping[str, Any] | None = None,
) -> None:
    """Write an audit entry for the caller."""
    await audit.write_audit(
        connection,
        org_id=context.actor.org_id,
        actor=context.actor.name,
        action=action,
        target=str(target),
        request_id=context.request_id,
        detail=detail,
    )


async def get_own_job(context: RequestContext, connection: Connection, job_id: int) -> asyncpg.Record:
    """Get a job of the caller's org; one of another org is not found."""
    row = await queries.get_job(connection, job_id)
    if row is None or row["org_id"] != context.actor.org_id:
        raise NotFoundError(f"There is no job {job_id}.", remedy="GET /v1/jobs lists jobs.")
    return row


async def get_own_task(context: RequestContext, connection: Connection, task_id: int) -> asyncpg.Record:
    """Get a task of the caller's org; one of another org is not found."""
    row = await queries.get_task(connection, task_id)
    if row is None or row["org_id"] != context.actor.org_id:
        raise NotFoundError(f"There is no task {task_id}.", remedy="GET /v1/tasks lists tasks.")
    return row


def argument_tables(tasks: Sequence[NewTask]) -> list[tuple[int, str]]:
    """(task id, table) of Objects and Views in the arguments; their org is checked when the tables are held."""
    tables: set[tuple[int, str]] = set()
    for task in tasks:
        for name in table_ids_in(json.loads(task.kwargs)) if TABLE_ID_KEY in task.kwargs else ():
            if is_temporary(name):
                tables.add((task.id, name))
            elif not isinstance(name, str) or not name.removeprefix(NAMED) or not name.startswith(NAMED):
                raise SubmitError(
                    f"An argument of {task.type!r} refers to {name!r:.60}, which is not a table name.",
                    remedy=f"A table_id is t and a number, or {NAMED} and the name of an Object.",
                )
    return sorted(tables)


def changed_ids(ids: Iterable[int]) -> ChangedIdsResponse:
    sorted_ids = sorted(ids)
    return ChangedIdsResponse(count=len(sorted_ids), ids=sorted_ids[:MAX_LISTED_IDS])


def set_etag(request: Request, response: Response, item_id: int, updated_at: datetime) -> bool:
    """Set the ETag of a response; returns whether If-None-Match has the same version."""
    tag = f'W/"{item_id}-{updated_at.timestamp():.6f}"'
    response.headers["ETag"] = tag
    response.headers["Cache-Control"] = "private, no-cache"
    return tag in (part.strip() for part in request.headers.get("if-none-match", "").split(","))


def text_id(value: int | None) -> str | None:
    return None if value is None else str(value)
