"""Claim tasks, mark them running, renew their leases, and promote due tasks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from aaiclick import failpoints
from aaiclick.store.engine.concurrency_keys import admit_held_tasks
from aaiclick.store.engine.leases_and_outcomes import Claim, HeartbeatAnswer, Lease
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.postgres_connections import Connection

PROMOTE_BATCH_SIZE = 1_000
RATE_KEY_BATCH_SIZE = 100
MAX_HOLDING_PASSES = 50
"""Passes of one claim that find only paused tasks or tasks above their rate, 1,000 in each at most."""


async def claim(
    connection: Connection,
    *,
    worker_id: int,
    limit: int,
    queues: Sequence[str],
    lease_seconds: float,
    org_id: UUID | None = None,
    now: datetime | None = None,
    durable: bool = False,
) -> list[Claim]:
    """Lease up to `limit` ready tasks of `queues` (empty: all), highest priority first; of `org_id`, if given.

    With `durable`, earlier commits of the session are on disk when tasks are returned.
    """
    claims, has_due = await _claim(connection, worker_id, limit, queues, lease_seconds, org_id, now, durable)
    if len(claims) == limit:
        return claims
    if has_due is None:
        has_due = await has_due_tasks(connection, now=now)
    if has_due and await promote_due_tasks(connection, now=now):
        more, _ = await _claim(connection, worker_id, limit - len(claims), queues, lease_seconds, org_id, now, durable)
        claims = sorted(claims + more, key=lambda claim: -claim.priority)
    return claims


async def _claim(
    connection: Connection,
    worker_id: int,
    limit: int,
    queues: Sequence[str],
    lease_seconds: float,
    org_id: UUID | None,
    now: datetime | None,
    durable: bool,
) -> tuple[list[Claim], bool | None]:
    """Run the short statement; it returns a marker row if fairness, limits or pauses require the long one.

    A claim sets paused tasks and those above their rate to HELD, and is then repeated. Returns also whether a scheduled
    task is due; None if nothing was claimed, since the statement then returns no row.
    """
    claims: list[Claim] = []
    has_due: bool | None = None
    fair = org_id is not None
    passes = 0
    while len(claims) < limit and passes < MAX_HOLDING_PASSES:
        token = uuid4()
        async with failpoints.statement("claim"):
            arguments = worker_id, limit - len(claims), list(queues), lease_seconds, token, now
            if fair:
                rows = await connection.fetch(statement("claim_tasks_fair"), *arguments, org_id, durable)
            else:
                rows = await connection.fetch(statement("claim_tasks"), *arguments, durable)
        more = bool(rows) and rows[-1]["id"] is None
        if rows and rows[0]["id"] is not None:
            has_due = rows[0]["due"]
        claims += [_to_claim(row, token) for row in (rows[:-1] if more else rows)]
        if not more:
            break
        passes = passes + 1 if rows[0]["id"] is None else 0
        fair = True
    return claims, has_due


def _to_claim(row: asyncpg.Record, token: UUID) -> Claim:
    (task_id, attempt, org_id, job_id, group_id, task_type, entrypoint, kwargs, timeout, failures, policy, linked,
     suspect, queue, lease_seconds, priority, grouped, runs_once, shared, _due) = row  # fmt: skip
    return Claim(
        Lease(task_id, attempt, token, linked, grouped), org_id, job_id, group_id, task_type, entrypoint, kwargs,
        timeout, failures, policy, suspect, queue, lease_seconds, priority, shared, runs_once,
    )  # fmt: skip


async def has_due_tasks(connection: Connection, *, now: datetime | None = None) -> bool:
    """Whether `promote_due_tasks` would promote a task."""
    return await connection.fetchval(statement("has_due_tasks"), now)


async def promote_due_tasks(
    connection: Connection, *, limit: int = PROMOTE_BATCH_SIZE, now: datetime | None = None
) -> int:
    """Make scheduled tasks ready that are due, and held tasks that their rate allows; returns how many.

    Safe to run concurrently.
    """
    async with failpoints.transaction(connection, "promote"):
        rows = await connection.fetch(statement("promote_due_tasks"), limit, now)
        ready = {row["queue"] for row in rows if row["readiness"] == "READY"}
        ready |= await admit_held_tasks(connection, ((row["org_id"], row["concurrency_key"]) for row in rows))
        rated = await _admit_rated_tasks(connection, now)
        await notify_ready(connection, ready | set(rated))
    return len(rows) + sum(rated.values())


async def _admit_rated_tasks(connection: Connection, now: datetime | None) -> dict[str, int]:
    """Make held tasks ready that the rate of their key allows; returns their number by queue."""
    keys = await connection.fetch(statement("lock_due_rates"), RATE_KEY_BATCH_SIZE, now)
    if not keys:
        return {}
    # Two statements: a claim that held tasks before the lock must be visible.
    arrays = [row["org_id"] for row in keys], [row["key"] for row in keys]
    rows = await connection.fetch(statement("admit_rated_tasks"), *arrays, now)
    return {row["queue"]: row["tasks"] for row in rows}


async def seconds_to_next_due(connection: Connection) -> float | None:
    """Seconds until the next scheduled task is due, by the database's clock; an idle worker sleeps that long."""
    return await connection.fetchval(statement("seconds_to_next_due"))


async def notify_ready(connection: Connection, queues: set[str]) -> None:
    if queues:
        await connection.execute(statement("notify_ready"), sorted(queues))


async def start(connection: Connection, leases: Sequence[Lease], started_at: datetime | None = None) -> set[int]:
    """CLAIMED → RUNNING; returns the ids of tasks with valid leases."""
    if not leases:
        return set()
    async with failpoints.statement("start"):
        ordered = sorted(leases, key=lambda lease: lease.task_id)  # the lock order of all statements
        rows = await connection.fetch(statement("start_tasks"), *lease_columns(ordered), started_at)
    return {row["id"] for row in rows}


async def heartbeat(
    connection: Connection,
    *,
    worker_id: int,
    leases: Sequence[Lease],
    lease_seconds: float,
    completed: int = 0,
    failed: int = 0,
    now: datetime | None = None,
) -> HeartbeatAnswer:
    """Renew the worker and its `leases`; `completed` and `failed` are added to its counters."""
    await connection.execute(statement("renew_worker"), worker_id, completed, failed, now)
    if not leases:
        return HeartbeatAnswer(set(), set())
    async with failpoints.statement("heartbeat"):
        rows = await connection.fetch(statement("renew_leases"), *lease_columns(leases), lease_seconds, now)
    return HeartbeatAnswer(
        lost={lease.task_id for lease in leases} - {row["id"] for row in rows},
        cancelled={row["id"] for row in rows if row["cancelled"]},
    )


async def leases_of_org(connection: Connection, leases: Sequence[Lease], org_id: UUID) -> dict[int, bool]:
    """Which of these tasks belong to the org, and whether their attempts hold tables."""
    ids, attempts, _ = lease_columns(leases)
    rows = await connection.fetch(statement("filter_leases_by_org"), ids, attempts, org_id) if ids else []
    return {row["id"]: row["holds"] for row in rows}


def lease_columns(leases: Sequence[Lease]) -> tuple[list[int], list[int], list[UUID]]:
    """Leases as three arrays: ids, attempts, tokens."""
    return [lease.task_id for lease in leases], [lease.attempt for lease in leases], [lease.token for lease in leases]
