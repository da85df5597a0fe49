"""Event router of the server, for installations where workers have no database."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aaiclick.orchestration.loops import event_router
from aaiclick.server.reconnect import run_with_reconnect
from aaiclick.server_addresses import PostgresEndpoint

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection


class ServerEventRouter:
    """Routes dataset events, from the first time that a worker has the server run the loops."""

    def __init__(self, endpoint: PostgresEndpoint) -> None:
        self._endpoint = endpoint
        self._activated = asyncio.Event()
        self._notifier = event_router.EventNotifier()

    def activate(self) -> None:
        self._activated.set()

    async def run(self) -> None:
        """Route events until cancelled."""
        await self._activated.wait()
        await run_with_reconnect(self._endpoint, "event router", self._route_events)

    async def _route_events(self, connection: Connection) -> None:
        await self._notifier.listen(connection)
        await event_router.run_once(connection)
        await self._notifier.wait(event_router.POLL_SECONDS)
