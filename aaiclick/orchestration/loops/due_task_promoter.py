"""Promoter: makes due tasks (scheduled starts, retries) ready. Claims that find too few tasks do the same."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from aaiclick.store.engine.claims import PROMOTE_BATCH_SIZE, promote_due_tasks

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection


async def run_once(connection: Connection, *, now: datetime | None = None) -> dict[str, int]:
    """Promote all due tasks; `tasks` is their number."""
    total = 0
    while promoted := await promote_due_tasks(connection, now=now):
        total += promoted
        if promoted < PROMOTE_BATCH_SIZE:
            break
    return {"tasks": total}
