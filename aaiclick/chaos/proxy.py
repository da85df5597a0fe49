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
from dataclasses import dataclass, field

MODES = ("latency", "reset", "blackhole", "half-open", "forgotten")
AT_ONCE = ("reset", "forgotten")
PIECE = 65_536


@dataclass(eq=False)
class _Pair:
    client: asyncio.StreamWriter
    server: asyncio.StreamWriter | None = None
    forgotten: bool = False

    def cut(self) -> None:
        for writer in (self.client, self.server):
            if writer is None:
                continue
            with contextlib.suppress(OSError, AttributeError):
                sock: socket.socket = writer.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()


@dataclass(eq=False)
class Proxy:
    """One listening port before one server: `upstream` is a path of a socket, or host and port."""

    upstream: str | tuple[str, int]
    port: int = 0
    mode: str = "pass"
    delay_seconds: float = 0.0
    _pairs: set[_Pair] = field(default_factory=set[_Pair])
    _server: asyncio.Server | None = None
    _passing: asyncio.Event = field(default_factory=asyncio.Event)

    async def start(self) -> None:
        self._passing.set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        self.cut()

    async def strike(self, mode: str, seconds: float) -> None:
        """Be bad for a while."""
        self.mode, self.delay_seconds = mode, 0.02 + 0.08 * random.random()  # noqa: S311
        if mode == "reset":
            self.cut()
        if mode == "forgotten":
            for pair in self._pairs:
                pair.forgotten = True
        if mode == "blackhole":
            self._passing.clear()
        if mode not in AT_ONCE:
            await asyncio.sleep(seconds)
        if mode in ("blackhole", "half-open"):
            self.cut()
        self.mode = "pass"
        self._passing.set()

    def cut(self) -> None:
        for pair in list(self._pairs):
            pair.cut()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pair = _Pair(writer)
        self._pairs.add(pair)
        try:
            await self._passing.wait()
            if isinstance(self.upstream, str):
                there, pair.server = await asyncio.open_unix_connection(self.upstream)
            else:
                there, pair.server = await asyncio.open_connection(*self.upstream)
            await asyncio.gather(
                self._pump(pair, reader, pair.server, answers=False), self._pump(pair, there, writer, answers=True)
            )
        except (OSError, asyncio.CancelledError):
            pair.cut()
        finally:
            self._pairs.discard(pair)
            for each in (pair.client, pair.server):
                if each is not None:
                    each.close()

    async def _pump(
        self, pair: _Pair, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool
    ) -> None:
        while piece := await reader.read(PIECE):
            await self._passing.wait()
            if self.mode == "latency":
                await asyncio.sleep(self.delay_seconds)
            if pair.forgotten or (self.mode == "half-open" and answers):
                continue
            writer.write(piece)
            await writer.drain()
        if writer.can_write_eof():
            with contextlib.suppress(OSError):
                writer.write_eof()
