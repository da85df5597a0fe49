"""Figures for dashboards, counted from the tables: whatever happened to a process, they are what is there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aaiclick.store.outbox import count_events_by_status
from aaiclick.store.statements import statement
from aaiclick.store.words import BUCKETS

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.engine import Connection

QUEUES_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Figures:
    """One look at everything; the rows are those of `sql/figures_*.sql`."""

    tasks: list[asyncpg.Record]
    jobs: list[asyncpg.Record]
    attempts: list[asyncpg.Record]
    past: list[asyncpg.Record]
    queues: list[asyncpg.Record]
    workers: list[asyncpg.Record]
    events: dict[str, int]
    """Events of the outbox by status."""


async def count_all(connection: Connection, *, worker_timeout_seconds: float) -> Figures:
    """Count in one snapshot. Reads every task and job: whoever asks often keeps the answer for a while."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        await connection.execute(statement("figures_scan"))
        return Figures(
            await connection.fetch(statement("figures_tasks"), BUCKETS),
            await connection.fetch(statement("figures_jobs"), BUCKETS),
            await connection.fetch(statement("figures_attempts")),
            await connection.fetch(statement("figures_counts")),
            await connection.fetch(statement("figures_queues"), QUEUES_SHOWN),
            await connection.fetch(statement("figures_workers"), worker_timeout_seconds),
            await count_events_by_status(connection),
        )
