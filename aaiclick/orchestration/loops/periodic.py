"""A duty that is done every few seconds by a task of its own, over connections of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Self

import asyncpg

from aaiclick.data.client import Client
from aaiclick.data.client import connect as connect_clickhouse
from aaiclick.errors import AaiclickError
from aaiclick.local import clickhouse_target, postgres_target
from aaiclick.store.engine import connect
from aaiclick.targets import ClickHouseTarget, PostgresTarget

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

log = logging.getLogger(__name__)

TROUBLE = (AaiclickError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
"""A server is away, restarts or refuses: the next pass does what this one did not."""


class Periodic(ABC):
    """`run_once` every `poll_interval` seconds, from `start` to `stop`; as `async with`, both.

    The servers are those of the settings unless given.
    """

    def __init__(
        self,
        poll_interval: float,
        *,
        postgres: PostgresTarget | None = None,
        clickhouse: ClickHouseTarget | None = None,
    ) -> None:
        self.poll_interval = poll_interval
        self._postgres = postgres
        self._clickhouse = clickhouse
        self._connection: Connection | None = None
        self._one_pass = asyncio.Lock()
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def run_once(self) -> int:
        """One pass; returns how many tables it dropped. Any number may run at once, here or elsewhere."""

    async def start(self, *, delay_seconds: float = 0.0) -> None:
        """Begin, with the first pass after `delay_seconds`."""
        if self._task is None:
            self._stopping.clear()
            self._task = asyncio.create_task(self._repeat(delay_seconds))

    async def stop(self) -> None:
        """Finish the pass that runs, and stop."""
        self._stopping.set()
        if self._task is not None:
            await self._task
            self._task = None
        await self._hang_up()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _repeat(self, delay_seconds: float) -> None:
        await self._pause(delay_seconds)
        while not self._stopping.is_set():
            try:
                await self.run_once()
            except TROUBLE as error:
                log.warning("%s: %s", type(self).__name__, str(error).replace("\n", " "))
            except Exception:
                log.exception("%s: this should not have happened. It goes on.", type(self).__name__)
            await self._pause(self.poll_interval)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    @contextlib.asynccontextmanager
    async def _servers(self) -> AsyncGenerator[tuple[Connection, Client]]:
        """Both servers, for one pass at a time."""
        async with self._one_pass:
            self._postgres = self._postgres or await postgres_target()
            self._clickhouse = self._clickhouse or await clickhouse_target()
            if self._connection is None or self._connection.is_closed():
                self._connection = await connect(self._postgres)
            try:
                yield self._connection, await connect_clickhouse(self._clickhouse)
            except TROUBLE:
                await self._hang_up()  # whatever state it is in, the next pass has a new one
                raise
            finally:
                if self._task is None:  # a single pass by itself
                    await self._hang_up()

    async def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(*TROUBLE, TimeoutError):
                await connection.close(timeout=1)
