"""Leases managed by a worker's supervisor for its processes: renewal, timeouts, and recovery after a process exits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import ConfigDict, Field, with_config

from aaiclick import failpoints
from aaiclick.store.engine.acknowledge import acknowledge
from aaiclick.store.engine.leases_and_outcomes import CRASH_FINGERPRINT, Failure, Lease
from aaiclick.store.engine.workers import deregister_worker
from aaiclick.store.json_types import JsonText, SnowflakeId
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class OverdueTask:
    """A task that still runs after its timeout or cancellation."""

    lease: Lease
    worker_id: SnowflakeId
    cancelled: bool
    timeout_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    failures: Annotated[int, Field(ge=0, le=2**31 - 1)]
    retry_policy: JsonText | None = None


async def extend_worker_leases(connection: Connection, worker_ids: Sequence[int], lease_seconds: float) -> None:
    """Extend all leases of these workers."""
    async with failpoints.statement("extend_worker_leases"):
        await connection.execute(statement("extend_worker_leases"), list(worker_ids), lease_seconds)


async def renew_task_leases(connection: Connection, worker_ids: Sequence[int]) -> None:
    """Renew the leases of tasks that set their own (`heartbeat_timeout_seconds` of their definition).

    These may be shorter than a worker's heartbeat interval, so supervisors call this with every check for overdue
    tasks.
    """
    async with failpoints.statement("renew_task_leases"):
        await connection.execute(statement("renew_task_leases"), list(worker_ids))


@dataclass(frozen=True, slots=True)
class HeldLease:
    """A live lease in PostgreSQL, with its age since the claim."""

    lease: Lease
    cancelled: bool
    age_seconds: float


async def list_held_leases(connection: Connection, worker_id: int) -> list[HeldLease]:
    """All leases of a worker."""
    rows = await connection.fetch(statement("list_held_leases"), worker_id)
    return [
        HeldLease(Lease(row["id"], row["attempt"], row["lease_token"]), row["cancelled"], row["age_seconds"])
        for row in rows
    ]


async def find_overdue_tasks(
    connection: Connection, worker_ids: Sequence[int], grace_seconds: float, default_timeout_seconds: float
) -> list[OverdueTask]:
    """Renew the leases of tasks that set their own.

    Return tasks of these workers that should have ended `grace_seconds` ago.
    """
    await renew_task_leases(connection, worker_ids)
    rows = await connection.fetch(
        statement("find_overdue_tasks"), list(worker_ids), grace_seconds, default_timeout_seconds
    )
    return [
        OverdueTask(
            Lease(row["id"], row["attempt"], row["lease_token"]),
            row["worker_id"],
            row["cancelled"],
            row["timeout_seconds"],
            row["failures"],
            row["retry_policy"],
        )
        for row in rows
    ]


async def settle_exited_process(
    connection: Connection,
    *,
    worker_id: int,
    overdue: Sequence[OverdueTask],
    crash: str | None,
    delay_seconds: Callable[[OverdueTask], float],
) -> None:
    """End the leases of a worker process that has exited, and deregister it.

    `overdue` tasks, for which it was killed, are charged. After a `crash` (its description) every other task it held
    is uncharged and runs alone next time; otherwise the rest is released.
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
        for task in overdue
    ]
    suspects: list[Failure] = []
    if crash is not None:
        rows = await connection.fetch(statement("list_worker_leases"), worker_id)
        suspects = [
            Failure(
                Lease(row["id"], row["attempt"], row["lease_token"]),
                error=f"The worker process ended with {crash} while it held this task.",
                fingerprint=CRASH_FINGERPRINT,
                charged=False,
                outcome="LOST",
            )
            for row in rows
        ]
    if charged or suspects:
        await acknowledge(connection, worker_id=worker_id, failures=[*charged, *suspects])
    await deregister_worker(connection, worker_id)
