"""Work over one connection for as long as the server runs, whether PostgreSQL is there all the time or not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NoReturn

import asyncpg

from aaiclick.errors import AaiclickError
from aaiclick.store.engine import connect
from aaiclick.targets import PostgresTarget

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

log = logging.getLogger("aaiclick.server")

AWAY = (AaiclickError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
AGAIN_SECONDS = 1.0


async def keep_at(target: PostgresTarget, what: str, work: Callable[[Connection], Awaitable[None]]) -> NoReturn:
    """Do `work` again and again, until cancelled; `what` names it in the log. A connection that was lost is followed by
    another one: who listens over it sees that it is another, and listens anew.
    """
    connection: Connection | None = None
    try:
        while True:
            try:
                if connection is None or connection.is_closed():
                    connection = await connect(target)
                await work(connection)
            except AWAY as error:
                log.warning("%s: PostgreSQL is away (%s)", what, type(error).__name__)
                if connection is not None:
                    connection.terminate()  # whatever state it is in, the next pass has a new one
                await asyncio.sleep(AGAIN_SECONDS)
    finally:
        if connection is not None:
            connection.terminate()
