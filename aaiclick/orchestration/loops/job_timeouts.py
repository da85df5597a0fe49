"""Job timeouts: fails jobs that exceed their timeout, cancels waiting tasks and requests running ones to stop."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from aaiclick.store.engine.maintenance import end_overdue_jobs

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection


async def run_once(connection: Connection, *, now: datetime | None = None) -> dict[str, int]:
    """Run one pass; `jobs` is the number of jobs that timed out."""
    return {"jobs": await end_overdue_jobs(connection, now=now)}
