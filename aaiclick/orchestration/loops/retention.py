"""Retention: finished jobs, finished tasks without a job and stopped workers are forgotten after a while."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from aaiclick.store.upkeep import forget

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

KEEP_SECONDS = 30 * 86_400.0


async def run_once(
    connection: Connection, *, keep_seconds: float = KEEP_SECONDS, limit: int = 1_000, now: datetime | None = None
) -> dict[str, int]:
    """One pass: how many `jobs`, `tasks` and `workers` were deleted, at most `limit` of each."""
    return await forget(connection, keep_seconds=keep_seconds, limit=limit, now=now)
