"""One pass of each background duty: reaping, job timeouts, retention. Safe to run by several at once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from aaiclick.store.cancel import cancel_job
from aaiclick.store.figures import BUCKETS
from aaiclick.store.leases import Failure, Lease
from aaiclick.store.outcomes import acknowledge
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

REAPED_AT_ONCE = 1_000
LOST = "lease expired"


async def reap(
    connection: Connection,
    *,
    delay_seconds: Callable[[int, str | None], float],
    limit: int = REAPED_AT_ONCE,
    now: datetime | None = None,
) -> int:
    """Take away leases that have run out: each is a charged failure. `delay_seconds(failures, retry_policy)` says when
    to try again. A heartbeat that comes first wins: the lease is checked again when it is taken.
    """
    rows = await connection.fetch(statement("expired_leases"), limit, now)
    failures = [
        Failure(
            Lease(row["id"], row["attempt"], row["lease_token"]),
            error=f"Worker {row['worker_id']} lost its lease: it died, hung or was cut off.",
            fingerprint=LOST,
            delay_seconds=delay_seconds(row["failures"] + 1, row["retry_policy"]),
            outcome="LOST",
            expired=True,
        )
        for row in rows
    ]
    if not failures:
        return 0
    return len(await acknowledge(connection, worker_id=0, failures=failures, now=now))


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
    jobs = await connection.fetchval(statement("forget_jobs"), keep_seconds, limit, now, BUCKETS)
    tasks = await connection.fetchval(statement("forget_tasks"), keep_seconds, limit, now, BUCKETS)
    workers = await connection.execute(statement("forget_workers"), keep_seconds, now)
    await connection.execute(statement("forget_queue_minutes"), now)
    return {"jobs": jobs, "tasks": tasks, "workers": _count(workers)}


def _count(status: str) -> int:
    return int(status.rsplit(" ", 1)[-1])
