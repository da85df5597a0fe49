"""Helpers of routes: connections of the caller's org, tables of arguments and ETags."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from aaiclick.server.routing import RequestContext

Item = TypeVar("Item", bound=BaseModel)

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection


@asynccontextmanager
async def tenant_connection(context: RequestContext) -> AsyncGenerator[Connection]:
    """A connection that row-level security restricts to the caller's org."""
    async with context.app_state.tenant_connection(context.actor.org_id) as connection:
        yield connection


def respond_if_changed(request: Request, response: Response, item: Item) -> Item | Response:
    """Return the item with an ETag, or 304 Not Modified if If-None-Match names it."""
    tag = f'W/"{hashlib.sha256(item.model_dump_json().encode()).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    if tag in (part.strip() for part in request.headers.get("if-none-match", "").split(",")):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    response.headers.update(headers)
    return item
