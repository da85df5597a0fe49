"""One pass of each background loop: lease reaper, job timeouts, retention. Safe to run concurrently."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable
from datetime import datetime
from typing import TYPE_CHECKING

import asyncpg

from aaiclick import failpoints
from aaiclick.store.engine.acknowledge import acknowledge
from aaiclick.store.engine.cancel import cancel_job
from aaiclick.store.engine.leases_and_outcomes import Failure, Lease
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

REAP_BATCH_SIZE = 1_000
MAX_SCANNED_TASKS = 10_000
"""Oldest tasks that are searched for attempts of stopped workers."""
METRIC_MERGE_BATCH_SIZE = 10_000
EVENT_BATCH_SIZE = 10_000
LOST_LEASE_FINGERPRINT = "lease expired"
SINGLE_LOCK_SECONDS = 0.05
"""Lock timeout per job in a pass over many jobs, some of which are known to be locked."""


STALLED_SECONDS = 5.0
STALLED_COPY_SECONDS = 60.0
"""COPY shows when it started, not when it last received a row."""


@contextlib.asynccontextmanager
async def lock_timeout(connection: Connection, seconds: float) -> AsyncGenerator[None]:
    """Set a lock timeout for the block: longer waits raise asyncpg.LockNotAvailableError."""
    before = await connection.fetchval(statement("set_lock_timeout"), f"{1000 * seconds:.0f}ms")
    try:
        yield
    finally:
        if not connection.is_closed():
            await connection.fetchval(statement("set_lock_timeout"), before)


async def end_stalled_sessions(connection: Connection, *, seconds: float = STALLED_SECONDS) -> int:
    """Terminate sessions of ours that stopped in the middle of a command inside a transaction; returns their number.

    idle_in_transaction_session_timeout does not cover them: from Parse to Sync PostgreSQL counts a session as active,
    and a client that was frozen there would keep its locks for ever.
    """
    return await connection.fetchval(statement("end_stalled_sessions"), seconds, max(seconds, STALLED_COPY_SECONDS))


async def reap_expired_leases(
    connection: Connection,
    *,
    delay_seconds: Callable[[int, str | None], float],
    limit: int = REAP_BATCH_SIZE,
    now: datetime | None = None,
) -> int:
    """End expired leases as charged failures; `delay_seconds(failures, retry_policy)` is the back-off.

    A concurrent heartbeat wins: expiry is checked again under the row lock. Under a lock timeout, jobs that are locked
    are skipped and the others recovered.
    """
    rows = await connection.fetch(statement("list_expired_leases"), limit, now)
    failures_by_job: dict[int | None, list[Failure]] = defaultdict(list)
    for row in rows:
        failure = Failure(
            Lease(row["id"], row["attempt"], row["lease_token"]),
            error=f"Worker {row['worker_id']} lost its lease: it died, hung or was cut off.",
            fingerprint=LOST_LEASE_FINGERPRINT,
            delay_seconds=delay_seconds(row["failures"] + 1, row["retry_policy"]),
            outcome="LOST",
            expired=True,
        )
        failures_by_job[row["job_id"]].append(failure)
    if not failures_by_job:
        return 0
    try:
        return len(
            await acknowledge(
                connection,
                worker_id=0,
                failures=[f for failures in failures_by_job.values() for f in failures],
                now=now,
            )
        )
    except asyncpg.LockNotAvailableError:
        return await _reap_by_job(connection, failures_by_job, now)


async def _reap_by_job(
    connection: Connection, failures_by_job: dict[int | None, list[Failure]], now: datetime | None
) -> int:
    """Reap job by job; jobs that are locked are left to the next pass."""
    count = 0
    async with lock_timeout(connection, SINGLE_LOCK_SECONDS):
        for failures in failures_by_job.values():
            with contextlib.suppress(asyncpg.LockNotAvailableError):
                count += len(await acknowledge(connection, worker_id=0, failures=failures, now=now))
    return count


async def end_overdue_jobs(connection: Connection, *, limit: int = 100, now: datetime | None = None) -> int:
    """Fail jobs past their deadline: cancel waiting tasks, request cancellation of leased ones."""
    rows = await connection.fetch(statement("list_overdue_jobs"), limit, now)
    for row in rows:
        await cancel_job(
            connection, row["id"], error=f"The job did not end within {row['timeout_seconds']:g} s.", now=now
        )
    return len(rows)


async def delete_old_history(
    connection: Connection, *, keep_seconds: float, limit: int = 1_000, now: datetime | None = None
) -> dict[str, int]:
    """Delete finished jobs and tasks, stopped workers and old throughput counts.

    Jobs, tasks without a job and workers are deleted after `keep_seconds`, throughput counts of queues after a day.
    """
    async with failpoints.statement("delete_old_jobs"):
        jobs = await connection.fetchval(statement("delete_old_jobs"), keep_seconds, limit, now)
    async with failpoints.statement("delete_old_tasks"):
        tasks = await connection.fetchval(statement("delete_old_tasks"), keep_seconds, limit, now)
    async with failpoints.statement("delete_old_workers"):
        workers = await connection.execute(statement("delete_old_workers"), keep_seconds, now, MAX_SCANNED_TASKS)
    async with failpoints.statement("delete_old_queue_minutes"):
        await connection.execute(statement("delete_old_queue_minutes"), now)
    await connection.execute(statement("delete_old_incidents"), keep_seconds, limit, now)
    await connection.execute(statement("delete_expired_events"), EVENT_BATCH_SIZE, now)
    await connection.execute(statement("delete_old_test_results"), keep_seconds, limit, now)
    await connection.execute(statement("delete_old_cached_results"), keep_seconds, limit, now)
    await connection.execute(statement("delete_old_rate_limits"), limit, now)
    await connection.execute(statement("merge_metric_counts"), METRIC_MERGE_BATCH_SIZE)
    return {"jobs": jobs, "tasks": tasks, "workers": _row_count(workers)}


def _row_count(status: str) -> int:
    return int(status.rsplit(" ", 1)[-1])
