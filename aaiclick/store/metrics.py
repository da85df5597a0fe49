"""Metrics, counted from the tables: they survive restarts of processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aaiclick.store.catalog.outbox import count_events_by_status
from aaiclick.store.enums import BUCKETS
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.postgres_connections import Connection

MAX_QUEUES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricRows:
    """One look at everything; the rows are those of `sql/figures_*.sql`."""

    tasks: list[asyncpg.Record]
    jobs: list[asyncpg.Record]
    attempts: list[asyncpg.Record]
    deleted: list[asyncpg.Record]
    queues: list[asyncpg.Record]
    workers: list[asyncpg.Record]
    events: dict[str, int]
    """Events of the outbox by status."""
    incidents: list[asyncpg.Record]
    """Open incidents by severity."""
    late_datasets: int = 0
    expected_late_datasets: int = 0
    """Set by the caller: the store has no forecasts."""
    blocked_tests: int = 0
    overdue_jobs: int = 0


async def load_metrics(connection: Connection, *, worker_timeout_seconds: float) -> MetricRows:
    """Count in one snapshot. Reads all tasks and jobs: callers should cache the result."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        await connection.execute(statement("allow_sequential_scans"))
        return MetricRows(
            tasks=await connection.fetch(statement("count_tasks_by_status"), BUCKETS),
            jobs=await connection.fetch(statement("count_jobs_by_status"), BUCKETS),
            attempts=await connection.fetch(statement("count_attempts_by_outcome")),
            deleted=await connection.fetch(statement("load_metric_counts")),
            queues=await connection.fetch(statement("count_ready_by_queue"), MAX_QUEUES),
            workers=await connection.fetch(statement("list_worker_heartbeats"), worker_timeout_seconds),
            events=await count_events_by_status(connection),
            incidents=await connection.fetch(statement("count_incidents_by_severity")),
            late_datasets=await connection.fetchval(statement("count_late_datasets")),
            blocked_tests=await connection.fetchval(statement("count_blocked_tests")),
            overdue_jobs=await connection.fetchval(statement("count_overdue_jobs")),
        )
