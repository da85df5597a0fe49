"""What a worker's supervisor says on behalf of its processes: that they live, and what they leave when they die."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aaiclick import faults
from aaiclick.store.leases import CRASHED, Failure, Lease
from aaiclick.store.outcomes import acknowledge
from aaiclick.store.statements import statement
from aaiclick.store.workers import deregister_worker

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection


@dataclass(frozen=True, slots=True)
class Overdue:
    """A task that a process does not let go of."""

    lease: Lease
    worker_id: int
    cancelled: bool
    timeout_seconds: float
    failures: int
    retry_policy: str | None


async def keep_leases(connection: Connection, worker_ids: Sequence[int], lease_seconds: float) -> None:
    """Extend everything these workers hold."""
    async with faults.statement("keep_leases"):
        await connection.execute(statement("keep_leases"), list(worker_ids), lease_seconds)


async def renew_task_leases(connection: Connection, worker_ids: Sequence[int]) -> None:
    """Renew the leases of tasks that set their own (`heartbeat_timeout_seconds` of their definition).

    They may be shorter than a worker's heartbeat interval, so supervisors do this whenever they look for overdue tasks.
    """
    async with faults.statement("renew_task_leases"):
        await connection.execute(statement("renew_task_leases"), list(worker_ids))


@dataclass(frozen=True, slots=True)
class Held:
    """A lease as PostgreSQL knows it, claimed so long ago."""

    lease: Lease
    cancelled: bool
    age_seconds: float


async def held(connection: Connection, worker_id: int) -> list[Held]:
    """Everything this worker holds."""
    rows = await connection.fetch(statement("held"), worker_id)
    return [
        Held(Lease(row["id"], row["attempt"], row["lease_token"]), row["cancelled"], row["age_seconds"]) for row in rows
    ]


async def overdue(
    connection: Connection, worker_ids: Sequence[int], grace_seconds: float, default_timeout_seconds: float
) -> list[Overdue]:
    """Renew the leases of tasks that set their own; then tasks of these workers that should have ended
    `grace_seconds` ago.
    """
    await renew_task_leases(connection, worker_ids)
    rows = await connection.fetch(statement("overdue"), list(worker_ids), grace_seconds, default_timeout_seconds)
    return [
        Overdue(
            Lease(row["id"], row["attempt"], row["lease_token"]),
            row["worker_id"],
            row["cancelled"],
            row["timeout_seconds"],
            row["failures"],
            row["retry_policy"],
        )
        for row in rows
    ]


async def settle(
    connection: Connection,
    *,
    worker_id: int,
    culprits: Sequence[Overdue],
    crashed: str | None,
    delay_seconds: Callable[[Overdue], float],
) -> None:
    """A process has ended. Tasks it was killed for are charged. If it `crashed` (how, in words), every task it held
    is a suspect and runs alone next time, uncharged; else what is left is simply given back.
    """
    charged = [
        Failure(
            task.lease,
            error="Cancelled while running." if task.cancelled else f"Timed out after {task.timeout_seconds:g} s.",
            fingerprint="cancelled" if task.cancelled else "timeout",
            permanent=task.cancelled,
            delay_seconds=delay_seconds(task),
            outcome="CANCELLED" if task.cancelled else "TIMED_OUT",
        )
        for task in culprits
    ]
    suspects: list[Failure] = []
    if crashed is not None:
        rows = await connection.fetch(statement("worker_leases"), worker_id)
        suspects = [
            Failure(
                Lease(row["id"], row["attempt"], row["lease_token"]),
                error=f"The worker process ended with {crashed} while it held this task.",
                fingerprint=CRASHED,
                charged=False,
                outcome="LOST",
            )
            for row in rows
        ]
    if charged or suspects:
        await acknowledge(connection, worker_id=worker_id, failures=[*charged, *suspects])
    await deregister_worker(connection, worker_id)
