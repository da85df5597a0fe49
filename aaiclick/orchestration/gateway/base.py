"""Interface between a worker and the queue."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import asyncpg

from aaiclick.errors import ConflictError, RequestError, SubmitError
from aaiclick.server_addresses import ClickHouseEndpoint
from aaiclick.store.engine import worker_leases
from aaiclick.store.engine.leases_and_outcomes import Claim, Failure, Lease, OrgQueue, OutcomeCounts, Success
from aaiclick.store.tables import table_references

if TYPE_CHECKING:
    from aaiclick.api.worker_protocol.claims import ClickHouseAccess
    from aaiclick.orchestration.function_registry import ModuleJobs
    from aaiclick.orchestration.gateway.attempt import AttemptGateway
    from aaiclick.store.postgres_connections import Connection

REJECTED_ERRORS = (
    asyncpg.DataError, asyncpg.IntegrityConstraintViolationError, asyncpg.ProgramLimitExceededError,
    RequestError, SubmitError, ConflictError,
)  # fmt: skip
"""Raised when a value cannot be stored: retrying the same call does not help."""

MAX_TIMEOUT_FACTOR = 8


def backoff_timeout(seconds: float, failures: int) -> float:
    """Response timeout after a number of consecutive failures; doubles with each, up to MAX_TIMEOUT_FACTOR."""
    return seconds * min(2**failures, MAX_TIMEOUT_FACTOR)


TableRequest = tuple[str, Lease]
"""A table name and the lease of the attempt that requests it."""


@dataclass(frozen=True, slots=True)
class Registration:
    """The row of a worker process in `workers`."""

    worker_id: int
    hostname: str
    pid: int
    pool_size: int = 1
    version: str | None = None
    queues: Sequence[str] = ()
    log_directory: Path | None = None
    """Ignored by a server, which stores the logs that its workers send in its own directory."""
    code_version: str | None = None
    code_modules: Sequence[str] = ()


class GatewayConnection(ABC):
    """Connection to the queue. Not safe for concurrent use.

    Every call is idempotent and may be repeated on a new connection.
    """

    @property
    @abstractmethod
    def postgres(self) -> Connection:
        """The asyncpg connection; raises AaiclickError on an HTTP gateway."""

    @property
    @abstractmethod
    def is_closed(self) -> bool: ...

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    def terminate(self) -> None:
        """Close without waiting for the server."""

    @abstractmethod
    def response_deadline(self, seconds: float) -> AbstractContextManager[None]:
        """Calls inside fail with one of CONNECTION_ERRORS if there is no response in time.

        A network can drop packets silently. Retries use a longer deadline, since the server may only be slow.
        """

    # --- calls of worker processes ------------------------------------------------------------------------------------

    @abstractmethod
    async def acknowledge_and_claim(
        self,
        *,
        worker_id: int,
        successes: Sequence[Success],
        failures: Sequence[Failure],
        releases: Sequence[Lease],
        limit: int,
        queues: Sequence[str],
        lease_seconds: float,
        on_claimed: Callable[[Sequence[Claim]], None],
    ) -> set[int]:
        """Acknowledge outcomes and claim up to `limit` tasks; returns the accepted task ids.

        `on_claimed` receives the claims, possibly before the acknowledgement is durable.
        """

    @abstractmethod
    async def seconds_to_next_due(self) -> float | None:
        """Seconds until the next scheduled task is due; None if there is none or it is unknown."""

    @abstractmethod
    async def mark_running(self, leases: Sequence[Lease]) -> Collection[int]:
        """Set tasks to RUNNING; returns the ids of those with valid leases."""

    @abstractmethod
    async def add_counts(self, worker_id: int, report: int, tallies: Mapping[OrgQueue, OutcomeCounts]) -> None:
        """Add to the counters of the worker's row and of at most MAX_REPORTED_QUEUES queues.

        A report with a number that is not higher than the worker's last one changes nothing.
        """

    @abstractmethod
    async def held_leases(self, worker_id: int) -> list[worker_leases.HeldLease]:
        """Leases of this worker according to the queue."""

    @abstractmethod
    async def listen(self, on_ready: Callable[..., None], on_cancel: Callable[..., None]) -> None:
        """Register callbacks for ready tasks and for cancellations, until `close`."""

    @abstractmethod
    async def send_log(self, lease: Lease, path: Path, offset: int) -> int:
        """Send the log from `offset` on; returns the new offset. No-op where logs are read from their directory."""

    # --- calls of the supervisor --------------------------------------------------------------------------------------

    @abstractmethod
    async def register_worker(self, worker: Registration) -> None: ...

    @abstractmethod
    async def register_functions(self, jobs: ModuleJobs) -> None:
        """Store the `@job` functions that this worker has imported, and their schedules."""

    @abstractmethod
    async def renew_leases(self, worker_ids: Sequence[int], lease_seconds: float) -> None:
        """Renew heartbeats of workers and the leases of their tasks."""

    @abstractmethod
    async def overdue_tasks(
        self, worker_ids: Sequence[int], grace_seconds: float, default_timeout_seconds: float
    ) -> list[worker_leases.OverdueTask]:
        """Tasks of these workers that exceeded their time limit, or were cancelled, `grace_seconds` ago."""

    @abstractmethod
    async def finish_worker(
        self, worker_id: int, overdue: Sequence[worker_leases.OverdueTask], crash: str | None
    ) -> None:
        """Release the tasks of a worker process that has ended; see `worker_leases`."""

    @abstractmethod
    async def run_leader_loops(self, worker_id: int, term_seconds: float) -> None:
        """Stand for election as leader, and run the loops if elected."""

    @abstractmethod
    async def draining_workers(self, worker_ids: Sequence[int]) -> list[int]:
        """The workers among `worker_ids` that were asked to drain."""

    # --- table references of tasks ------------------------------------------------------------------------------------

    @abstractmethod
    async def reserve_tables(self, requests: Sequence[TableRequest]) -> list[table_references.TableReferenceResult]: ...

    @abstractmethod
    async def hold_tables(self, requests: Sequence[TableRequest]) -> list[table_references.TableReferenceResult]: ...

    @abstractmethod
    async def release_tables(self, requests: Sequence[TableRequest]) -> None: ...

    @abstractmethod
    async def name_table(self, table_name: str, name: str, lease: Lease | None) -> None: ...

    @abstractmethod
    async def unname_table(self, table_name: str, lease: Lease | None) -> None: ...


class WorkerGateway(ABC):
    """Opens connections to the queue, and finds the ClickHouse database of an organisation."""

    name: str
    """Name of the server in messages."""

    check_seconds: float
    """Interval of the supervisor's check for overdue tasks."""

    sends_logs: bool
    """Whether logs are sent to the server."""

    secrets: Sequence[str]
    """Credentials, redacted in logs and errors."""

    addresses: Collection[str]
    """Addresses of the worker's own servers: their outages are not charged to tasks."""

    @abstractmethod
    async def connect(self) -> GatewayConnection: ...

    @abstractmethod
    def open_attempt(self, claim: Claim) -> AttemptGateway:
        """The gateway of an attempt that runs in this process."""

    @abstractmethod
    async def clickhouse(self, org_id: UUID) -> ClickHouseEndpoint: ...

    @abstractmethod
    def export_access(self) -> ClickHouseAccess | None:
        """Access to ClickHouse that a child process needs to run a task that this process claimed."""

    @abstractmethod
    def import_access(self, access: ClickHouseAccess | None) -> None: ...

    @abstractmethod
    async def close(self) -> None:
        """Close resources that connections share."""
