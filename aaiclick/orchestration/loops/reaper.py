"""Reaper: turns expired leases into retries or dead letters, and stops workers without a heartbeat."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import TYPE_CHECKING

from aaiclick.orchestration.retry_policy import RetryPolicy
from aaiclick.settings import get_settings
from aaiclick.store.clock import read_uptime_seconds
from aaiclick.store.engine.maintenance import reap_expired_leases
from aaiclick.store.engine.workers import rebase_heartbeats, stop_dead_workers

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

log = logging.getLogger("aaiclick.loops")

RESTART_GRACE_SECONDS = 2.0
"""Time after a start of PostgreSQL in which nothing is reaped. Workers reconnect within 0.25 s and renew leases that
expired during the outage, so an outage of PostgreSQL is not charged to tasks.
"""


async def run_once(
    connection: Connection,
    *,
    worker_timeout_seconds: float | None = None,
    restart_grace_seconds: float = RESTART_GRACE_SECONDS,
    now: datetime | None = None,
) -> dict[str, int]:
    """Run one pass; counts `workers` that were stopped and `tasks` with expired leases."""
    if await read_uptime_seconds(connection) < restart_grace_seconds:
        return {"workers": 0, "tasks": 0}
    timeout = worker_timeout_seconds or get_settings().worker_timeout_seconds
    if rebased := await rebase_heartbeats(connection, now=now):
        log.warning("PostgreSQL's clock was set back: %d leases were restarted from the current time.", rebased)
    workers = await stop_dead_workers(connection, timeout_seconds=timeout, now=now)
    tasks = await reap_expired_leases(connection, delay_seconds=_delay_seconds, now=now)
    return {"workers": workers, "tasks": tasks}


def _delay_seconds(failures: int, retry_policy: str | None) -> float:
    return RetryPolicy.from_json(retry_policy).delay_seconds(failures)
