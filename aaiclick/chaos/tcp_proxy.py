"""A TCP proxy that simulates network faults: latency, lost data in one or both directions, resets.

`blackhole`: nothing passes in either direction. `half-open`: requests arrive, responses are lost. Both end with a
reset. `reset`: connections are cut at once. `latency`: data is delayed. `forgotten`: existing connections stay silent
for ever, as after a router lost its connection table; new ones work.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
from collections import deque
from dataclasses import dataclass, field
from typing import cast

MODES = ("latency", "reset", "blackhole", "half-open", "forgotten")
INSTANT_MODES = ("reset", "forgotten")


class _ProxyEnd(asyncio.Protocol):
    """One end of a proxied connection; forwards received data to the other end."""

    def __init__(self, proxy: TcpProxy, *, answers: bool) -> None:
        self._proxy = proxy
        self._answers = answers
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._ended = False
        self._sent_eof = False
        self.other: _ProxyEnd | None = None
        self.transport: asyncio.Transport | None = None
        self.forgotten = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._proxy.add_end(self)

    def data_received(self, data: bytes) -> None:
        if self.forgotten or self._proxy.drops_data(answers=self._answers):
            return
        self._waiting.append((asyncio.get_running_loop().time() + self._proxy.late_seconds, data))
        self.forward()

    def eof_received(self) -> bool:
        if not self.forgotten:
            self._ended = True
            self.forward()
        return True

    def forward(self) -> None:
        """Send the data that is due."""
        target = None if self.other is None else self.other.transport
        if self._proxy.blocks_traffic or target is None or target.is_closing():
            return
        loop = asyncio.get_running_loop()
        while self._waiting:
            send_at, data = self._waiting[0]
            if send_at > loop.time():
                loop.call_at(send_at, self.forward)
                return
            self._waiting.popleft()
            target.write(data)
        if self._ended:
            self._send_eof(target)

    def _send_eof(self, target: asyncio.Transport) -> None:
        """Send EOF; close the connection once both directions have ended."""
        self._sent_eof = True
        if self.other is not None and self.other._sent_eof and self.transport is not None:
            self.transport.close()
            target.close()
        elif target.can_write_eof():
            with contextlib.suppress(OSError, RuntimeError):
                target.write_eof()

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._proxy.remove_end(self)
        if self.other is not None and self.other.transport is not None and not self.forgotten:
            self.other.transport.close()

    def cut(self) -> None:
        if self.transport is None:
            return
        with contextlib.suppress(OSError, AttributeError):
            sock: socket.socket = self.transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()


@dataclass(eq=False)
class TcpProxy:
    """A listening port in front of one server: `upstream` is the path of a unix socket, or host and port."""

    upstream: str | tuple[str, int]
    port: int = 0
    mode: str = "pass"
    delay_seconds: float = 0.0
    _ends: set[_ProxyEnd] = field(default_factory=set[_ProxyEnd])
    _server: asyncio.Server | None = None
    _passing: asyncio.Event = field(default_factory=asyncio.Event)
    _calls: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def start(self) -> None:
        self._passing.set()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _ProxyEnd(self, answers=False), "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for call in self._calls:
            call.cancel()
        self.cut()

    async def inject(self, mode: str, seconds: float) -> None:
        """Apply a fault mode for some time; concurrent calls run one after the other."""
        async with self._lock:
            await self._apply_mode(mode, seconds)

    async def _apply_mode(self, mode: str, seconds: float) -> None:
        self.mode, self.delay_seconds = mode, 0.02 + 0.08 * random.random()  # noqa: S311
        if mode == "reset":
            self.cut()
        if mode == "forgotten":
            for end in self._ends:
                end.forgotten = True
        if mode == "blackhole":
            self._passing.clear()
        try:
            if mode not in INSTANT_MODES:
                await asyncio.sleep(seconds)
        finally:  # also on cancellation
            if mode in ("blackhole", "half-open"):
                self.cut()
            self.mode = "pass"
            self._passing.set()

    @property
    def blocks_traffic(self) -> bool:
        """Whether nothing passes."""
        return self.mode == "blackhole"

    @property
    def late_seconds(self) -> float:
        return self.delay_seconds if self.mode == "latency" else 0.0

    @property
    def ends(self) -> int:
        """Number of ends of open connections."""
        return len(self._ends)

    def drops_data(self, *, answers: bool) -> bool:
        return answers and self.mode == "half-open"

    def cut(self) -> None:
        for end in list(self._ends):
            end.cut()

    def add_end(self, end: _ProxyEnd) -> None:
        self._ends.add(end)
        if end.other is None:
            call = asyncio.create_task(self._connect_upstream(end))
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)

    def remove_end(self, end: _ProxyEnd) -> None:
        self._ends.discard(end)

    async def _connect_upstream(self, client: _ProxyEnd) -> None:
        """Connect a new client to the server."""
        await self._passing.wait()
        loop, upstream_end = asyncio.get_running_loop(), _ProxyEnd(self, answers=True)
        upstream_end.other = client
        try:
            if isinstance(self.upstream, str):
                await loop.create_unix_connection(lambda: upstream_end, self.upstream)
            else:
                await loop.create_connection(lambda: upstream_end, *self.upstream)
        except OSError:
            client.cut()
            return
        client.other = upstream_end
        if client not in self._ends:  # the client has disconnected
            upstream_end.cut()
        client.forward()
