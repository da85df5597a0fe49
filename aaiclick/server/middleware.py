"""ASGI middleware around the application: request ids, limits, access log, security headers and error responses.

The access log has the route's template but no header, query or body, so that it contains no secrets.
"""

from __future__ import annotations

import logging
import re
import time
from http import HTTPStatus
from uuid import uuid4

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from aaiclick.orchestration.json_logging import LOG_FIELDS
from aaiclick.orchestration.tracing import get_tracing
from aaiclick.server.problem_responses import (
    AmbiguousLengthError,
    BusyError,
    error_response,
    problem_response,
    translate_error,
)
from aaiclick.server.request_body import BodyBudget, RequestBody
from aaiclick.server.ui.dispatch import accepts_forms

log = logging.getLogger("aaiclick.server")
access_log = logging.getLogger("aaiclick.server.access")

MAX_REQUESTS = 2_000
"""Limit of concurrent requests."""

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)


class RequestMiddleware:
    """Assigns a request id, enforces limits, logs the request and turns errors into problem responses."""

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
        request_id = _valid_request_id(headers.get(b"x-request-id", b"")) or uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id
        response_sender = _ResponseSender(send, request_id)
        started = time.monotonic()
        try:
            if self._tracing is None:
                await self._handle_request(scope, receive, response_sender, headers, request_id)
            else:
                with self._tracing.request(scope["method"], headers) as span:
                    await self._handle_request(scope, receive, response_sender, headers, request_id)
                    self._tracing.describe(
                        span, _route_template(scope), scope["method"], response_sender.status, _org_id(scope)
                    )
        finally:
            _write_access_log(scope, response_sender.status, request_id, time.monotonic() - started)

    async def _handle_request(
        self,
        scope: Scope,
        receive: Receive,
        response_sender: _ResponseSender,
        headers: dict[bytes, bytes],
        request_id: str,
    ) -> None:
        body = RequestBody(scope, receive, headers, self._budget, forms=accepts_forms(scope["path"]))
        self._requests += 1
        try:
            if self._requests > MAX_REQUESTS:
                raise BusyError("The server is busy.", remedy="Try again later.")
            _refuse_ambiguous_length(headers)
            body.check_length()
            await self._app(scope, body.receive, response_sender)
        except Exception as error:  # noqa: BLE001  (the last resort: a client never sees a traceback)
            await self._send_error(error, scope, receive, response_sender, request_id)
        finally:
            self._requests -= 1
            body.release()

    async def _send_error(
        self, error: Exception, scope: Scope, receive: Receive, response_sender: _ResponseSender, request_id: str
    ) -> None:
        translated = translate_error(error)
        if translated is None:
            log.exception("request %s failed", request_id, exc_info=error)
        if response_sender.status:  # the response has begun: it can only be aborted
            return
        if translated is None:
            response = problem_response(
                HTTPStatus.INTERNAL_SERVER_ERROR, "internal", "Internal server error.", request_id
            )
        else:
            response = error_response(translated, request_id)
        await response(scope, receive, response_sender)


class _ResponseSender:
    """ASGI `send` that adds the standard headers and records the status."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self._request_id = request_id
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            present = {name.lower() for name, _ in message["headers"]}
            missing = (header for header in _SECURITY_HEADERS if header[0] not in present)
            added = [(b"x-request-id", self._request_id.encode()), *missing]
            if b"cache-control" not in present:
                added.append((b"cache-control", b"no-store"))
            message["headers"] = [*message["headers"], *added]
        await self._send(message)


def _refuse_ambiguous_length(headers: dict[bytes, bytes]) -> None:
    if b"content-length" in headers and b"transfer-encoding" in headers:
        raise AmbiguousLengthError("The request has Content-Length and Transfer-Encoding.", remedy="Send one of them.")


def _valid_request_id(value: bytes) -> str | None:
    text = value.decode("latin-1")
    return text if _REQUEST_ID.fullmatch(text) else None


def _route_template(scope: Scope) -> str | None:
    """The path template of the route, which contains no secrets."""
    return getattr(scope.get("route"), "path", None)


def _org_id(scope: Scope) -> str | None:
    actor = scope["state"].get("actor")
    return str(actor.org_id) if actor else None


def _write_access_log(scope: Scope, status: int, request_id: str, seconds: float) -> None:
    actor = scope["state"].get("actor")
    path_params: dict[str, str] = scope.get("path_params") or {}
    facts = {
        "request_id": request_id,
        "method": scope["method"],
        "route": _route_template(scope),
        "status": status,
        "ms": round(seconds * 1000, 1),
        "org": _org_id(scope),
        "actor": actor.name if actor else None,
        **{name: path_params[f"{name}_id"] for name in ("job", "task") if f"{name}_id" in path_params},
    }
    access_log.info("request", extra={LOG_FIELDS: facts})
