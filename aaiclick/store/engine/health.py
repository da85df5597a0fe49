"""Health checks that PostgreSQL answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aaiclick.store.statements import statement

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

STALE_SECONDS = 60.0
"""Time after which an expired lease that is not recovered counts as stale."""


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """The result of one check."""

    name: str
    ok: bool
    detail: str


async def check_health(connection: Connection, *, worker_timeout_seconds: float) -> list[HealthCheck]:
    """Whether a worker has sent a heartbeat in time, expired leases are recovered, and events are routed."""
    row = await connection.fetchrow(statement("load_health_counts"), STALE_SECONDS, worker_timeout_seconds)
    assert row is not None  # noqa: S101
    workers = f"{row['workers']} with a heartbeat in the last {worker_timeout_seconds:g} s"
    if row["silent"]:
        workers += f", {row['silent']} without"
    return [
        HealthCheck("database", True, "PostgreSQL answers"),
        HealthCheck("workers", row["workers"] > 0, workers),
        HealthCheck("stale_tasks", row["stale"] == 0, f"{row['stale']} tasks with a lease that expired long ago"),
        HealthCheck("events", row["unrouted"] == 0, f"{row['unrouted']} events that could not be routed"),
    ]
