"""Pools of connections to PostgreSQL, for contexts and for running tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, cast
from weakref import WeakKeyDictionary

from aaiclick.server_addresses import PostgresEndpoint
from aaiclick.store.postgres_connections import create_engine, create_pool, to_unreachable_error

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

    from aaiclick.store.connection_pooler_checks import GuardedConnection
    from aaiclick.store.postgres_connections import Connection


class ConnectionPool:
    """An asyncpg pool, and a SQLAlchemy engine that is created on first use."""

    def __init__(self, endpoint: PostgresEndpoint) -> None:
        self._endpoint = endpoint
        self._pool = create_pool(endpoint)
        self._engine: AsyncEngine | None = None

    async def close(self) -> None:
        await self._pool
        await self._pool.close()
        if self._engine is not None:
            await self._engine.dispose()

    @property
    def engine(self) -> AsyncEngine:
        if self._engine is None:
            self._engine = create_engine(self._endpoint)
        return self._engine

    @asynccontextmanager
    async def connection(self, *, keeps_session: bool = False) -> AsyncGenerator[Connection]:
        """A driver connection, for one operation, which may promise to leave the state of the session as it is."""
        await self._pool  # initialises it on first use; opens no connection
        async with self._pool.acquire() as acquired:
            connection = cast("Connection", acquired)
            try:
                yield connection
            except Exception as error:
                self._raise_outage(error, connection)
                raise
            if keeps_session:
                cast("GuardedConnection", connection).skip_reset()

    @asynccontextmanager
    async def session(self) -> AsyncGenerator[AsyncSession]:
        """A SQLAlchemy session, for one operation."""
        from sqlalchemy.ext.asyncio import AsyncSession

        try:
            async with AsyncSession(self.engine, expire_on_commit=False) as session:
                yield session
        except Exception as error:
            self._raise_outage(_driver_error(error))
            raise

    def _raise_outage(self, error: Exception, connection: Connection | None = None) -> None:
        """Raise UnreachableError if the connection was lost: an outage is not charged to the task."""
        lost = to_unreachable_error(self._endpoint, error, connection)
        if lost is not None:
            raise lost from error


def _driver_error(error: Exception) -> Exception:
    """The asyncpg error that a SQLAlchemy error wraps."""
    original = getattr(error, "orig", None)
    cause = original.__cause__ if isinstance(original, Exception) else None
    return cause if isinstance(cause, Exception) else error


_pools: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[PostgresEndpoint, ConnectionPool]] = WeakKeyDictionary()


def shared_pool(endpoint: PostgresEndpoint) -> ConnectionPool:
    """The pool that the tasks of an event loop share: opening one per task would cost too much."""
    pools = _pools.setdefault(asyncio.get_running_loop(), {})
    if endpoint not in pools:
        pools[endpoint] = ConnectionPool(endpoint)
    return pools[endpoint]
