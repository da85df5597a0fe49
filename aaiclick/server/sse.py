"""Server-sent events with keep-alive comments; the stream ends when the client disconnects or the server stops."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from starlette.responses import StreamingResponse

MEDIA_TYPE = "text/event-stream"
KEEP_ALIVE_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One event; a client sends `id` as Last-Event-ID when it reconnects."""

    name: str
    data: Mapping[str, Any]
    id: str | None = None

    def encode(self) -> bytes:
        head = f"id: {self.id}\n" if self.id is not None else ""
        return f"{head}event: {self.name}\ndata: {json.dumps(dict(self.data), default=str)}\n\n".encode()


class EventStream(StreamingResponse):
    """Response that streams events; its source yields None at least every KEEP_ALIVE_SECONDS."""

    media_type = MEDIA_TYPE

    def __init__(
        self, source: AsyncGenerator[ServerSentEvent | None], closing: asyncio.Event, status_code: int = HTTPStatus.OK
    ) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(_encode_events(source, closing), status_code, headers)

    @staticmethod
    def openapi_response(description: str) -> dict[str, object]:
        return {"description": description, "content": {MEDIA_TYPE: {"schema": {"type": "string"}}}}


async def _encode_events(
    source: AsyncGenerator[ServerSentEvent | None], closing: asyncio.Event
) -> AsyncIterator[bytes]:
    last_sent = time.monotonic()
    yield b": hello\n\n"
    async with aclosing(source):
        async for event in source:
            if closing.is_set():
                return
            if event is not None:
                last_sent = time.monotonic()
                yield event.encode()
            elif time.monotonic() - last_sent > KEEP_ALIVE_SECONDS:
                last_sent = time.monotonic()
                yield b": keep-alive\n\n"
