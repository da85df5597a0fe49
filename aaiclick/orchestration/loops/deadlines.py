"""Job timeouts: a job that has run for too long fails; what waits in it is cancelled, what runs is told to stop."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from aaiclick.store.upkeep import end_overdue_jobs

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection


async def run_once(connection: Connection, *, now: datetime | None = None) -> dict[str, int]:
    """One pass: `jobs` that were ended."""
    return {"jobs": await end_overdue_jobs(connection, now=now)}
