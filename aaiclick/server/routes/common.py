"""What several resources do alike: find something of the caller's org, note a deed, answer 304."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from aaiclick import faults
from aaiclick.data.tables import NAMED
from aaiclick.errors import NotFoundError, SubmitError
from aaiclick.orchestration.sharing import MARK
from aaiclick.server import shapes
from aaiclick.server.routing import Call
from aaiclick.store import audit, reads
from aaiclick.store.plan import NewTask
from aaiclick.store.references import is_temporary, table_ids_in

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.engine import Connection

SHOWN_IDS = 1_000


@asynccontextmanager
async def reading(call: Call) -> AsyncGenerator[Connection]:
    """A connection that sees the caller's org."""
    async with call.service.tenant(call.principal.org_id) as connection:
        yield connection


@asynccontextmanager
async def changing(call: Call) -> AsyncGenerator[Connection]:
    """The same, in one transaction: what is done and the record of it."""
    async with reading(call) as connection, faults.transaction(connection, "change"):
        yield connection


@asynccontextmanager
async def operating(call: Call) -> AsyncGenerator[Connection]:
    """The same with the rights of the owner, for what concerns more than the caller's org."""
    async with call.service.owner() as connection, faults.transaction(connection, "operate"):
        yield connection


async def note(
    call: Call, connection: Connection, action: str, target: object, detail: Mapping[str, Any] | None = None
) -> None:
    """Write a deed of the caller's into the audit log."""
    await audit.write_audit(
        connection,
        org_id=call.principal.org_id,
        actor=call.principal.actor,
        action=action,
        target=str(target),
        request_id=call.request_id,
        detail=detail,
    )


async def own_job(call: Call, connection: Connection, job_id: int) -> asyncpg.Record:
    """A job of the caller's org; another org's does not exist."""
    row = await reads.get_job(connection, job_id)
    if row is None or row["org_id"] != call.principal.org_id:
        raise NotFoundError(f"There is no job {job_id}.", remedy="GET /v1/jobs lists the jobs there are.")
    return row


async def own_task(call: Call, connection: Connection, task_id: int) -> asyncpg.Record:
    """A task of the caller's org; another org's does not exist."""
    row = await reads.get_task(connection, task_id)
    if row is None or row["org_id"] != call.principal.org_id:
        raise NotFoundError(f"There is no task {task_id}.", remedy="GET /v1/tasks lists the tasks there are.")
    return row


def given_tables(tasks: Sequence[NewTask]) -> list[tuple[int, str]]:
    """(task, table) of the Objects and Views among the arguments; whose they are is checked when they are held."""
    given: set[tuple[int, str]] = set()
    for task in tasks:
        for name in table_ids_in(json.loads(task.kwargs)) if MARK in task.kwargs else ():
            if is_temporary(name):
                given.add((task.id, name))
            elif not isinstance(name, str) or not name.removeprefix(NAMED) or not name.startswith(NAMED):
                raise SubmitError(
                    f"An argument of {task.type!r} refers to the table {name!r:.60}, which is not the name of one.",
                    remedy=f"A table_id is t and a number, or {NAMED} and the name of an Object.",
                )
    return sorted(given)


def changed(ids: Iterable[int]) -> shapes.Changed:
    found = sorted(ids)
    return shapes.Changed(count=len(found), ids=[str(task_id) for task_id in found[:SHOWN_IDS]])


def tagged(request: Request, response: Response, item_id: int, updated_at: datetime) -> bool:
    """Put the ETag of something on its answer; True if the caller has this version already."""
    tag = f'W/"{item_id}-{updated_at.timestamp():.6f}"'
    response.headers["ETag"] = tag
    response.headers["Cache-Control"] = "private, no-cache"
    return tag in (part.strip() for part in request.headers.get("if-none-match", "").split(","))


def text_id(value: int | None) -> str | None:
    return None if value is None else str(value)
