"""Who runs the loops: the leader all of them, and everybody the urgent ones when there is no leader."""

from __future__ import annotations

import contextlib
from datetime import datetime
from typing import TYPE_CHECKING

import asyncpg

from aaiclick.orchestration.loops import deadlines, promoter, reaper, retention, scheduler
from aaiclick.store.upkeep import waiting_at_most
from aaiclick.store.workers import lead

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

TERM_SECONDS = 6.0
"""How long leadership lasts at most, unless extended; `run_once` should come three times as often. Who leads and falls
silent keeps everybody waiting for the rest of its term.
"""

LOCK_SECONDS = 0.25
"""The loops wait for nobody: what is locked for longer is left to the next pass. Its holder may be frozen, and all
others' leases are to be taken away in time.
"""


async def run_once(
    connection: Connection, *, worker_id: int, term_seconds: float = TERM_SECONDS, now: datetime | None = None
) -> dict[str, int]:
    """Stand for election, then one pass of every loop if elected. `leads` is 1 or 0.

    A worker that is not elected returns at once: somebody else has just done the same.
    """
    term = await lead(connection, worker_id, term_seconds=term_seconds, now=now)
    counts = {"leads": int(term is not None)}
    if term is None:
        return counts
    loops = (
        ("reaper", reaper), ("promoter", promoter), ("deadlines", deadlines), ("scheduler", scheduler),
        ("retention", retention),
    )  # fmt: skip
    async with waiting_at_most(connection, LOCK_SECONDS):
        for name, loop in loops:
            with contextlib.suppress(asyncpg.LockNotAvailableError):
                for what, count in (await loop.run_once(connection, now=now)).items():
                    counts[f"{name}_{what}"] = count
    return counts
