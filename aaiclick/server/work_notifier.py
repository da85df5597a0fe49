"""Notifier for workers that long-poll for work over HTTP: it numbers PostgreSQL's notifications.

A waiter sends the number of the last notification that it received, so that none is lost between two requests. After a
restart or an outage of PostgreSQL the numbers are unknown, and every waiter is notified.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from aaiclick.server.reconnect import run_with_reconnect
from aaiclick.server_addresses import PostgresEndpoint
from aaiclick.store.engine.queue import CANCEL_CHANNEL, READY_CHANNEL

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

CHECK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class WaitResult:
    """Notifications since the last wait; `now` is the position for the next one."""

    now: str
    ready: bool
    cancel: bool


class WorkNotifier:
    """Notifies waiters when tasks become ready or are to be cancelled."""

    def __init__(self, endpoint: PostgresEndpoint, closing: asyncio.Event) -> None:
        self._endpoint = endpoint
        self._closing = closing
        self._epoch = uuid4().hex[:12]
        self._number = 0
        self._last_numbers = {READY_CHANNEL: 0, CANCEL_CHANNEL: 0}
        self._notified = asyncio.Event()
        self._activated = asyncio.Event()
        self._connection: Connection | None = None

    async def wait(self, since: str, seconds: float) -> WaitResult:
        """Wait for a notification after `since`, at most `seconds`; returns at once if `since` is unknown."""
        self._activated.set()
        epoch, _, number = since.partition("-")
        if epoch != self._epoch or not number.isdecimal() or len(number) > 18:
            return WaitResult(f"{self._epoch}-{self._number}", ready=True, cancel=True)
        last_number = int(number)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._number <= last_number and not self._closing.is_set():
                    await self._notified.wait()
        is_notified = {channel: last > last_number for channel, last in self._last_numbers.items()}
        return WaitResult(f"{self._epoch}-{self._number}", is_notified[READY_CHANNEL], is_notified[CANCEL_CHANNEL])

    async def wait_for_notification(self, seconds: float) -> None:
        """Wait for the next notification, at most `seconds`."""
        await self.wait(f"{self._epoch}-{self._number}", seconds)

    def notify(self, *channels: str) -> None:
        """Wake all waiters; `channels` are marked as notified."""
        self._number += 1
        for channel in channels:
            self._last_numbers[channel] = self._number
        self._notified.set()
        self._notified = asyncio.Event()

    async def run(self) -> None:
        """Listen from the first wait on, until cancelled."""
        await self._activated.wait()
        await run_with_reconnect(self._endpoint, "work notifier", self._listen)

    async def _listen(self, connection: Connection) -> None:
        if connection is not self._connection:
            for channel in self._last_numbers:
                await connection.add_listener(channel, self._on_notification)
            self._connection = connection
            self.notify(*self._last_numbers)
        await asyncio.sleep(CHECK_SECONDS)

    def _on_notification(self, _connection: object, _pid: int, channel: str, _payload: object) -> None:
        self.notify(channel)
