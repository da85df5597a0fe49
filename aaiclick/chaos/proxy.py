"""The network between two processes: a TCP proxy that can be slow, silent in one direction or both, or cut.

`blackhole`: nothing passes and nobody hears why. `half-open`: what the client says arrives, no answer comes back.
Both end with a reset, as a firewall that comes to its senses does. `reset`: cut at once. `latency`: late. `forgotten`:
connections that are there stay silent for ever, as if a router had lost its table; new ones work.
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
AT_ONCE = ("reset", "forgotten")


class _End(asyncio.Protocol):
    """One end of a connection: what it hears is the other's to say, at once if the network is good."""

    def __init__(self, proxy: Proxy, *, answers: bool) -> None:
        self._proxy = proxy
        self._answers = answers
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._ended = False
        self._said_all = False
        self.other: _End | None = None
        self.transport: asyncio.Transport | None = None
        self.forgotten = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._proxy.opened(self)

    def data_received(self, data: bytes) -> None:
        if self.forgotten or self._proxy.swallows(answers=self._answers):
            return
        self._waiting.append((asyncio.get_running_loop().time() + self._proxy.late_seconds, data))
        self.pass_on()

    def eof_received(self) -> bool:
        if not self.forgotten:
            self._ended = True
            self.pass_on()
        return True

    def pass_on(self) -> None:
        """Say what is to be said by now."""
        there = None if self.other is None else self.other.transport
        if self._proxy.holds or there is None or there.is_closing():
            return
        loop = asyncio.get_running_loop()
        while self._waiting:
            at, data = self._waiting[0]
            if at > loop.time():
                loop.call_at(at, self.pass_on)
                return
            self._waiting.popleft()
            there.write(data)
        if self._ended:
            self._end(there)

    def _end(self, there: asyncio.Transport) -> None:
        """Say that nothing more comes; when both have said so, the connection is over."""
        self._said_all = True
        if self.other is not None and self.other._said_all and self.transport is not None:
            self.transport.close()
            there.close()
        elif there.can_write_eof():
            with contextlib.suppress(OSError, RuntimeError):
                there.write_eof()

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._proxy.closed(self)
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
class Proxy:
    """One listening port before one server: `upstream` is a path of a socket, or host and port."""

    upstream: str | tuple[str, int]
    port: int = 0
    mode: str = "pass"
    delay_seconds: float = 0.0
    _ends: set[_End] = field(default_factory=set[_End])
    _server: asyncio.Server | None = None
    _passing: asyncio.Event = field(default_factory=asyncio.Event)
    _calls: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    _struck: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def start(self) -> None:
        self._passing.set()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _End(self, answers=False), "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for call in self._calls:
            call.cancel()
        self.cut()

    async def strike(self, mode: str, seconds: float) -> None:
        """Be bad for a while; two of these come one after the other."""
        async with self._struck:
            await self._strike(mode, seconds)

    async def _strike(self, mode: str, seconds: float) -> None:
        self.mode, self.delay_seconds = mode, 0.02 + 0.08 * random.random()  # noqa: S311
        if mode == "reset":
            self.cut()
        if mode == "forgotten":
            for end in self._ends:
                end.forgotten = True
        if mode == "blackhole":
            self._passing.clear()
        try:
            if mode not in AT_ONCE:
                await asyncio.sleep(seconds)
        finally:  # also when somebody has had enough of it
            if mode in ("blackhole", "half-open"):
                self.cut()
            self.mode = "pass"
            self._passing.set()

    @property
    def holds(self) -> bool:
        """Whether nothing passes."""
        return self.mode == "blackhole"

    @property
    def late_seconds(self) -> float:
        return self.delay_seconds if self.mode == "latency" else 0.0

    @property
    def ends(self) -> int:
        """Of connections that are open."""
        return len(self._ends)

    def swallows(self, *, answers: bool) -> bool:
        return answers and self.mode == "half-open"

    def cut(self) -> None:
        for end in list(self._ends):
            end.cut()

    def opened(self, end: _End) -> None:
        self._ends.add(end)
        if end.other is None:
            call = asyncio.create_task(self._call(end))
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)

    def closed(self, end: _End) -> None:
        self._ends.discard(end)

    async def _call(self, client: _End) -> None:
        """Somebody has come: find the server for it."""
        await self._passing.wait()
        loop, there = asyncio.get_running_loop(), _End(self, answers=True)
        there.other = client
        try:
            if isinstance(self.upstream, str):
                await loop.create_unix_connection(lambda: there, self.upstream)
            else:
                await loop.create_connection(lambda: there, *self.upstream)
        except OSError:
            client.cut()
            return
        client.other = there
        if client not in self._ends:  # it has gone meanwhile
            there.cut()
        client.pass_on()
