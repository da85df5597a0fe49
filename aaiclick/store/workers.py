"""Workers: who is there, who leads, who has died.

**Leadership is a term.** A term belongs to one worker, has a number higher than all before it and ends at
`leader_until`. Its holder may extend it for as long as it has not ended; when it has ended, by time or by resigning, it
never comes back: even the same worker begins a new one. Elections are held one at a time (an advisory lock), and a
partial unique index refuses a second leader whatever else goes wrong. All by the database's clock: a worker whose own
clock is wrong cannot lead for longer.

The leader is an economy, not a guarantee: every loop is safe to run by several at once, and workers run the urgent ones
(promotion, reaping) themselves when there is nobody else.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aaiclick import faults
from aaiclick.errors import ConflictError, NotFoundError
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.leases import Lane, Lease, Tally
from aaiclick.store.outcomes import acknowledge
from aaiclick.store.selectable import Selectable
from aaiclick.store.statements import statement
from aaiclick.store.words import WorkerStatus

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.engine import Connection


@dataclass(slots=True)
class Worker(metaclass=Selectable):
    """A process that runs tasks: of every org, or of `org_id` alone if it came with that org's credential."""

    id: int
    started_at: datetime
    last_heartbeat: datetime
    stopped_at: datetime | None
    tasks_completed: int
    tasks_failed: int
    pid: int
    pool_size: int
    status: WorkerStatus
    is_leader: bool
    leader_until: datetime | None
    leader_term: int | None
    hostname: str
    version: str | None
    queues: list[str]
    org_id: UUID | None
    drain_requested_at: datetime | None
    log_directory: str | None


class Standing(StrEnum):
    """Whether anything is to be expected of a worker."""

    HEARD_OF = "HEARD_OF"
    SILENT = "SILENT"  # it may be back
    ENDED = "ENDED"


async def register_worker(
    connection: Connection,
    *,
    hostname: str,
    pid: int,
    pool_size: int = 1,
    version: str | None = None,
    queues: Sequence[str] = (),
    worker_id: int | None = None,
    org_id: UUID | None = None,
    log_directory: Path | None = None,
) -> Worker:
    """A new worker that is ACTIVE from now on; one that has an org works for it alone.

    The logs of its tasks are `{task id}.log` in `log_directory`.
    """
    key = worker_id if worker_id is not None else get_snowflake_id()
    async with faults.statement("register_worker"):
        row = await connection.fetchrow(
            statement("register_worker"),
            key,
            hostname,
            pid,
            pool_size,
            version,
            list(queues),
            org_id,
            None if log_directory is None else str(log_directory),
        )
    if row is None:
        raise ConflictError(f"Worker {key} is another one.", remedy="Register with a new id.")
    return _worker(row)


async def set_worker_status(connection: Connection, worker_id: int, status: WorkerStatus) -> bool:
    """ACTIVE or IDLE; False if the worker counts as stopped: then it must register anew."""
    return await connection.fetchval(statement("set_worker_status"), worker_id, status.value) is not None


async def renew_worker(connection: Connection, worker_id: int, *, now: datetime | None = None) -> None:
    """Renew the heartbeat of a worker that has not stopped."""
    if await connection.execute(statement("beat"), worker_id, 0, 0, now) != "UPDATE 0":
        return
    if await connection.fetchval(statement("worker_exists"), worker_id):
        raise ConflictError(f"Worker {worker_id} has stopped.", remedy="Register a new worker.")
    raise unknown_worker(worker_id)


def unknown_worker(worker_id: object) -> NotFoundError:
    return NotFoundError(f"There is no worker {worker_id}.", remedy="'aaiclick workers ls' lists the workers.")


async def release_worker(connection: Connection, worker_id: int, *, now: datetime | None = None) -> set[int]:
    """Give back everything the worker holds, uncharged; returns the ids."""
    rows = await connection.fetch(statement("worker_leases"), worker_id)
    leases = [Lease(row["id"], row["attempt"], row["lease_token"]) for row in rows]
    if not leases:
        return set()
    return await acknowledge(connection, worker_id=worker_id, releases=leases, now=now)


async def deregister_worker(connection: Connection, worker_id: int, *, now: datetime | None = None) -> bool:
    """The worker stops: it leads no more and what it holds is ready for others. False if it had stopped already."""
    async with faults.transaction(connection, "deregister"):
        stopped = await connection.fetchval(statement("stop_worker"), worker_id, now)
        await release_worker(connection, worker_id, now=now)
    return stopped is not None


async def are_of(connection: Connection, worker_ids: Sequence[int], org_id: UUID) -> bool:
    """Whether all of these workers work for the org."""
    return bool(await connection.fetchval(statement("own_workers"), list(worker_ids), org_id))


async def standing(
    connection: Connection, workers: Collection[tuple[UUID, int]], *, heard_seconds: float, ended_seconds: float
) -> dict[tuple[UUID, int], Standing]:
    """Which workers (by org and id) were heard of within a time, and which ended so long ago or are not known."""
    orgs, ids = [org_id for org_id, _ in workers], [worker_id for _, worker_id in workers]
    rows = await connection.fetch(statement("worker_standing"), orgs, ids, heard_seconds, ended_seconds)
    return {(row["org_id"], row["id"]): Standing(row["standing"]) for row in rows}


async def drain_worker(connection: Connection, worker_id: int) -> None:
    """Have a worker finish what it runs and end."""
    if await connection.fetchval(statement("drain_worker"), worker_id) is None:
        raise NotFoundError(
            f"There is no worker {worker_id} at work.", remedy="'aaiclick workers ls' lists those at work."
        )


async def draining(connection: Connection, worker_ids: Sequence[int]) -> list[int]:
    """Those of these workers that are to finish what they run and end."""
    return [row["id"] for row in await connection.fetch(statement("draining_workers"), list(worker_ids))]


async def count_outcomes(connection: Connection, worker_id: int, tallies: Mapping[Lane, Tally]) -> None:
    """Add to what the worker has completed and failed so far, and to what was finished of each queue this minute."""
    await connection.execute(
        statement("count_outcomes"),
        worker_id,
        [org_id for org_id, _ in tallies],
        [queue for _, queue in tallies],
        [tally.completed for tally in tallies.values()],
        [tally.failed for tally in tallies.values()],
    )


def worker_state(status: str, last_heartbeat: datetime, *, timeout_seconds: float, now: datetime | None = None) -> str:
    """A worker's state as shown: SILENT without a heartbeat in time, also if no reaper has marked it yet."""
    silent = ((now or datetime.now(UTC)) - last_heartbeat).total_seconds()
    return "SILENT" if status != WorkerStatus.STOPPED and silent > timeout_seconds else str(status)


async def list_workers(connection: Connection, status: WorkerStatus | None = None) -> list[Worker]:
    rows = await connection.fetch(statement("list_workers"), None if status is None else status.value)
    return [_worker(row) for row in rows]


async def who_could_claim(connection: Connection, job_id: int, *, heard_seconds: float) -> list[asyncpg.Record]:
    """Of each queue of which a job has something ready (None: it has nothing ready) the workers that could
    claim it: hostname and pid, both None if there is nobody. Empty if there is no such job.
    """
    return await connection.fetch(statement("who_could_claim"), job_id, heard_seconds)


async def stop_dead_workers(connection: Connection, *, timeout_seconds: float, now: datetime | None = None) -> int:
    """Workers silent for too long become STOPPED, and their leases run out at once: the reaper takes it from there."""
    async with faults.transaction(connection, "dead_workers"):
        rows = await connection.fetch(statement("dead_workers"), timeout_seconds, now)
        if rows:
            await connection.execute(statement("expire_leases"), [row["id"] for row in rows], now)
    return len(rows)


async def rebase_heartbeats(connection: Connection, *, now: datetime | None = None) -> int:
    """Bound leases whose last heartbeat lies in the future, after PostgreSQL's clock was set back; returns how many."""
    return len(await connection.fetch(statement("rebase_heartbeats"), now))


async def lead(
    connection: Connection, worker_id: int, *, term_seconds: float, now: datetime | None = None
) -> int | None:
    """Extend the worker's term or begin one; returns its number, or None if somebody else leads."""
    async with faults.transaction(connection, "lead"):
        if not await connection.fetchval(statement("lock_election")):
            return None
        await connection.execute(statement("end_terms"), now)
        await connection.execute(statement("bound_terms"), now, term_seconds)
        return await connection.fetchval(statement("begin_term"), worker_id, term_seconds, now)


async def resign(connection: Connection, worker_id: int) -> bool:
    """End the worker's term; False if it did not lead."""
    async with faults.statement("resign"):
        return await connection.fetchval(statement("resign"), worker_id) is not None


def _worker(row: asyncpg.Record) -> Worker:
    fields: dict[str, Any] = dict(row)
    fields["status"] = WorkerStatus(fields["status"])
    return Worker(**fields)
