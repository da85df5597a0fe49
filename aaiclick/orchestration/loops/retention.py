"""Retention: finished jobs, finished tasks without a job and stopped workers are forgotten after a while."""

from __future__ import annotations

import time
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING

from aaiclick.settings import get_settings
from aaiclick.store.upkeep import forget

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

PASS_SECONDS = 1.0


async def run_once(
    connection: Connection, *, keep_seconds: float | None = None, limit: int = 1_000, now: datetime | None = None
) -> dict[str, int]:
    """One pass: how many `jobs`, `tasks` and `workers` were deleted, `limit` of each at a time; while there is more it
    goes on, up to PASS_SECONDS, so that what comes in fast goes out as fast.
    """
    keep = keep_seconds or get_settings().retention_seconds
    counts, began = Counter[str](), time.monotonic()
    while True:
        deleted = await forget(connection, keep_seconds=keep, limit=limit, now=now)
        counts.update(deleted)
        if max(deleted.values()) < limit or time.monotonic() - began > PASS_SECONDS:
            return dict(counts)
