"""Figures for dashboards, counted from the tables: whatever happened to a process, they are what is there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aaiclick.store.outbox import count_events_by_status
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.engine import Connection

BUCKETS = (0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 1800.0, 3600.0, 21600.0, 86400.0)
"""Upper bounds of durations, in seconds."""

QUEUES_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Figures:
    """One look at everything; the rows are those of `sql/figures_*.sql`."""

    tasks: list[asyncpg.Record]
    jobs: list[asyncpg.Record]
    forgotten: list[asyncpg.Record]
    queues: list[asyncpg.Record]
    workers: list[asyncpg.Record]
    events: dict[str, int]
    """Events of the outbox by status."""


async def count_all(connection: Connection) -> Figures:
    """Count in one snapshot. Reads every task and job: whoever asks often keeps the answer for a while."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        await connection.execute(statement("figures_scan"))
        return Figures(
            await connection.fetch(statement("figures_tasks"), BUCKETS),
            await connection.fetch(statement("figures_jobs"), BUCKETS),
            await connection.fetch(statement("figures_forgotten")),
            await connection.fetch(statement("figures_queues"), QUEUES_SHOWN),
            await connection.fetch(statement("figures_workers")),
            await count_events_by_status(connection),
        )
