"""A bell for workers that wait for work over HTTP: PostgreSQL's notifications, counted.

Who waits says what it heard last; what came in between is there at once, so nothing is missed between two requests.
After a restart, or while PostgreSQL was away, nobody knows: then it rings.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from aaiclick.server.away import keep_at
from aaiclick.store.queue import CANCEL_CHANNEL, READY_CHANNEL
from aaiclick.targets import PostgresTarget

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Heard:
    """What happened since; `now` is what to ask with next."""

    now: str
    ready: bool
    cancel: bool


class Bell:
    """Rings when tasks become ready, and when something is to be cancelled."""

    def __init__(self, target: PostgresTarget, closing: asyncio.Event) -> None:
        self._target = target
        self._closing = closing
        self._epoch = uuid4().hex[:12]
        self._number = 0
        self._last = {READY_CHANNEL: 0, CANCEL_CHANNEL: 0}
        self._rung = asyncio.Event()
        self._wanted = asyncio.Event()
        self._connection: Connection | None = None

    async def wait(self, since: str, seconds: float) -> Heard:
        """Until it rings, at most so long; at once if it rang since then, or if that cannot be known."""
        self._wanted.set()
        epoch, _, number = since.partition("-")
        if epoch != self._epoch or not number.isdecimal() or len(number) > 18:
            return Heard(f"{self._epoch}-{self._number}", ready=True, cancel=True)
        reached = int(number)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._number <= reached and not self._closing.is_set():
                    await self._rung.wait()
        heard = {channel: last > reached for channel, last in self._last.items()}
        return Heard(f"{self._epoch}-{self._number}", heard[READY_CHANNEL], heard[CANCEL_CHANNEL])

    async def until_ready(self, seconds: float) -> None:
        """Until something becomes ready, at most so long."""
        await self.wait(f"{self._epoch}-{self._number}", seconds)

    def ring(self, *channels: str) -> None:
        self._number += 1
        for channel in channels:
            self._last[channel] = self._number
        self._rung.set()
        self._rung = asyncio.Event()

    async def run(self) -> None:
        """Listen from the first who waits on, until cancelled."""
        await self._wanted.wait()
        await keep_at(self._target, "the bell of workers", self._listen)

    async def _listen(self, connection: Connection) -> None:
        if connection is not self._connection:
            for channel in self._last:
                await connection.add_listener(channel, self._on_notice)
            self._connection = connection
            self.ring(*self._last)
        await asyncio.sleep(LOOK_SECONDS)

    def _on_notice(self, _connection: object, _pid: int, channel: str, _payload: object) -> None:
        self.ring(channel)
