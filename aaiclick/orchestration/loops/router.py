"""The router: events of datasets become tasks of the definitions that read them."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import datetime
from typing import TYPE_CHECKING

from aaiclick.store.catalog_events import EVENT_CHANNEL
from aaiclick.store.event_routing import route

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

POLL_SECONDS = 0.5


async def run_once(connection: Connection, *, now: datetime | None = None) -> dict[str, int]:
    """One pass: all `events` there are. Several at once do no harm: all but one find nothing to do."""
    total = 0
    while routed := await route(connection, now=now):
        total += routed
    return {"events": total}


class Bell:
    """Rings when there are events; whoever waits for it looks now and then all the same."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()
        self._connection: Connection | None = None

    async def listen(self, connection: Connection) -> None:
        """Have it rung over this connection from now on."""
        if connection is not self._connection:
            await connection.add_listener(EVENT_CHANNEL, self._ring)
            self._connection = connection

    def _ring(self, *_: object) -> None:
        self._rung.set()

    async def wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._rung.wait(), seconds)
        self._rung.clear()
