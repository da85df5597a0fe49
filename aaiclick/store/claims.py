"""Claiming work, saying that it runs, keeping it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from aaiclick import faults
from aaiclick.store.leases import Claim, HeartbeatAnswer, Lease
from aaiclick.store.slots import admit
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.engine import Connection

PROMOTED_AT_ONCE = 1_000


async def claim(
    connection: Connection,
    *,
    worker_id: int,
    limit: int,
    queues: Sequence[str],
    lease_seconds: float,
    org_id: UUID | None = None,
    now: datetime | None = None,
) -> list[Claim]:
    """Lease up to `limit` ready tasks of `queues` (none named: of all), most urgent first; of one org, if named."""
    claims = await _claim(connection, worker_id, limit, queues, lease_seconds, org_id, now)
    if len(claims) < limit and await is_due(connection, now=now) and await promote(connection, now=now):
        claims += await _claim(connection, worker_id, limit - len(claims), queues, lease_seconds, org_id, now)
        claims.sort(key=lambda claim: -claim.priority)
    return claims


async def _claim(
    connection: Connection,
    worker_id: int,
    limit: int,
    queues: Sequence[str],
    lease_seconds: float,
    org_id: UUID | None,
    now: datetime | None,
) -> list[Claim]:
    """The short statement first; it says when taking turns, limits or pauses make the long one necessary.

    Claims meet paused tasks among the ready ones and set them aside: then there is more to take.
    """
    claims: list[Claim] = []
    fair = org_id is not None
    while len(claims) < limit:
        token = uuid4()
        async with faults.statement("claim"):
            arguments = worker_id, limit - len(claims), list(queues), lease_seconds, token, now
            if fair:
                rows = await connection.fetch(statement("claim_fair"), *arguments, org_id)
            else:
                rows = await connection.fetch(statement("claim"), *arguments)
        more = bool(rows) and rows[-1]["id"] is None
        claims += [_to_claim(row, token) for row in (rows[:-1] if more else rows)]
        if not more:
            break
        fair = True
    return claims


def _to_claim(row: asyncpg.Record, token: UUID) -> Claim:
    (task_id, attempt, org_id, job_id, group_id, kind, entrypoint, kwargs, timeout, failures, policy, linked,
     suspect, queue, lease_seconds, priority, shared) = row  # fmt: skip
    return Claim(
        Lease(task_id, attempt, token, linked), org_id, job_id, group_id, kind, entrypoint, kwargs, timeout, failures,
        policy, suspect, queue, lease_seconds, priority, shared,
    )  # fmt: skip


async def is_due(connection: Connection, *, now: datetime | None = None) -> bool:
    """Whether there is anything to promote."""
    return await connection.fetchval(statement("is_due"), now)


async def promote(connection: Connection, *, limit: int = PROMOTED_AT_ONCE, now: datetime | None = None) -> int:
    """Make tasks ready whose time has come; returns how many. Safe to run by everybody at once."""
    async with faults.transaction(connection, "promote"):
        rows = await connection.fetch(statement("promote"), limit, now)
        ready = {row["queue"] for row in rows if row["readiness"] == "READY"}
        ready |= await admit(connection, ((row["org_id"], row["concurrency_key"]) for row in rows))
        await notify_ready(connection, ready)
    return len(rows)


async def seconds_to_next_due(connection: Connection) -> float | None:
    """How long until a task that waits for its time becomes due, by the database's clock: an idle worker's sleep."""
    return await connection.fetchval(statement("next_due"))


async def notify_ready(connection: Connection, queues: set[str]) -> None:
    if queues:
        await connection.execute(statement("notify_ready"), sorted(queues))


async def start(connection: Connection, leases: Sequence[Lease], started_at: datetime | None = None) -> set[int]:
    """CLAIMED → RUNNING; returns the ids whose leases hold."""
    if not leases:
        return set()
    async with faults.statement("start"):
        ordered = sorted(leases, key=lambda lease: lease.task_id)  # all who lock tasks do so in this order
        rows = await connection.fetch(statement("start"), *columns(ordered), started_at)
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
    """Say that the worker lives and keeps `leases`; `completed` and `failed` are added to its counters."""
    await connection.execute(statement("beat"), worker_id, completed, failed, now)
    if not leases:
        return HeartbeatAnswer(set(), set())
    async with faults.statement("heartbeat"):
        rows = await connection.fetch(statement("heartbeat"), *columns(leases), lease_seconds, now)
    return HeartbeatAnswer(
        lost={lease.task_id for lease in leases} - {row["id"] for row in rows},
        cancelled={row["id"] for row in rows if row["cancelled"]},
    )


async def leases_of_org(connection: Connection, leases: Sequence[Lease], org_id: UUID) -> dict[int, bool]:
    """Of which of these tasks the org may speak, and whether their attempts hold tables."""
    ids, attempts, _ = columns(leases)
    rows = await connection.fetch(statement("leases_of_org"), ids, attempts, org_id) if ids else []
    return {row["id"]: row["holds"] for row in rows}


def columns(leases: Sequence[Lease]) -> tuple[list[int], list[int], list[UUID]]:
    """Leases as the three arrays that statements take."""
    return [lease.task_id for lease in leases], [lease.attempt for lease in leases], [lease.token for lease in leases]
