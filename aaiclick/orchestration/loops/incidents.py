"""Incidents: adds occurrences to their counts, and closes incidents that are over."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from aaiclick.settings import get_settings
from aaiclick.store.engine.incidents import (
    OCCURRENCE_BATCH_SIZE,
    add_occurrences,
    close_recovered,
    has_incident_work,
    record_dead_sources,
    record_late_datasets,
    record_overdue_jobs,
)

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

_last_checked = 0
"""The last incident that this process checked: a pass checks the next ones, so its cost is bounded."""


async def run_once(connection: Connection, *, now: datetime | None = None) -> dict[str, int]:
    """Run one pass; counts `occurrences` that were added, and incidents that were `opened` and `closed`."""
    global _last_checked
    total = 0
    if not await has_incident_work(connection, now=now):
        return {"occurrences": 0, "opened": 0, "closed": 0}
    while added := await add_occurrences(connection):
        total += added
        if added < OCCURRENCE_BATCH_SIZE:
            break
    opened = 0
    for record in (record_dead_sources, record_late_datasets, record_overdue_jobs):
        opened += await record(connection, now=now)
    quiet_seconds = get_settings().incident_quiet_seconds
    closed, _last_checked = await close_recovered(connection, after=_last_checked, quiet_seconds=quiet_seconds, now=now)
    return {"occurrences": total, "opened": opened, "closed": closed}
