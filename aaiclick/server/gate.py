"""The gate that every request passes: an id, a limit on its size and depth, one line in the log, no traceback outside.

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
from aaiclick.server.problems import (
    MalformedError,
    MediaTypeError,
    TooLargeError,
    answer,
    respond,
    translate,
)
from aaiclick.server.ui.door import FORM, takes_forms

log = logging.getLogger("aaiclick.server")
access = logging.getLogger("aaiclick.server.access")

DEEPEST = 64
"""Nested arrays and objects in a body."""

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_OTHERS = bytes(set(range(256)) - set(b'"[]{}'))
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)


class Gate:
    """Wraps the application."""

    def __init__(self, app: ASGIApp, *, body_bytes: int) -> None:
        self._app = app
        self._body_bytes = body_bytes
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
        try:
            body = await self._read(scope["path"], receive, headers)
            await self._app(scope, receive if body is None else _again(body, receive), told)
        except Exception as error:  # noqa: BLE001  (the last wall: a caller never sees a traceback)
            await self._explain(error, scope, receive, told, request_id)

    async def _read(self, path: str, receive: Receive, headers: dict[bytes, bytes]) -> bytes | None:
        """The whole body, if there is one and it is acceptable."""
        length = headers.get(b"content-length", b"0")
        if length == b"0" and b"transfer-encoding" not in headers:
            return None
        if length.isdigit() and int(length) > self._body_bytes:
            raise self._too_large()
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] != "http.request":
                raise MalformedError("The request ended before its body did.")
            body += message.get("body", b"")
            if len(body) > self._body_bytes:
                raise self._too_large()
            if not message.get("more_body"):
                break
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if body and kind != b"application/json" and not (kind == FORM and takes_forms(path)):
            raise MediaTypeError("The body is not application/json.", remedy="Set Content-Type: application/json.")
        check_text(body)
        return bytes(body)

    def _too_large(self) -> TooLargeError:
        return TooLargeError(
            f"The body is larger than {self._body_bytes} bytes.",
            remedy="Send it in parts, or raise AAICLICK_SERVER_BODY_BYTES.",
        )

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


def check_text(body: bytes | bytearray) -> None:
    """Refuse what is not UTF-8, and what is nested deeper than anything sensible is, before anything parses it."""
    try:
        body.decode()
    except UnicodeDecodeError:
        raise MalformedError("The body is not UTF-8.", remedy="Send UTF-8 JSON.") from None
    if _depth(body) > DEEPEST:
        raise MalformedError(f"The body is nested deeper than {DEEPEST} levels.", remedy="Make it flatter.")


def _depth(body: bytes | bytearray) -> int:
    """How deep brackets are nested outside of strings; of what is not JSON, at most so deep.

    Each step is one pass in C: without escapes every second part between quotes is outside of strings; a pair of
    brackets with nothing in between goes, and with it one level.
    """
    bare = _ESCAPE.sub(b"", body) if b"\\" in body else bytes(body)
    brackets = b"".join(bare.translate(None, _OTHERS).split(b'"')[::2])
    level = 0
    while brackets and level <= DEEPEST:
        fewer = brackets.replace(b"[]", b"").replace(b"{}", b"")
        if len(fewer) == len(brackets):
            break  # what is left has no partner: not JSON, but it may be deep
        brackets, level = fewer, level + 1
    deepest = depth = 0
    for bracket in brackets:
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
        if deepest > DEEPEST:
            break
    return level + deepest


def _again(body: bytes, receive: Receive) -> Receive:
    """A `receive` that hands out the body that was read already, then whatever comes after it."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


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
