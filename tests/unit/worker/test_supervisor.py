"""Stop of the background tasks of a supervisor."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

from aaiclick.orchestration.worker.supervisor import Supervisor

CONNECTIONS = ("_registrations", "_leases", "_limits", "_loops", "_events", "_messages", "_runtimes", "_logs")


class SilentConnection:
    """Connection to a server that does not answer: only a close ends the rollback."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()

    def close(self) -> None:
        self.closed.set()

    async def run_transaction(self) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await self.closed.wait()
            raise ConnectionError("The connection was closed.") from None


async def route_events(connection: SilentConnection) -> None:
    """Reconnect after an error, as the loops of a supervisor do."""
    try:
        await connection.run_transaction()
    except ConnectionError:
        await asyncio.Event().wait()


async def test_stop_repeats_a_cancellation_that_a_failed_rollback_replaced():
    connections = {name: SilentConnection() for name in CONNECTIONS}
    task = asyncio.create_task(route_events(connections["_events"]))
    await asyncio.sleep(0)  # it has begun the transaction
    async with asyncio.timeout(30):
        await Supervisor._cancel_background(cast("Supervisor", SimpleNamespace(**connections)), [task])
    assert task.cancelled()
    assert all(connection.closed.is_set() for connection in connections.values())
