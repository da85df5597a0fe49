"""Server-sent events: a stream that ends when the client or the server goes, with a comment now and then to keep it."""

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
QUIET_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Event:
    """One event; `id` is what a client sends as Last-Event-ID when it comes back."""

    kind: str
    data: Mapping[str, Any]
    id: str | None = None

    def encode(self) -> bytes:
        head = f"id: {self.id}\n" if self.id is not None else ""
        return f"{head}event: {self.kind}\ndata: {json.dumps(dict(self.data), default=str)}\n\n".encode()


class EventStream(StreamingResponse):
    """The answer that streams events; its source yields None now and then, at least every QUIET_SECONDS."""

    media_type = MEDIA_TYPE

    def __init__(
        self, source: AsyncGenerator[Event | None], closing: asyncio.Event, status_code: int = HTTPStatus.OK
    ) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(_encode(source, closing), status_code, headers)

    @staticmethod
    def documented(description: str) -> dict[str, Any]:
        return {"description": description, "content": {MEDIA_TYPE: {"schema": {"type": "string"}}}}


async def _encode(source: AsyncGenerator[Event | None], closing: asyncio.Event) -> AsyncIterator[bytes]:
    said = time.monotonic()
    yield b": hello\n\n"
    async with aclosing(source):
        async for event in source:
            if closing.is_set():
                return
            if event is not None:
                said = time.monotonic()
                yield event.encode()
            elif time.monotonic() - said > QUIET_SECONDS:
                said = time.monotonic()
                yield b": still here\n\n"
