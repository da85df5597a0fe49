"""Retention: deletes finished jobs, finished tasks without a job, and stopped workers after the retention time."""

from __future__ import annotations

import time
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING

from aaiclick.settings import get_settings
from aaiclick.store.engine.maintenance import delete_old_history

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

PASS_SECONDS = 1.0


async def run_once(
    connection: Connection, *, keep_seconds: float | None = None, limit: int = 1_000, now: datetime | None = None
) -> dict[str, int]:
    """Run one pass; counts deleted `jobs`, `tasks` and `workers`.

    Deletes batches of `limit` rows for up to PASS_SECONDS, to keep up with a high rate of new rows.
    """
    keep = keep_seconds or get_settings().retention_seconds
    counts, began = Counter[str](), time.monotonic()
    while True:
        deleted = await delete_old_history(connection, keep_seconds=keep, limit=limit, now=now)
        counts.update(deleted)
        if max(deleted.values()) < limit or time.monotonic() - began > PASS_SECONDS:
            return dict(counts)
