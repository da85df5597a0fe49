"""Who runs the loops: the leader all of them, and everybody the one that asks next to nothing."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import TYPE_CHECKING

import asyncpg

from aaiclick.orchestration.loops import deadlines, promoter, reaper, retention, scheduler
from aaiclick.store.claims import is_due
from aaiclick.store.upkeep import waiting_at_most
from aaiclick.store.workers import lead

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

TERM_SECONDS = 6.0
"""How long leadership lasts at most, unless extended; `run_once` should come three times as often. Who leads and falls
silent keeps everybody waiting for the rest of its term.
"""

LOOPS = (
    ("reaper", reaper), ("promoter", promoter), ("deadlines", deadlines), ("scheduler", scheduler),
    ("retention", retention),
)  # fmt: skip
OF_ALL = (("promoter", promoter),)

_logger = logging.getLogger(__name__)

LOCK_SECONDS = 0.25
"""The loops wait for nobody: what is locked for longer is left to the next pass. Its holder may be frozen, and all
others' leases are to be taken away in time.
"""


async def run_once(
    connection: Connection, *, worker_id: int, term_seconds: float = TERM_SECONDS, now: datetime | None = None
) -> dict[str, int]:
    """Stand for election, then one pass of every loop if elected. `leads` is 1 or 0.

    Who is not elected lets tasks begin whose time has come, if there are any: the leader may have fallen silent, and
    workers that are busy do not look.
    """
    term = await lead(connection, worker_id, term_seconds=term_seconds, now=now)
    counts = {"leads": int(term is not None)}
    if term is None and not await is_due(connection, now=now):
        return counts
    async with waiting_at_most(connection, LOCK_SECONDS):
        for name, loop in LOOPS if term is not None else OF_ALL:
            try:
                for what, count in (await loop.run_once(connection, now=now)).items():
                    counts[f"{name}_{what}"] = count
            except asyncpg.LockNotAvailableError:
                pass
            except Exception as error:
                if connection.is_closed() or isinstance(error, OSError):
                    raise
                _logger.exception("The %s stumbled. The other loops go on.", name)
    return counts
