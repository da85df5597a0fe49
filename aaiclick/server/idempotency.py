"""Idempotency-Key: a repeated request is performed once and gets the stored response.

The key is scoped to org and route. It is refused with another body (422) and while the first request is in progress
(409). The change and the stored response are one transaction: see `store.tenancy.idempotency`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated

from fastapi import Header, Request
from pydantic import BaseModel
from starlette.responses import Response

from aaiclick import failpoints
from aaiclick.server.problem_responses import MalformedError, RepeatedKeyError
from aaiclick.server.routing import RequestContext
from aaiclick.store.tenancy import idempotency

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

IdempotencyKey = Annotated[
    str | None,
    Header(alias="Idempotency-Key", max_length=200, description="Repeated requests with this key are performed once"),
]
_KEY = re.compile(r"[\x21-\x7e]{1,200}")


async def run_idempotent(
    context: RequestContext,
    request: Request,
    key: str | None,
    work: Callable[[Connection], Awaitable[BaseModel]],
    status: HTTPStatus = HTTPStatus.CREATED,
) -> Response:
    """Run `work` in a transaction of the owner, or replay the stored response of this key."""
    if key is not None and not _KEY.fullmatch(key):
        raise MalformedError("The Idempotency-Key is not 1 to 200 visible ASCII characters.", remedy="Use a UUID.")
    route, org_id = f"{request.method} {request.scope['route'].path}", context.actor.org_id
    async with context.app_state.owner_connection() as connection, failpoints.transaction(connection, "once"):
        if key is None:
            return _json_response(status, (await work(connection)).model_dump_json())
        body_hash = hashlib.sha256(await request.body()).digest()
        stored = await idempotency.lock_idempotency_key(connection, org_id, route, key)
        if stored is not None and stored.body_hash != body_hash:
            raise RepeatedKeyError(
                "This Idempotency-Key was used with another body.", remedy="Use a new key for a new request."
            )
        if stored is not None:
            return _json_response(stored.status, stored.body, replayed=True)
        response = idempotency.StoredResponse(body_hash, status, (await work(connection)).model_dump_json())
        await idempotency.store_response(connection, org_id, route, key, response)
    return _json_response(status, response.body)


def _json_response(status: int, body: str, *, replayed: bool = False) -> Response:
    headers = {"Idempotency-Replayed": "true"} if replayed else {}
    return Response(body, status, headers, media_type="application/json")
