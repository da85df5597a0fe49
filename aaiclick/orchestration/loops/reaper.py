"""The reaper: leases that ran out, whoever held them, become retries or dead letters; silent workers count as dead."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import TYPE_CHECKING

from aaiclick.orchestration.retry import RetryPolicy
from aaiclick.settings import get_settings
from aaiclick.store.clock import uptime_seconds
from aaiclick.store.upkeep import reap
from aaiclick.store.workers import rebase_heartbeats, stop_dead_workers

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

log = logging.getLogger("aaiclick.loops")

RESTART_GRACE_SECONDS = 2.0
"""After a start of PostgreSQL workers reconnect within a quarter of a second and renew what they hold. Leases that ran
out during the outage are theirs until then: an outage of PostgreSQL is not charged.
"""


async def run_once(
    connection: Connection,
    *,
    worker_timeout_seconds: float | None = None,
    restart_grace_seconds: float = RESTART_GRACE_SECONDS,
    now: datetime | None = None,
) -> dict[str, int]:
    """One pass: `workers` that were found dead, `tasks` whose leases were taken away."""
    if await uptime_seconds(connection) < restart_grace_seconds:
        return {"workers": 0, "tasks": 0}
    timeout = worker_timeout_seconds or get_settings().worker_timeout_seconds
    if rebased := await rebase_heartbeats(connection, now=now):
        log.warning("PostgreSQL's clock was set back: %d leases are counted from now on.", rebased)
    workers = await stop_dead_workers(connection, timeout_seconds=timeout, now=now)
    tasks = await reap(connection, delay_seconds=_delay_seconds, now=now)
    return {"workers": workers, "tasks": tasks}


def _delay_seconds(failures: int, retry_policy: str | None) -> float:
    return RetryPolicy.of(retry_policy).delay_seconds(failures)
