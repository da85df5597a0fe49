"""One pass of each background duty: reaping, job timeouts, retention. Safe to run by several at once."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable
from datetime import datetime
from typing import TYPE_CHECKING

import asyncpg

from aaiclick import faults
from aaiclick.store.cancel import cancel_job
from aaiclick.store.leases import Failure, Lease
from aaiclick.store.outcomes import acknowledge
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

REAPED_AT_ONCE = 1_000
MERGED_COUNTS = 10_000
LOST = "lease expired"
SINGLE_LOCK_SECONDS = 0.05
"""How long to wait for each of many jobs, some of which are known to be locked."""


@contextlib.asynccontextmanager
async def waiting_at_most(connection: Connection, seconds: float) -> AsyncGenerator[None]:
    """Whoever waits for a lock for longer is told so meanwhile (asyncpg.LockNotAvailableError)."""
    before = await connection.fetchval(statement("set_lock_timeout"), f"{1000 * seconds:.0f}ms")
    try:
        yield
    finally:
        if not connection.is_closed():
            await connection.fetchval(statement("set_lock_timeout"), before)


async def reap(
    connection: Connection,
    *,
    delay_seconds: Callable[[int, str | None], float],
    limit: int = REAPED_AT_ONCE,
    now: datetime | None = None,
) -> int:
    """Take away leases that have run out: each is a charged failure. `delay_seconds(failures, retry_policy)` says when
    to try again. A heartbeat that comes first wins: the lease is checked again when it is taken.

    Where waiting for locks is limited, a job that somebody holds up keeps no other from being recovered.
    """
    rows = await connection.fetch(statement("expired_leases"), limit, now)
    lost: dict[int | None, list[Failure]] = defaultdict(list)
    for row in rows:
        failure = Failure(
            Lease(row["id"], row["attempt"], row["lease_token"]),
            error=f"Worker {row['worker_id']} lost its lease: it died, hung or was cut off.",
            fingerprint=LOST,
            delay_seconds=delay_seconds(row["failures"] + 1, row["retry_policy"]),
            outcome="LOST",
            expired=True,
        )
        lost[row["job_id"]].append(failure)
    if not lost:
        return 0
    try:
        return len(
            await acknowledge(connection, worker_id=0, failures=[f for each in lost.values() for f in each], now=now)
        )
    except asyncpg.LockNotAvailableError:
        return await _reap_each(connection, lost, now)


async def _reap_each(connection: Connection, lost: dict[int | None, list[Failure]], now: datetime | None) -> int:
    """One job after the other; who is locked is left to the next pass."""
    count = 0
    async with waiting_at_most(connection, SINGLE_LOCK_SECONDS):
        for failures in lost.values():
            with contextlib.suppress(asyncpg.LockNotAvailableError):
                count += len(await acknowledge(connection, worker_id=0, failures=failures, now=now))
    return count


async def end_overdue_jobs(connection: Connection, *, limit: int = 100, now: datetime | None = None) -> int:
    """Jobs past their deadline fail: what waits is cancelled, what runs is asked to end."""
    rows = await connection.fetch(statement("overdue_jobs"), limit, now)
    for row in rows:
        await cancel_job(
            connection, row["id"], error=f"The job did not end within {row['timeout_seconds']:g} s.", now=now
        )
    return len(rows)


async def forget(
    connection: Connection, *, keep_seconds: float, limit: int = 1_000, now: datetime | None = None
) -> dict[str, int]:
    """Delete finished jobs, finished tasks without a job and stopped workers older than `keep_seconds`; and what was
    counted of queues more than a day ago.
    """
    async with faults.statement("forget_jobs"):
        jobs = await connection.fetchval(statement("forget_jobs"), keep_seconds, limit, now)
    async with faults.statement("forget_tasks"):
        tasks = await connection.fetchval(statement("forget_tasks"), keep_seconds, limit, now)
    async with faults.statement("forget_workers"):
        workers = await connection.execute(statement("forget_workers"), keep_seconds, now)
    async with faults.statement("forget_queue_minutes"):
        await connection.execute(statement("forget_queue_minutes"), now)
    await connection.execute(statement("merge_metric_counts"), MERGED_COUNTS)
    return {"jobs": jobs, "tasks": tasks, "workers": _count(workers)}


def _count(status: str) -> int:
    return int(status.rsplit(" ", 1)[-1])
