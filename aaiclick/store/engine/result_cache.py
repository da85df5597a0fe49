"""Cached results of tasks, by the hash of their code version and inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick import failpoints
from aaiclick.store.engine.leases_and_outcomes import Lease
from aaiclick.store.engine.queries import TaskResult
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection


async def find_cached_result(
    connection: Connection, org_id: UUID, key: str, lease: Lease, max_age_seconds: float | None, refused: Sequence[int]
) -> TaskResult | None:
    """The cached result of a key, which is noted in the task of the lease; None: that task computes it."""
    async with failpoints.statement("find_cached_result"):
        row = await connection.fetchrow(
            statement("find_cached_result"), org_id, key, lease.task_id, lease.attempt, lease.token, max_age_seconds,
            list(refused),
        )  # fmt: skip
    return None if row is None else TaskResult(row["task_id"], row["result"], literal=row["literal"])
