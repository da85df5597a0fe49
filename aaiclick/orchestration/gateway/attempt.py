"""Interface of a running attempt to the queue and the catalogue, and its implementation for PostgreSQL."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick.orchestration.connection_pool import ConnectionPool, shared_pool
from aaiclick.server_addresses import PostgresEndpoint
from aaiclick.store.catalog import definition_runs
from aaiclick.store.engine import queries, result_cache
from aaiclick.store.engine.leases_and_outcomes import Lease
from aaiclick.store.engine.submission_plan import Plan
from aaiclick.store.engine.submit import JobLimits, add_to_job
from aaiclick.store.tables import literal_results
from aaiclick.store.tenancy import secrets
from aaiclick.store.tenancy.secrets import Secret

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

    from aaiclick.store.postgres_connections import Connection


@dataclass(frozen=True, slots=True)
class StagedTable:
    """Rows that an attempt has staged in a table of its own, for a partition of a generation."""

    generation: UUID
    partition: str
    ticket: int
    table: str
    rows: int
    publishes: int | None = None
    """Publications of the generation that data tests have read."""


PublishDirectly = Callable[["Connection"], Awaitable[definition_runs.PublishOutcome]]


class AttemptGateway(ABC):
    """Calls of one running attempt, which its lease permits."""

    def __init__(self, lease: Lease, org_id: UUID, job_id: int | None) -> None:
        self.lease = lease
        self.org_id = org_id
        self.job_id = job_id

    has_database: bool
    """Whether the attempt can connect to PostgreSQL; if not, the following three raise AaiclickError."""

    @abstractmethod
    def connection(self, *, keeps_session: bool = False) -> AbstractAsyncContextManager[Connection]: ...

    @abstractmethod
    def session(self) -> AbstractAsyncContextManager[AsyncSession]: ...

    @property
    @abstractmethod
    def engine(self) -> AsyncEngine: ...

    @abstractmethod
    async def add_tasks(self, plan: Plan, names: Mapping[int, str], limits: JobLimits) -> None:
        """Add tasks to the job of the attempt; they start after it has completed."""

    @abstractmethod
    async def task_results(self, task_ids: Sequence[int]) -> Mapping[int, queries.TaskResult]:
        """Results of tasks of the same job by task id."""

    @abstractmethod
    async def group_results(self, group_id: int) -> Sequence[queries.TaskResult]:
        """Results of the tasks of a group of the same job, ordered by task id."""

    @abstractmethod
    async def find_cached_result(
        self, key: str, max_age_seconds: float | None, refused: Sequence[int]
    ) -> queries.TaskResult | None:
        """Result of another task with the cache key, not of `refused`; None: this attempt computes it."""

    @abstractmethod
    async def load_literals(self, table_ids: Sequence[str]) -> Mapping[str, str]:
        """Encoded literals of the organisation by table id; tables are left out."""

    @abstractmethod
    async def reserve_literal(self, table_id: str) -> literal_results.Reservation:
        """Request to create the table of a literal."""

    @abstractmethod
    async def replace_literal(self, table_id: str) -> None:
        """Make readers of a literal use its table, which is complete."""

    @abstractmethod
    async def abandon_literal(self, table_id: str) -> None:
        """Cancel a request to create the table of a literal."""

    @abstractmethod
    async def read_secrets(self, names: Sequence[str]) -> list[Secret]: ...

    # --- tasks of DAGs ------------------------------------------------------------------------------------------------

    @abstractmethod
    async def load_definition(self, definition_id: UUID) -> definition_runs.Definition | None: ...

    @abstractmethod
    async def take_ticket(self) -> int:
        """Return a new ticket. Taken before anything is read, so that a higher ticket means a later read."""

    @abstractmethod
    async def get_state(self, definition_id: UUID, key: str) -> dict[str, object] | None: ...

    @abstractmethod
    async def list_partitions(
        self, generation: UUID, keys: Sequence[str] | None = None
    ) -> dict[str, definition_runs.Partition]: ...

    @abstractmethod
    async def input_digest(self, generation: UUID) -> str: ...

    @abstractmethod
    async def publish_table(self, staged: StagedTable, publish: PublishDirectly) -> definition_runs.PublishOutcome:
        """Publish staged rows: by `publish`, or by the server; raises LeaseLost."""

    @abstractmethod
    async def emit_updates(self, effects: str, cursor: str) -> None:
        """Record published updates and emit their events while the task runs; raises LeaseLost."""


class PostgresAttemptGateway(AttemptGateway):
    """Gateway over the pool that the tasks of the process share."""

    has_database = True

    def __init__(self, endpoint: PostgresEndpoint, lease: Lease, org_id: UUID, job_id: int | None) -> None:
        self.lease, self.org_id, self.job_id, self._endpoint = lease, org_id, job_id, endpoint

    @property
    def _pool(self) -> ConnectionPool:
        return shared_pool(self._endpoint)

    def connection(self, *, keeps_session: bool = False) -> AbstractAsyncContextManager[Connection]:
        return self._pool.connection(keeps_session=keeps_session)

    def session(self) -> AbstractAsyncContextManager[AsyncSession]:
        return self._pool.session()

    @property
    def engine(self) -> AsyncEngine:
        return self._pool.engine

    async def add_tasks(self, plan: Plan, names: Mapping[int, str], limits: JobLimits) -> None:
        assert self.job_id is not None  # noqa: S101  (the caller adds to the job of the attempt)
        async with self.connection() as connection:
            await add_to_job(connection, self.job_id, plan, names, self.lease, limits=limits)

    async def task_results(self, task_ids: Sequence[int]) -> Mapping[int, queries.TaskResult]:
        if self.job_id is None:
            return {}
        async with self.connection() as connection:
            return await queries.load_task_results(connection, self.job_id, task_ids)

    async def group_results(self, group_id: int) -> Sequence[queries.TaskResult]:
        if self.job_id is None:
            return ()
        async with self.connection() as connection:
            return await queries.load_group_results(connection, group_id, self.job_id)

    async def find_cached_result(
        self, key: str, max_age_seconds: float | None, refused: Sequence[int]
    ) -> queries.TaskResult | None:
        async with self.connection() as connection:
            return await result_cache.find_cached_result(
                connection, self.org_id, key, self.lease, max_age_seconds, refused
            )

    async def load_literals(self, table_ids: Sequence[str]) -> Mapping[str, str]:
        async with self.connection() as connection:
            return await literal_results.load_literals(connection, table_ids, self.org_id)

    async def reserve_literal(self, table_id: str) -> literal_results.Reservation:
        async with self.connection() as connection:
            return await literal_results.reserve_literal_table(connection, table_id, self.org_id)

    async def replace_literal(self, table_id: str) -> None:
        async with self.connection() as connection:
            await literal_results.replace_literal(connection, table_id, self.org_id)

    async def abandon_literal(self, table_id: str) -> None:
        async with self.connection() as connection:
            await literal_results.abandon_literal_table(connection, table_id, self.org_id)

    async def read_secrets(self, names: Sequence[str]) -> list[Secret]:
        async with self.connection() as connection:
            return await secrets.load_task_secrets(connection, self.lease, names)

    async def load_definition(self, definition_id: UUID) -> definition_runs.Definition | None:
        async with self.connection() as connection:
            definition = await definition_runs.load_definition(connection, definition_id)
        # The id comes from task arguments, which are untrusted.
        return definition if definition is not None and definition.org_id == self.org_id else None

    async def take_ticket(self) -> int:
        async with self.connection() as connection:
            return await definition_runs.take_ticket(connection)

    async def get_state(self, definition_id: UUID, key: str) -> dict[str, object] | None:
        async with self.connection() as connection:
            return await definition_runs.get_state(connection, self.org_id, definition_id, key)

    async def list_partitions(
        self, generation: UUID, keys: Sequence[str] | None = None
    ) -> dict[str, definition_runs.Partition]:
        async with self.connection() as connection:
            return await definition_runs.load_partitions(connection, generation, keys)

    async def input_digest(self, generation: UUID) -> str:
        async with self.connection() as connection:
            return await definition_runs.load_input_digest(connection, generation)

    async def publish_table(self, staged: StagedTable, publish: PublishDirectly) -> definition_runs.PublishOutcome:  # noqa: ARG002
        async with self.connection() as connection:
            return await publish(connection)

    async def emit_updates(self, effects: str, cursor: str) -> None:
        async with self.connection() as connection:
            await definition_runs.emit_updates(connection, self.lease, effects, cursor)
