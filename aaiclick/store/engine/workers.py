"""Registration of workers, leader election, and detection of dead workers.

**Leadership is a term.** A term belongs to one worker, has a number higher than all before it and ends at
`leader_until`. Its holder may extend it until it has ended; after that even the same worker begins a new one. Elections
are serialised by an advisory lock, and a partial unique index forbids a second leader. Only the database's clock
counts: a worker with a wrong clock cannot lead for longer.

The leader saves work, it guarantees nothing: every loop is safe to run concurrently, and every worker runs promotion
itself, so that due tasks do not wait for a leader.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aaiclick import failpoints
from aaiclick.errors import ConflictError, NotFoundError
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.engine.acknowledge import acknowledge
from aaiclick.store.engine.leases_and_outcomes import Lease, OrgQueue, OutcomeCounts
from aaiclick.store.enums import WorkerStatus
from aaiclick.store.select_metaclass import Selectable
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.postgres_connections import Connection


@dataclass(slots=True)
class Worker(metaclass=Selectable):
    """A worker process: for all orgs, or for `org_id` only if it uses a credential of that org.

    ```python
    registered: Worker = await register_worker("machine-1", 4711, pool_size=4)
    registered.status is WorkerStatus.ACTIVE  # True
    ```
    """

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
    code_version: str | None
    code_modules: list[str]


class WorkerLiveness(StrEnum):
    """Liveness of a worker, by its last heartbeat."""

    ALIVE = "ALIVE"
    SILENT = "SILENT"  # it may send heartbeats again
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
    code_version: str | None = None,
    code_modules: Sequence[str] = (),
) -> Worker:
    """Register an ACTIVE worker; with `org_id` it serves that org only.

    The logs of its tasks are `{task id}.log` in `log_directory`. `code_version` and `code_modules` are of
    `aaiclick.code_version`.
    """
    key = worker_id if worker_id is not None else get_snowflake_id()
    async with failpoints.statement("register_worker"):
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
            code_version,
            list(code_modules),
        )
    if row is None:
        raise ConflictError(f"The worker id {key} is taken by another worker.", remedy="Register with a new id.")
    return _to_worker(row)


async def renew_worker(connection: Connection, worker_id: int, *, now: datetime | None = None) -> None:
    """Renew the heartbeat of a worker that has not stopped."""
    if await connection.execute(statement("renew_worker"), worker_id, 0, 0, now) != "UPDATE 0":
        return
    if await connection.fetchval(statement("worker_exists"), worker_id):
        raise ConflictError(f"Worker {worker_id} has stopped.", remedy="Register a new worker.")
    raise unknown_worker(worker_id)


def unknown_worker(worker_id: object) -> NotFoundError:
    return NotFoundError(f"There is no worker {worker_id}.", remedy="'aaiclick workers ls' lists the workers.")


async def release_worker(connection: Connection, worker_id: int, *, now: datetime | None = None) -> set[int]:
    """Release all leases of the worker, uncharged; returns the task ids."""
    rows = await connection.fetch(statement("list_worker_leases"), worker_id)
    leases = [Lease(row["id"], row["attempt"], row["lease_token"]) for row in rows]
    if not leases:
        return set()
    return await acknowledge(connection, worker_id=worker_id, releases=leases, now=now)


async def deregister_worker(connection: Connection, worker_id: int, *, now: datetime | None = None) -> bool:
    """Stop the worker: end its term and release its leases. False if it had stopped already."""
    async with failpoints.transaction(connection, "deregister"):
        stopped = await connection.fetchval(statement("stop_worker"), worker_id, now)
        await release_worker(connection, worker_id, now=now)
    return stopped is not None


async def are_workers_of_org(connection: Connection, worker_ids: Sequence[int], org_id: UUID) -> bool:
    """Whether all of these workers belong to the org."""
    return bool(await connection.fetchval(statement("are_workers_of_org"), list(worker_ids), org_id))


async def check_liveness(
    connection: Connection, workers: Collection[tuple[UUID, int]], *, alive_seconds: float, ended_seconds: float
) -> dict[tuple[UUID, int], WorkerLiveness]:
    """Liveness of workers (org, id): ALIVE within `alive_seconds`; ENDED after `ended_seconds`, or if unknown."""
    orgs, ids = [org_id for org_id, _ in workers], [worker_id for _, worker_id in workers]
    rows = await connection.fetch(statement("check_liveness"), orgs, ids, alive_seconds, ended_seconds)
    return {(row["org_id"], row["id"]): WorkerLiveness(row["liveness"]) for row in rows}


async def drain_worker(connection: Connection, worker_id: int) -> None:
    """Request that a worker finishes its tasks and exits."""
    if await connection.fetchval(statement("drain_worker"), worker_id) is None:
        raise NotFoundError(
            f"There is no active worker {worker_id}.", remedy="'aaiclick workers ls' lists the workers."
        )


async def list_draining_workers(connection: Connection, worker_ids: Sequence[int]) -> list[int]:
    """Those of these workers that have a drain request."""
    return [row["id"] for row in await connection.fetch(statement("list_draining_workers"), list(worker_ids))]


async def count_outcomes(
    connection: Connection, worker_id: int, report: int, counts: Mapping[OrgQueue, OutcomeCounts]
) -> None:
    """Add to the outcome counters of the worker, and to those of each queue for this minute.

    Reports of a worker have ascending numbers; one that is not higher than the last is a repetition and is ignored.
    """
    async with failpoints.statement("count_outcomes"):
        await connection.execute(
            statement("add_outcome_counts"),
            worker_id,
            [org_id for org_id, _ in counts],
            [queue for _, queue in counts],
            [tally.completed for tally in counts.values()],
            [tally.failed for tally in counts.values()],
            report,
        )


def worker_state(status: str, last_heartbeat: datetime, *, timeout_seconds: float, now: datetime | None = None) -> str:
    """Displayed state of a worker: SILENT without a recent heartbeat, even before the reaper has stopped it."""
    silent = ((now or datetime.now(UTC)) - last_heartbeat).total_seconds()
    return "SILENT" if status != WorkerStatus.STOPPED and silent > timeout_seconds else str(status)


async def list_workers(connection: Connection, status: WorkerStatus | None = None) -> list[Worker]:
    rows = await connection.fetch(statement("list_workers"), None if status is None else status.value)
    return [_to_worker(row) for row in rows]


async def list_eligible_workers(connection: Connection, job_id: int, *, alive_seconds: float) -> list[asyncpg.Record]:
    """Live workers (hostname, pid) per queue in which the job has ready tasks.

    Queue None: the job has no ready task; hostname and pid None: the queue has no worker. Empty: there is no such job.
    """
    return await connection.fetch(statement("list_eligible_workers"), job_id, alive_seconds)


async def stop_dead_workers(connection: Connection, *, timeout_seconds: float, now: datetime | None = None) -> int:
    """Mark workers without a heartbeat as STOPPED, and expire their leases for the reaper."""
    async with failpoints.transaction(connection, "dead_workers"):
        rows = await connection.fetch(statement("stop_dead_workers"), timeout_seconds, now)
        if rows:
            await connection.execute(statement("expire_leases"), [row["id"] for row in rows], now)
    return len(rows)


async def rebase_heartbeats(connection: Connection, *, now: datetime | None = None) -> int:
    """Shorten leases with a last heartbeat in the future, after PostgreSQL's clock was set back; returns how many."""
    return len(await connection.fetch(statement("rebase_heartbeats"), now))


async def lead(
    connection: Connection, worker_id: int, *, term_seconds: float, now: datetime | None = None
) -> int | None:
    """Extend the worker's term or begin one; returns its number, or None if another worker leads."""
    async with failpoints.transaction(connection, "lead"):
        if not await connection.fetchval(statement("lock_election")):
            return None
        await connection.execute(statement("end_terms"), now)
        await connection.execute(statement("bound_terms"), now, term_seconds)
        return await connection.fetchval(statement("begin_term"), worker_id, term_seconds, now)


def _to_worker(row: asyncpg.Record) -> Worker:
    fields: dict[str, Any] = dict(row)
    fields["status"] = WorkerStatus(fields["status"])
    return Worker(**fields)


async def set_code_version(connection: Connection, worker_id: int, version: str) -> None:
    """Store the version of the code of a worker that was registered by another process."""
    await connection.execute(statement("set_code_version"), worker_id, version)
