"""Event router: turns events of datasets into tasks of the definitions that read them."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import datetime
from typing import TYPE_CHECKING

from aaiclick.store.catalog.dataset_events import EVENT_CHANNEL
from aaiclick.store.catalog.event_routing import route_events

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

POLL_SECONDS = 0.5


async def run_once(connection: Connection, *, now: datetime | None = None) -> dict[str, int]:
    """Route all pending events; `events` is their number. Safe to run concurrently: others find nothing to do."""
    total = 0
    while routed := await route_events(connection, now=now):
        total += routed
    return {"events": total}


class EventNotifier:
    """Wakes a waiter when events are notified. Notifications can be lost, so waiters also poll."""

    def __init__(self) -> None:
        self._notified = asyncio.Event()
        self._connection: Connection | None = None

    async def listen(self, connection: Connection) -> None:
        """Listen on this connection, in place of an earlier one."""
        if connection is not self._connection:
            await connection.add_listener(EVENT_CHANNEL, self._on_notify)
            self._connection = connection

    def _on_notify(self, *_: object) -> None:
        self._notified.set()

    async def wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._notified.wait(), seconds)
        self._notified.clear()
