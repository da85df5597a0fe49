"""Health checks that PostgreSQL answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aaiclick.store.statements import statement

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

STALE_SECONDS = 60.0
"""How long after its expiry a lease must have been recovered."""


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check."""

    name: str
    ok: bool
    detail: str


async def check_work(connection: Connection, *, worker_timeout_seconds: float) -> list[Check]:
    """Whether a worker has sent a heartbeat in time, expired leases are recovered, and events are routed."""
    row = await connection.fetchrow(statement("health"), STALE_SECONDS, worker_timeout_seconds)
    assert row is not None  # noqa: S101
    workers = f"{row['workers']} with a heartbeat in the last {worker_timeout_seconds:g} s"
    if row["silent"]:
        workers += f", {row['silent']} without"
    return [
        Check("database", True, "PostgreSQL answers"),
        Check("workers", row["workers"] > 0, workers),
        Check("stale_tasks", row["stale"] == 0, f"{row['stale']} tasks with a lease that expired long ago"),
        Check("events", row["unrouted"] == 0, f"{row['unrouted']} events that could not be routed"),
    ]
