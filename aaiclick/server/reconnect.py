"""Background work over one PostgreSQL connection that is re-established after outages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NoReturn

from aaiclick.server_addresses import PostgresEndpoint
from aaiclick.store.postgres_connections import CONNECTION_ERRORS, connect

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

log = logging.getLogger("aaiclick.server")

RECONNECT_SECONDS = 1.0


async def run_with_reconnect(
    endpoint: PostgresEndpoint, what: str, work: Callable[[Connection], Awaitable[None]]
) -> NoReturn:
    """Run `work` in a loop until cancelled; `what` names it in the log.

    After an outage `work` gets a new connection and has to register its listeners on it again.
    """
    connection: Connection | None = None
    try:
        while True:
            try:
                if connection is None or connection.is_closed():
                    connection = await connect(endpoint)
                await work(connection)
            except CONNECTION_ERRORS as error:
                log.warning("%s: PostgreSQL is unreachable (%s)", what, type(error).__name__)
                if connection is not None:
                    connection.terminate()  # its state is unknown: the next pass opens a new one
                await asyncio.sleep(RECONNECT_SECONDS)
    finally:
        if connection is not None:
            connection.terminate()
