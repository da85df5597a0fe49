"""The database's clock, which rules; a test may say what time it is."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from aaiclick.store.statements import statement

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection


async def clock(connection: Connection, now: datetime | None = None) -> datetime:
    """The time."""
    return await connection.fetchval(statement("clock"), now)


async def uptime_seconds(connection: Connection) -> float:
    """Seconds since PostgreSQL started."""
    return await connection.fetchval(statement("uptime"))
