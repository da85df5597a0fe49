"""Everything that a worker says to the queue, and how it is told."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg

from aaiclick.errors import AaiclickError, ConflictError, RequestError, SubmitError
from aaiclick.store import supervision, tables
from aaiclick.store.leases import Claim, Failure, Lane, Lease, Success, Tally
from aaiclick.targets import ClickHouseTarget

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

GONE = (AaiclickError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
"""What a line raises when PostgreSQL or the server restarts, refuses or goes away: never a reason to end."""

REFUSED = (
    asyncpg.DataError, asyncpg.IntegrityConstraintViolationError, asyncpg.ProgramLimitExceededError,
    RequestError, SubmitError, ConflictError,
)  # fmt: skip
"""What a line raises when something that was said cannot be stored: saying it again is no use."""

MOST_PATIENCE = 8


def patience(seconds: float, failures: int) -> float:
    """How long to wait for an answer after so many failures in a row."""
    return seconds * min(2**failures, MOST_PATIENCE)


Wish = tuple[str, Lease]
"""A table, and the attempt that wants it."""


@dataclass(frozen=True, slots=True)
class Registration:
    """A worker process as others see it."""

    worker_id: int
    hostname: str
    pid: int
    pool_size: int = 1
    version: str | None = None
    queues: Sequence[str] = ()
    log_directory: Path | None = None
    """A server's workers send their logs: it uses its own directory."""


class Line(ABC):
    """A conversation, by one speaker at a time. Whatever ends it, a new one goes on where it ended: everything may be
    said twice.
    """

    @property
    @abstractmethod
    def connection(self) -> Connection:
        """PostgreSQL itself; raises where there is none."""

    @property
    @abstractmethod
    def closed(self) -> bool: ...

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    def terminate(self) -> None:
        """Close without a word."""

    @abstractmethod
    def answering_within(self, seconds: float) -> AbstractContextManager[None]:
        """What is said meanwhile fails with one of GONE if it is not answered in time: a network can swallow
        everything and say nothing. Who says it again allows for more time, since it may be PostgreSQL that is slow.
        """

    # --- what a worker process says -----------------------------------------------------------------------------------

    @abstractmethod
    async def exchange(
        self,
        *,
        worker_id: int,
        successes: Sequence[Success],
        failures: Sequence[Failure],
        releases: Sequence[Lease],
        limit: int,
        queues: Sequence[str],
        lease_seconds: float,
    ) -> tuple[set[int], Sequence[Claim]]:
        """Tell what came of attempts and claim up to `limit` tasks: the accepted ids, and the claims."""

    @abstractmethod
    async def next_due(self) -> float | None:
        """Seconds until a task that waits for its time becomes due, if that can be known."""

    @abstractmethod
    async def start(self, leases: Sequence[Lease]) -> None:
        """These tasks run."""

    @abstractmethod
    async def count(self, worker_id: int, tallies: Mapping[Lane, Tally]) -> None:
        """Add to the counters of the worker's row, and of queues."""

    @abstractmethod
    async def held(self, worker_id: int) -> list[supervision.Held]:
        """What the queue believes that this worker holds."""

    @abstractmethod
    async def listen(self, on_ready: Callable[..., None], on_cancel: Callable[..., None]) -> None:
        """Have these called when there may be work, and when something is to be cancelled; until `close`."""

    @abstractmethod
    async def send_log(self, lease: Lease, path: Path, offset: int) -> int:
        """Pass on what is in a log from `offset` on; returns how far that came. Where logs are read from the directory
        that they are written to, there is nothing to do.
        """

    # --- what its supervisor says -------------------------------------------------------------------------------------

    @abstractmethod
    async def register(self, worker: Registration) -> None: ...

    @abstractmethod
    async def keep_leases(self, worker_ids: Sequence[int], lease_seconds: float) -> None:
        """These workers live, and keep what they hold."""

    @abstractmethod
    async def overdue(
        self, worker_ids: Sequence[int], grace_seconds: float, default_timeout_seconds: float
    ) -> list[supervision.Overdue]:
        """Tasks of these workers that should have ended `grace_seconds` ago."""

    @abstractmethod
    async def settle(self, worker_id: int, culprits: Sequence[supervision.Overdue], crashed: str | None) -> None:
        """A process has ended; see `supervision.settle`."""

    @abstractmethod
    async def keep_house(self, worker_id: int, term_seconds: float) -> None:
        """Offer to lead for a while, and run the loops if elected."""

    @abstractmethod
    async def draining(self, worker_ids: Sequence[int]) -> list[int]:
        """Those of these workers that are to finish what they run and end."""

    # --- what its tasks hold ------------------------------------------------------------------------------------------

    @abstractmethod
    async def reserve(self, wishes: Sequence[Wish]) -> list[tables.Held]: ...

    @abstractmethod
    async def hold(self, wishes: Sequence[Wish]) -> list[tables.Held]: ...

    @abstractmethod
    async def release(self, wishes: Sequence[Wish]) -> None: ...

    @abstractmethod
    async def name_table(self, table_name: str, name: str, lease: Lease | None) -> None: ...

    @abstractmethod
    async def unname_table(self, table_name: str, lease: Lease | None) -> None: ...


class Transport(ABC):
    """Opens lines, and knows where the data of an org is."""

    name: str
    """What is spoken to, in messages."""

    check_seconds: float
    """How often a supervisor asks for tasks that do not end."""

    sends_logs: bool
    """Whether logs are to be passed on."""

    secrets: Sequence[str]
    """What no log and no error may repeat."""

    endpoints: Collection[str]
    """Addresses of the worker's own servers: their outages are not charged to tasks."""

    @abstractmethod
    async def open(self) -> Line: ...

    @abstractmethod
    async def clickhouse(self, org_id: UUID) -> ClickHouseTarget: ...

    @abstractmethod
    def tell(self) -> dict[str, Any]:
        """What another process of the same worker must hear before it runs a task that this one claimed."""

    @abstractmethod
    def hear(self, told: Mapping[str, Any]) -> None: ...

    @abstractmethod
    async def close(self) -> None:
        """Give back what lines share."""
