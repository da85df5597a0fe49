"""The promoter: tasks whose time has come (a scheduled start, a retry) become ready. Claims that run dry do it too."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from aaiclick.store.claims import PROMOTED_AT_ONCE, promote

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection


async def run_once(connection: Connection, *, now: datetime | None = None) -> dict[str, int]:
    """One pass: all `tasks` that are due."""
    total = 0
    while promoted := await promote(connection, now=now):
        total += promoted
        if promoted < PROMOTED_AT_ONCE:
            break
    return {"tasks": total}
