"""Events of datasets are routed here for workers that come over HTTP: they have no database to do it themselves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aaiclick.orchestration.loops import router
from aaiclick.server.away import keep_at
from aaiclick.targets import PostgresTarget

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection


class Routing:
    """A router of this server, from the first worker that asks it to keep house on."""

    def __init__(self, target: PostgresTarget) -> None:
        self._target = target
        self._wanted = asyncio.Event()
        self._bell = router.Bell()

    def want(self) -> None:
        self._wanted.set()

    async def run(self) -> None:
        """Route until cancelled."""
        await self._wanted.wait()
        await keep_at(self._target, "events of datasets are not routed", self._route)

    async def _route(self, connection: Connection) -> None:
        await self._bell.listen(connection)
        await router.run_once(connection)
        await self._bell.wait(router.POLL_SECONDS)
