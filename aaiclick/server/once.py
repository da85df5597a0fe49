"""Idempotency-Key: the same request, sent twice, is done once and answered the same twice.

The key belongs to an org and a route. With another body it is refused (422), while the first is being answered too
(409). Work and answer are one transaction: see `store.idempotency`.
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

from aaiclick import faults
from aaiclick.server.problems import MalformedError, RepeatedKeyError
from aaiclick.server.routing import Call
from aaiclick.store import idempotency

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

IdempotencyKey = Annotated[
    str | None, Header(alias="Idempotency-Key", max_length=200, description="Do this once, however often it is sent")
]
_KEY = re.compile(r"[\x21-\x7e]{1,200}")


async def once(
    call: Call,
    request: Request,
    key: str | None,
    work: Callable[[Connection], Awaitable[BaseModel]],
    status: HTTPStatus = HTTPStatus.CREATED,
) -> Response:
    """Do `work` in a transaction of the owner, unless it was done under this key already."""
    if key is not None and not _KEY.fullmatch(key):
        raise MalformedError("The Idempotency-Key is not 1 to 200 visible ASCII characters.", remedy="Use a UUID.")
    route, org = f"{request.method} {request.scope['route'].path}", call.principal.org_id
    async with call.service.owner() as connection, faults.transaction(connection, "once"):
        if key is None:
            return _respond(status, (await work(connection)).model_dump_json())
        body_hash = hashlib.sha256(await request.body()).digest()
        known = await idempotency.begin(connection, org, route, key)
        if known is not None and known.body_hash != body_hash:
            raise RepeatedKeyError(
                "This Idempotency-Key was used with another body.", remedy="Use a new key for a new request."
            )
        if known is not None:
            return _respond(known.status, known.body, replayed=True)
        answer = idempotency.Answer(body_hash, status, (await work(connection)).model_dump_json())
        await idempotency.keep(connection, org, route, key, answer)
    return _respond(status, answer.body)


def _respond(status: int, body: str, *, replayed: bool = False) -> Response:
    headers = {"Idempotency-Replayed": "true"} if replayed else {}
    return Response(body, status, headers, media_type="application/json")
