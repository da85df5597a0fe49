"""The database's clock; tests may set the time."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from aaiclick.store.statements import statement

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection


async def read_clock(connection: Connection, now: datetime | None = None) -> datetime:
    """The database's time, or `now`."""
    return await connection.fetchval(statement("read_clock"), now)


async def read_uptime_seconds(connection: Connection) -> float:
    """Seconds since PostgreSQL started."""
    return await connection.fetchval(statement("read_uptime"))
