"""Real receivers of notifications: an HTTP server and an SMTP server."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email import message_from_bytes
from types import SimpleNamespace
from typing import Any, Self

from aiosmtpd.controller import Controller


class HttpSink:
    """An HTTP server that records requests."""

    def __init__(self) -> None:
        self.requests: list[SimpleNamespace] = []
        self.status = 204
        self.answer: bytes | None = None
        self.location = ""
        self.delay = asyncio.Event()
        self.delay.set()
        self.port = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.strip().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            await self.delay.wait()
            self.requests.append(SimpleNamespace(path=first.split()[1], headers=headers, body=body))
            repeated = self.requests[-1].path.encode()  # has the secret
            answer = b"" if self.status < 300 else self.answer or repeated
            location = f"Location: {self.location}\r\n".encode() if self.location else b""
            length = b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(answer)
            head = b"HTTP/1.1 %d X\r\n" % self.status + location + length
            writer.write(head + answer)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[Self]:
        server = await asyncio.start_server(self.handle, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        async with server:
            yield self

    def json(self, index: int = -1) -> Any:
        return json.loads(self.requests[index].body)


class MailSink:
    """A handler of aiosmtpd that records messages."""

    def __init__(self) -> None:
        self.mails: list[Any] = []

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802  (aiosmtpd's name)
        self.mails.append((envelope.rcpt_tos, message_from_bytes(envelope.content)))
        return "250 OK"


@asynccontextmanager
async def smtp_server(**options: Any) -> AsyncIterator[tuple[MailSink, int]]:
    handler = MailSink()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    controller = Controller(handler, hostname="127.0.0.1", port=port, **options)
    controller.start()
    try:
        yield handler, port
    finally:
        controller.stop()
