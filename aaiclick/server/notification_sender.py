"""Notification sender of the server, for installations where workers have no database."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aaiclick.orchestration.loops.notification_sender import POLL_SECONDS, NotificationSender
from aaiclick.server.reconnect import run_with_reconnect
from aaiclick.server_addresses import PostgresEndpoint

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection


class ServerNotificationSender:
    """Delivers messages about incidents, from the first time that a worker has the server run the loops."""

    def __init__(self, endpoint: PostgresEndpoint) -> None:
        self._endpoint = endpoint
        self._activated = asyncio.Event()
        self._sender = NotificationSender()

    def activate(self) -> None:
        self._activated.set()

    async def run(self) -> None:
        """Deliver messages until cancelled."""
        await self._activated.wait()
        await run_with_reconnect(self._endpoint, "notification sender", self._send_messages)

    async def _send_messages(self, connection: Connection) -> None:
        await self._sender.run_once(connection)
        await asyncio.sleep(POLL_SECONDS)
