"""Base class of loops that run periodically in their own asyncio task, with their own connections."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Self

import asyncpg

from aaiclick.data.runtime.clickhouse_client import ClickHouseClient
from aaiclick.data.runtime.clickhouse_client import connect as connect_clickhouse
from aaiclick.errors import AaiclickError
from aaiclick.local import clickhouse_endpoint, postgres_endpoint
from aaiclick.server_addresses import ClickHouseEndpoint, PostgresEndpoint
from aaiclick.store.postgres_connections import connect

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

log = logging.getLogger(__name__)

RECOVERABLE_ERRORS = (
    AaiclickError,
    OSError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)
"""A server is unreachable, restarts or refuses: the next pass retries."""


class PeriodicLoop(ABC):
    """Calls `run_once` every `poll_interval` seconds between `start` and `stop`; also usable as `async with`.

    The servers default to those of the settings.
    """

    def __init__(
        self,
        poll_interval: float,
        *,
        postgres: PostgresEndpoint | None = None,
        clickhouse: ClickHouseEndpoint | None = None,
    ) -> None:
        self.poll_interval = poll_interval
        self._postgres = postgres
        self._clickhouse = clickhouse
        self._connection: Connection | None = None
        self._pass_lock = asyncio.Lock()
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def run_once(self) -> int:
        """Run one pass; returns how many tables it dropped. Safe to run concurrently in several processes."""

    async def start(self, *, delay_seconds: float = 0.0) -> None:
        """Start; the first pass runs after `delay_seconds`."""
        if self._task is None:
            self._stopping.clear()
            self._task = asyncio.create_task(self._run_loop(delay_seconds))

    async def stop(self) -> None:
        """Stop after the current pass."""
        self._stopping.set()
        if self._task is not None:
            await self._task
            self._task = None
        await self._disconnect()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _run_loop(self, delay_seconds: float) -> None:
        await self._sleep(delay_seconds)
        while not self._stopping.is_set():
            try:
                await self.run_once()
            except RECOVERABLE_ERRORS as error:
                log.warning("%s: %s", type(self).__name__, str(error).replace("\n", " "))
            except Exception:
                log.exception("%s failed unexpectedly; retrying.", type(self).__name__)
            await self._sleep(self.poll_interval)

    async def _sleep(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    @contextlib.asynccontextmanager
    async def _servers(self) -> AsyncGenerator[tuple[Connection, ClickHouseClient]]:
        """Connections to both servers, for one pass at a time."""
        async with self._pass_lock:
            self._postgres = self._postgres or await postgres_endpoint()
            self._clickhouse = self._clickhouse or await clickhouse_endpoint()
            if self._connection is None or self._connection.is_closed():
                self._connection = await connect(self._postgres)
            try:
                yield self._connection, await connect_clickhouse(self._clickhouse)
            except RECOVERABLE_ERRORS:
                await self._disconnect()  # the next pass uses a new connection
                raise
            finally:
                if self._task is None:  # a single pass, without start()
                    await self._disconnect()

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(*RECOVERABLE_ERRORS, TimeoutError):
                await connection.close(timeout=1)
