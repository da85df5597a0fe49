"""What this server lends to its workers: a ClickHouse user for each, for as long as the worker is heard of."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick.orchestration.credentials import PASS_SECONDS, Credentials
from aaiclick.orchestration.tenants import Tenants
from aaiclick.server.away import AWAY
from aaiclick.settings import Settings
from aaiclick.targets import ClickHouseTarget

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

log = logging.getLogger("aaiclick.server")


class Lending:
    """Gives credentials with claims; renews and drops them beside the requests, which never wait for that."""

    def __init__(
        self,
        settings: Settings,
        databases: Callable[[], Awaitable[Tenants]],
        connect: Callable[[], AbstractAsyncContextManager[Connection]],
    ) -> None:
        self._embedded = settings.clickhouse is None
        self._databases = databases
        self._connect = connect
        self._found: Credentials | None = None
        self._wanted = asyncio.Event()
        self._leaving: asyncio.Queue[tuple[UUID, int]] = asyncio.Queue()

    async def give(self, org_id: UUID, worker_id: int) -> ClickHouseTarget:
        """What a worker is given with a claim; raises where there is no user for each."""
        return await (await self._credentials()).give(org_id, worker_id)

    def want(self) -> None:
        """A worker is there."""
        self._wanted.set()

    def end(self, org_id: UUID, worker_id: int) -> None:
        """A worker has said goodbye. If another server gave it its user, the next pass finds that, here or there."""
        if self._found is not None and self._found.knows(org_id, worker_id):
            self._leaving.put_nowait((org_id, worker_id))

    async def run(self) -> None:
        """Look after users until cancelled, from the first worker on."""
        if self._embedded:
            return  # its users are written in a file
        await self._wanted.wait()
        while True:
            try:
                async with self._connect() as connection:
                    await (await self._credentials()).run_once(connection)
            except AWAY as error:
                log.warning(
                    "credentials of workers are not renewed: a database is away or refuses (%s)", type(error).__name__
                )
            with suppress(TimeoutError):
                async with asyncio.timeout(PASS_SECONDS):
                    await self._see_off()

    async def _see_off(self) -> None:
        while True:
            org_id, worker_id = await self._leaving.get()
            try:
                await (await self._credentials()).drop(org_id, worker_id)
            except AWAY as error:
                log.warning("a worker's credential is dropped later (%s)", type(error).__name__)

    async def _credentials(self) -> Credentials:
        if self._found is None:
            self._found = Credentials(await self._databases())
        return self._found
