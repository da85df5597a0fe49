"""Request bodies with limits of size, depth, number of values, time and memory, read after authentication.

Chunks are checked as they arrive, so that a refused body is not read further.
"""

from __future__ import annotations

import asyncio
import codecs
import re
import time
from collections import Counter
from itertools import accumulate
from typing import Any

from starlette.types import Message, Receive

from aaiclick.server.problem_responses import (
    BusyError,
    MalformedError,
    MediaTypeError,
    SlowRequestError,
    TooLargeError,
    TooManyRequestsError,
)

MAX_DEPTH = 64
"""Maximum nesting of arrays and objects."""

MAX_VALUES = 250_000
"""Maximum number of values in a JSON body. Bounds the time and memory of parsing."""

ANONYMOUS_BYTES = 1_000_000
"""Maximum size of a body without a credential (webhooks, sign-in form)."""

BODY_SECONDS = 20.0
MIN_BYTES_PER_SECOND = 10_000
"""A body has BODY_SECONDS, and one second more for each MIN_BYTES_PER_SECOND received."""

BUDGET_BODIES = 4
CLIENT_BODIES = 2
"""Number of bodies of maximum size that may be in memory: in total, and per credential."""

FORM_BYTES = 300_000
"""Maximum size of a form of the web UI."""

MESSAGE_PATH = "/mcp"
MESSAGE_BYTES = 1_000_000
MESSAGE_VALUES = 1_000
"""Maximum size and number of values of a message of an AI assistant, which the SDK parses on the event loop."""

JSON = b"application/json"
FORM = b"application/x-www-form-urlencoded"

_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_OTHER_BYTES = bytes(set(range(256)) - set(b'"[]{},'))
_STEPS = [0] * 256
for _opening, _closing in (b"[]", b"{}"):
    _STEPS[_opening], _STEPS[_closing] = 1, -1


class JsonScanner:
    """Counts depth and values of JSON text in chunks, and raises when a limit is exceeded."""

    def __init__(self, max_values: int = MAX_VALUES) -> None:
        self._max_values = max_values
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._in_string = False
        self._escaped = False
        self._depth = 0
        self._values = 0

    def feed(self, chunk: bytes, *, last: bool = False) -> None:
        try:
            self._decoder.decode(chunk, last)
        except UnicodeDecodeError:
            raise MalformedError("The body is not UTF-8.", remedy="Send UTF-8 JSON.") from None
        outside = self._outside_strings(chunk)
        self._check_depth(outside.translate(None, b",")[: MAX_VALUES + 1])
        self._values += outside.count(b",") + outside.count(b"[") + outside.count(b"{")
        if self._values > self._max_values:
            raise TooLargeError(f"The body has more than {self._max_values:,} values.", remedy="Send it in parts.")

    def _check_depth(self, brackets: bytes) -> None:
        depths = list(accumulate(map(_STEPS.__getitem__, brackets), initial=self._depth))
        self._depth = max(depths[-1], 0)
        if max(depths) > MAX_DEPTH:
            raise MalformedError(f"The body is nested deeper than {MAX_DEPTH} levels.", remedy="Make it flatter.")
        if min(depths) < 0:
            raise MalformedError("The body is not JSON.", remedy="Send UTF-8 JSON.")

    def _outside_strings(self, chunk: bytes) -> bytes:
        """Brackets and commas of a chunk that are not in strings."""
        if self._escaped and chunk:
            chunk, self._escaped = chunk[1:], False
        if b"\\" in chunk:
            chunk = _ESCAPE.sub(b"", chunk)
            self._escaped = chunk.endswith(b"\\")
        parts = chunk.translate(None, _OTHER_BYTES).split(b'"')
        outside = b"".join(parts[1::2] if self._in_string else parts[::2])
        self._in_string ^= len(parts) % 2 == 0
        return outside


class BodyBudget:
    """Memory limits of request bodies: in total, for all anonymous clients, and per client."""

    def __init__(self, body_bytes: int) -> None:
        self.body_bytes = body_bytes
        self._total_limit = BUDGET_BODIES * body_bytes
        self._anonymous_limit = min(self._total_limit // 4, 8 * ANONYMOUS_BYTES)
        self._used = Counter[str]()
        self._anonymous = 0
        self.total = 0

    def reserve(self, client: str, count: int, *, anonymous: bool) -> None:
        """Reserve bytes for a client; raises if that would exceed a limit."""
        client_limit = self._anonymous_limit // 2 if anonymous else CLIENT_BODIES * self.body_bytes
        if self._used[client] + count > client_limit:
            raise TooManyRequestsError(
                "Too many large requests of this client are being read at once.", remedy="Try again later."
            )
        if self.total + count > self._total_limit or (anonymous and self._anonymous + count > self._anonymous_limit):
            raise BusyError("The server is reading too many large requests.", remedy="Try again later.")
        self._used[client] += count
        self.total += count
        self._anonymous += count if anonymous else 0

    def release(self, client: str, count: int, *, anonymous: bool) -> None:
        self._used[client] -= count
        if not self._used[client]:
            del self._used[client]
        self.total -= count
        self._anonymous -= count if anonymous else 0


class RequestBody:
    """The body of one request, read by the first `receive` of the application.

    The application authenticates before that; `state["actor"]` then decides which limits apply.
    """

    def __init__(
        self, scope: Any, receive: Receive, headers: dict[bytes, bytes], budget: BodyBudget, *, forms: bool
    ) -> None:
        self._scope = scope
        self._receive = receive
        self._headers = headers
        self._budget = budget
        self._forms = forms
        self._reserved = 0
        self._client = ""
        self._anonymous = True
        self._is_read = False

    def check_length(self) -> None:
        """Refuse a declared length that no credential allows."""
        self._check_length(self._budget.body_bytes)

    def _check_length(self, limit: int) -> None:
        length = self._headers.get(b"content-length", b"")
        if length.isdigit() and (len(length) > 18 or int(length) > limit):
            raise _too_large(limit)

    async def receive(self) -> Message:
        if self._is_read:
            return await self._receive()
        self._is_read = True
        return {"type": "http.request", "body": await self._read(), "more_body": False}

    def release(self) -> None:
        """Release the reserved memory after the request."""
        self._budget.release(self._client, self._reserved, anonymous=self._anonymous)
        self._reserved = 0

    async def _read(self) -> bytes:
        actor = self._scope["state"].get("actor")
        self._anonymous = actor is None
        address = (self._scope.get("client") or ("unknown",))[0]
        self._client = address if actor is None else f"{actor.org_id} {actor.name}"
        media_type = self._headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        is_form = media_type == FORM and self._forms
        limit = self._budget.body_bytes
        is_message = self._scope["path"] == MESSAGE_PATH
        if self._anonymous or is_form:
            limit = min(limit, FORM_BYTES if is_form else ANONYMOUS_BYTES)
        if is_message:
            limit = min(limit, MESSAGE_BYTES)
        self._check_length(limit)
        scanner = None if is_form else JsonScanner(MESSAGE_VALUES if is_message else MAX_VALUES)
        chunks = await self._read_chunks(limit, scanner, is_typed=is_form or media_type == JSON)
        return b"".join(chunks)

    async def _read_chunks(self, limit: int, scanner: JsonScanner | None, *, is_typed: bool) -> list[bytes]:
        chunks: list[bytes] = []
        size, started = 0, time.monotonic()
        while True:
            deadline = started + BODY_SECONDS + size / MIN_BYTES_PER_SECOND
            try:
                message = await asyncio.wait_for(self._receive(), max(deadline - time.monotonic(), 0))
            except TimeoutError:
                raise SlowRequestError("The body did not arrive in time.", remedy="Send it again.") from None
            if message["type"] != "http.request":
                raise MalformedError("The request ended before its body did.")
            chunk, last = message.get("body", b""), not message.get("more_body")
            size += len(chunk)
            if size > limit:
                raise _too_large(limit)
            if size and not is_typed:
                raise MediaTypeError("The body is not application/json.", remedy="Set Content-Type: application/json.")
            self._budget.reserve(self._client, len(chunk), anonymous=self._anonymous)
            self._reserved += len(chunk)
            if scanner is not None:
                scanner.feed(chunk, last=last)
            chunks.append(chunk)
            if last:
                return chunks


def _too_large(limit: int) -> TooLargeError:
    return TooLargeError(
        f"The body is larger than {limit} bytes.",
        remedy="Send it in parts. AAICLICK_SERVER_BODY_BYTES is the limit for requests with a credential.",
    )
