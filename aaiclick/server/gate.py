"""The gate that every request passes: an id, limits, one line in the log, no traceback outside.

Plain ASGI, around everything else. The log line has the route's template and no header, no query and no body: nothing
secret can be in it.
"""

from __future__ import annotations

import logging
import re
import time
from http import HTTPStatus
from uuid import uuid4

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from aaiclick.orchestration.structured import FACTS
from aaiclick.orchestration.tracing import get_tracing
from aaiclick.server.bodies import BodyBudget, RequestBody
from aaiclick.server.problems import AmbiguousLengthError, BusyError, answer, respond, translate
from aaiclick.server.ui.door import takes_forms

log = logging.getLogger("aaiclick.server")
access = logging.getLogger("aaiclick.server.access")

MAX_REQUESTS = 2_000
"""Requests that are served at once."""

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)


class Gate:
    """Wraps the application."""

    def __init__(self, app: ASGIApp, *, body_bytes: int) -> None:
        self._app = app
        self._budget = BodyBudget(body_bytes)
        self._requests = 0
        self._tracing = get_tracing()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.lower(): value for name, value in scope["headers"]}
        request_id = _accepted_id(headers.get(b"x-request-id", b"")) or uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id
        told = _Told(send, request_id)
        started = time.monotonic()
        try:
            if self._tracing is None:
                await self._pass(scope, receive, told, headers, request_id)
            else:
                with self._tracing.request(scope["method"], headers) as span:
                    await self._pass(scope, receive, told, headers, request_id)
                    self._tracing.describe(span, _route(scope), scope["method"], told.status, _org(scope))
        finally:
            _write_line(scope, told.status, request_id, time.monotonic() - started)

    async def _pass(
        self, scope: Scope, receive: Receive, told: _Told, headers: dict[bytes, bytes], request_id: str
    ) -> None:
        body = RequestBody(scope, receive, headers, self._budget, forms=takes_forms(scope["path"]))
        self._requests += 1
        try:
            if self._requests > MAX_REQUESTS:
                raise BusyError("The server is busy.", remedy="Wait, then send the request again.")
            _refuse_two_lengths(headers)
            body.check_length()
            await self._app(scope, body.receive, told)
        except Exception as error:  # noqa: BLE001  (the last wall: a caller never sees a traceback)
            await self._explain(error, scope, receive, told, request_id)
        finally:
            self._requests -= 1
            body.release()

    async def _explain(self, error: Exception, scope: Scope, receive: Receive, told: _Told, request_id: str) -> None:
        known = translate(error)
        if known is None:
            log.exception("request %s failed", request_id, exc_info=error)
        if told.status:  # the answer had begun: all that is left is to break it off
            return
        if known is None:
            response = respond(
                HTTPStatus.INTERNAL_SERVER_ERROR, "internal", "The service met an error of its own.", request_id
            )
        else:
            response = answer(known, request_id)
        await response(scope, receive, told)


class _Told:
    """`send`, with our headers; remembers the status."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self._request_id = request_id
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            present = {name.lower() for name, _ in message["headers"]}
            ours = (header for header in _HEADERS if header[0] not in present)
            added = [(b"x-request-id", self._request_id.encode()), *ours]
            if b"cache-control" not in present:
                added.append((b"cache-control", b"no-store"))
            message["headers"] = [*message["headers"], *added]
        await self._send(message)


def _refuse_two_lengths(headers: dict[bytes, bytes]) -> None:
    if b"content-length" in headers and b"transfer-encoding" in headers:
        raise AmbiguousLengthError("The request has Content-Length and Transfer-Encoding.", remedy="Send one of them.")


def _accepted_id(value: bytes) -> str | None:
    text = value.decode("latin-1")
    return text if _REQUEST_ID.fullmatch(text) else None


def _route(scope: Scope) -> str | None:
    """The template of the route, which has nothing secret in it."""
    return getattr(scope.get("route"), "path", None)


def _org(scope: Scope) -> str | None:
    principal = scope["state"].get("principal")
    return str(principal.org_id) if principal else None


def _write_line(scope: Scope, status: int, request_id: str, seconds: float) -> None:
    principal = scope["state"].get("principal")
    values: dict[str, str] = scope.get("path_params") or {}
    facts = {
        "request_id": request_id,
        "method": scope["method"],
        "route": _route(scope),
        "status": status,
        "ms": round(seconds * 1000, 1),
        "org": _org(scope),
        "actor": principal.actor if principal else None,
        **{name: values[f"{name}_id"] for name in ("job", "task") if f"{name}_id" in values},
    }
    access.info("request", extra={FACTS: facts})
