"""Helpers of routes: connections of the caller's org, tables of arguments and ETags."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from aaiclick.data.runtime.tables import NAMED
from aaiclick.errors import SubmitError
from aaiclick.orchestration.argument_tables import TABLE_ID_KEY
from aaiclick.server.routing import RequestContext
from aaiclick.store.engine.plan import NewTask
from aaiclick.store.engine.result_placeholders import is_temporary, table_ids_in

Item = TypeVar("Item", bound=BaseModel)

if TYPE_CHECKING:
    from aaiclick.store.connections import Connection


@asynccontextmanager
async def tenant_connection(context: RequestContext) -> AsyncGenerator[Connection]:
    """A connection that row-level security restricts to the caller's org."""
    async with context.app_state.tenant_connection(context.actor.org_id) as connection:
        yield connection


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


def respond_if_changed(request: Request, response: Response, item: Item) -> Item | Response:
    """Return the item with an ETag, or 304 Not Modified if If-None-Match names it."""
    tag = f'W/"{hashlib.sha256(item.model_dump_json().encode()).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    if tag in (part.strip() for part in request.headers.get("if-none-match", "").split(",")):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    response.headers.update(headers)
    return item
