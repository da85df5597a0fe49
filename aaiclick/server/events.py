"""Events of datasets are routed here for workers that come over HTTP: they have no database to do it themselves."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import asyncpg

from aaiclick.errors import AaiclickError
from aaiclick.orchestration.loops import router
from aaiclick.settings import PostgresTarget
from aaiclick.store.engine import connect

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

log = logging.getLogger("aaiclick.server")

AWAY = (AaiclickError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
AGAIN_SECONDS = 1.0


class Routing:
    """A router of this server, from the first worker that asks it to keep house on."""

    def __init__(self, target: PostgresTarget) -> None:
        self._target = target
        self._wanted = asyncio.Event()

    def want(self) -> None:
        self._wanted.set()

    async def run(self) -> None:
        """Route until cancelled."""
        await self._wanted.wait()
        bell = router.Bell()
        connection: Connection | None = None
        try:
            while True:
                try:
                    if connection is None or connection.is_closed():
                        connection = await connect(self._target)
                    await bell.listen(connection)
                    await router.run_once(connection)
                    await bell.wait(router.POLL_SECONDS)
                except AWAY as error:
                    log.warning("events of datasets are not routed: PostgreSQL is away (%s)", type(error).__name__)
                    if connection is not None:
                        connection.terminate()  # whatever state it is in, the next pass has a new one
                    await asyncio.sleep(AGAIN_SECONDS)
        finally:
            if connection is not None:
                connection.terminate()
