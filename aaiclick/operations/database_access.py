"""Databases of the actor's organisation, for operations that need more than one PostgreSQL connection."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Protocol

from aaiclick import failpoints

if TYPE_CHECKING:
    from aaiclick.server_addresses import ClickHouseEndpoint
    from aaiclick.store.postgres_connections import Connection


class Databases(Protocol):
    """Opens connections; the server and the local command line implement it."""

    def connect(self, *, as_owner: bool = False) -> AbstractAsyncContextManager[Connection]:
        """A PostgreSQL connection that row-level security restricts to the organisation, unless it is the owner's."""
        ...

    async def clickhouse(self) -> ClickHouseEndpoint:
        """The ClickHouse database of the organisation, created if missing."""
        ...


@asynccontextmanager
async def open_transaction(databases: Databases) -> AsyncGenerator[Connection]:
    """A transaction for a change and its audit entry."""
    async with databases.connect() as connection, begin_transaction(connection):
        yield connection


def begin_transaction(connection: Connection) -> AbstractAsyncContextManager[object]:
    """Begin the transaction of a change and its audit entry."""
    return failpoints.transaction(connection, "operation")
