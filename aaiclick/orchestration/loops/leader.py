"""Leader election: the leader runs all loops, other workers only the promoter."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import TYPE_CHECKING

import asyncpg

from aaiclick.orchestration.loops import (
    due_task_promoter,
    incidents,
    job_retention,
    job_timeouts,
    notifications,
    reaper,
    scheduler,
)
from aaiclick.store.engine.claims import has_due_tasks
from aaiclick.store.engine.maintenance import end_stalled_sessions, lock_timeout
from aaiclick.store.engine.workers import lead
from aaiclick.store.enums import TERM_SECONDS

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

LEADER_LOOPS = (
    ("reaper", reaper), ("promoter", due_task_promoter), ("deadlines", job_timeouts), ("scheduler", scheduler),
    ("incidents", incidents), ("notifications", notifications), ("retention", job_retention),
)  # fmt: skip
FOLLOWER_LOOPS = (("promoter", due_task_promoter),)

_logger = logging.getLogger(__name__)

LOCK_SECONDS = 0.25
"""Lock timeout of the loops: rows that stay locked are left to the next pass. Their holder may be frozen, and all other
expired leases must be reaped in time.
"""


async def run_once(
    connection: Connection, *, worker_id: int, term_seconds: float = TERM_SECONDS, now: datetime | None = None
) -> dict[str, int]:
    """Stand for election and, if elected, run one pass of every loop. `leads` is 1 or 0.

    A worker that is not elected promotes due tasks, since the leader may have died and busy workers do not poll.
    """
    if stalled := await end_stalled_sessions(connection):  # one of them may hold the lock of the election
        _logger.warning("%d database sessions stopped in the middle of a command and were ended.", stalled)
    term = await lead(connection, worker_id, term_seconds=term_seconds, now=now)
    counts = {"leads": int(term is not None)}
    if term is None and not await has_due_tasks(connection, now=now):
        return counts
    async with lock_timeout(connection, LOCK_SECONDS):
        for name, loop in LEADER_LOOPS if term is not None else FOLLOWER_LOOPS:
            try:
                for counter, count in (await loop.run_once(connection, now=now)).items():
                    counts[f"{name}_{counter}"] = count
            except asyncpg.LockNotAvailableError:
                pass
            except Exception as error:
                if connection.is_closed() or isinstance(error, OSError):
                    raise
                _logger.exception("The %s failed unexpectedly. The other loops continue.", name)
    return counts
