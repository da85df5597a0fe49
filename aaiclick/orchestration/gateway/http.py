"""HTTP gateway, for workers without a database: every call is a request under `/v1/worker-api`.

An unreachable server or a rejected key raises the same errors as a lost connection: the worker keeps retrying.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from uuid import UUID

from aaiclick.api.worker_protocol import endpoints
from aaiclick.api.worker_protocol.claims import ClickHouseAccess, ExchangeRequest, WaitRequest
from aaiclick.api.worker_protocol.dag_tasks import (
    DefinitionRequest,
    EmitRequest,
    GenerationRequest,
    PartitionsRequest,
    PublishRequest,
    StateRequest,
)
from aaiclick.api.worker_protocol.endpoints import Endpoint, RequestT, ResponseT
from aaiclick.api.worker_protocol.field_types import LeaseRequest, LeasesRequest
from aaiclick.api.worker_protocol.outcomes import CompleteRequest, FailRequest, TaskEffects
from aaiclick.api.worker_protocol.tasks import (
    AddTasksRequest,
    CachedResultRequest,
    LiteralsRequest,
    LogRequest,
    NameTableRequest,
    ResultsRequest,
    SecretsRequest,
    StoreLiteralRequest,
    TableReference,
    TablesRequest,
)
from aaiclick.api.worker_protocol.workers import (
    MAX_CODE_MODULES,
    CountsRequest,
    ModuleFunction,
    OverdueRequest,
    QueueCounts,
    RegisterFunctionsRequest,
    RegisterRequest,
    RenewLeasesRequest,
    RunLoopsRequest,
    SettleRequest,
    WorkerRequest,
    WorkersRequest,
)
from aaiclick.errors import AaiclickError, LeaseLost, UnauthorisedError, UnreachableError
from aaiclick.orchestration.function_registry import ModuleJobs
from aaiclick.orchestration.gateway.attempt import AttemptGateway, PublishDirectly, StagedTable
from aaiclick.orchestration.gateway.base import (
    GatewayConnection,
    Registration,
    TableRequest,
    WorkerGateway,
)
from aaiclick.orchestration.gateway.http_client import WorkerApiClient, worker_api_client
from aaiclick.orchestration.gateway.schedule_requests import make_schedule_request
from aaiclick.server_addresses import ClickHouseEndpoint, ServerEndpoint
from aaiclick.store.catalog import definition_runs
from aaiclick.store.engine import queries, worker_leases
from aaiclick.store.engine.leases_and_outcomes import Claim, Failure, Lease, OrgQueue, OutcomeCounts, Success
from aaiclick.store.engine.submission_plan import Plan
from aaiclick.store.engine.submit import JobLimits
from aaiclick.store.postgres_connections import CONNECTION_ERRORS
from aaiclick.store.tables import table_references
from aaiclick.store.tables.literal_results import Reservation
from aaiclick.store.tenancy.secrets import Secret

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

    from aaiclick.store.postgres_connections import Connection

WAIT_SECONDS = 25.0
PAUSE_SECONDS = 1.0
LOG_CHUNK_BYTES = 1_000_000
"""Size of one log request."""


def no_database_error() -> AaiclickError:
    return AaiclickError(
        "This worker uses a server and has no connection to the database.",
        remedy="Tasks of such a worker can add tasks to their own job, return values and use Objects.",
    )


class HttpGatewayConnection(GatewayConnection):
    """Connection to the queue over the worker API."""

    def __init__(self, remote: WorkerApiClient) -> None:
        self._client = remote
        self._listening: asyncio.Task[None] | None = None
        self._timeout_seconds: float | None = None

    @property
    def postgres(self) -> Connection:
        raise no_database_error()

    @property
    def is_closed(self) -> bool:
        return False

    async def close(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._listening
            self._listening = None

    def terminate(self) -> None:
        if self._listening is not None:
            self._listening.cancel()

    @contextlib.contextmanager
    def response_deadline(self, seconds: float) -> Generator[None]:
        before, self._timeout_seconds = self._timeout_seconds, seconds
        try:
            yield
        finally:
            self._timeout_seconds = before

    async def _call(self, endpoint: Endpoint[RequestT, ResponseT], request: RequestT) -> ResponseT:
        return await self._client.send_request(endpoint, request, timeout_seconds=self._timeout_seconds)

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
        request = ExchangeRequest(
            worker_id=worker_id,
            completed=[CompleteRequest.from_success(success) for success in successes],
            failed=[FailRequest.from_failure(failure) for failure in failures],
            released=list(releases),
            limit=limit,
            queues=list(queues),
            lease_seconds=lease_seconds,
        )
        response = await self._call(endpoints.EXCHANGE, request)
        if response.tasks:
            self._client.clickhouse_access = response
        on_claimed(response.tasks)
        return set(response.accepted)

    async def seconds_to_next_due(self) -> float | None:
        """Unknown: due times of other organisations are not disclosed, so the worker polls every second."""
        return None

    async def mark_running(self, leases: Sequence[Lease]) -> Collection[int]:
        return (await self._call(endpoints.START, LeasesRequest(leases=list(leases)))).ids

    async def add_counts(self, worker_id: int, report: int, tallies: Mapping[OrgQueue, OutcomeCounts]) -> None:
        queues = [  # all of one org
            QueueCounts(queue=queue, completed=tally.completed, failed=tally.failed)
            for (_, queue), tally in tallies.items()
        ]
        await self._call(endpoints.ADD_COUNTS, CountsRequest(worker_id=worker_id, report=report, queues=queues))

    async def held_leases(self, worker_id: int) -> list[worker_leases.HeldLease]:
        return (await self._call(endpoints.LIST_HELD_TASKS, WorkerRequest(worker_id=worker_id))).tasks

    async def listen(self, on_ready: Callable[..., None], on_cancel: Callable[..., None]) -> None:
        self._listening = asyncio.create_task(self._poll_notifications(on_ready, on_cancel))

    async def _poll_notifications(self, on_ready: Callable[..., None], on_cancel: Callable[..., None]) -> None:
        since = ""
        while True:
            try:
                response = await self._client.send_request(
                    endpoints.WAIT, WaitRequest(since=since, wait_seconds=WAIT_SECONDS)
                )
            except CONNECTION_ERRORS:
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            if since and response.ready:
                on_ready()
            if since and response.cancel:
                on_cancel()
            since = response.now

    async def send_log(self, lease: Lease, path: Path, offset: int) -> int:
        """Send the log; a log that cannot be sent does not change the outcome."""
        with contextlib.suppress(FileNotFoundError, LeaseLost):
            while part := await asyncio.to_thread(_read_log, path, offset):
                text = part.decode(errors="replace")
                await self._call(endpoints.WRITE_LOG, LogRequest(lease=lease, offset=offset, text=text))
                offset += len(part)
        return offset

    async def register_worker(self, worker: Registration) -> None:
        request = RegisterRequest(
            worker_id=worker.worker_id,
            hostname=worker.hostname,
            pid=worker.pid,
            pool_size=worker.pool_size,
            version=worker.version,
            queues=list(worker.queues),
            code_version=worker.code_version,
            code_modules=list(worker.code_modules[:MAX_CODE_MODULES]),
        )
        await self._call(endpoints.REGISTER_WORKER, request)

    async def register_functions(self, jobs: ModuleJobs) -> None:
        request = RegisterFunctionsRequest(
            modules=list(jobs.modules),
            functions=[ModuleFunction.from_fields(function) for function in jobs.functions],
            schedules=[make_schedule_request(new) for new in jobs.schedules],
        )
        await self._call(endpoints.REGISTER_FUNCTIONS, request)

    async def renew_leases(self, worker_ids: Sequence[int], lease_seconds: float) -> None:
        request = RenewLeasesRequest(worker_ids=list(worker_ids), lease_seconds=lease_seconds)
        await self._call(endpoints.RENEW_LEASES, request)

    async def overdue_tasks(
        self, worker_ids: Sequence[int], grace_seconds: float, default_timeout_seconds: float
    ) -> list[worker_leases.OverdueTask]:
        if not worker_ids:
            return []
        request = OverdueRequest(
            worker_ids=list(worker_ids),
            grace_seconds=grace_seconds,
            default_timeout_seconds=default_timeout_seconds,
        )
        return (await self._call(endpoints.LIST_OVERDUE_TASKS, request)).tasks

    async def finish_worker(
        self, worker_id: int, overdue: Sequence[worker_leases.OverdueTask], crash: str | None
    ) -> None:
        request = SettleRequest(worker_id=worker_id, overdue=list(overdue), crash=crash)
        await self._call(endpoints.SETTLE_WORKER, request)

    async def run_leader_loops(self, worker_id: int, term_seconds: float) -> None:
        await self._call(endpoints.RUN_LOOPS, RunLoopsRequest(worker_id=worker_id, term_seconds=term_seconds))

    async def draining_workers(self, worker_ids: Sequence[int]) -> list[int]:
        request = WorkersRequest(worker_ids=list(worker_ids))
        return (await self._call(endpoints.LIST_DRAINING_WORKERS, request)).worker_ids

    async def reserve_tables(self, requests: Sequence[TableRequest]) -> list[table_references.TableReferenceResult]:
        return await self._update_tables("reserve", requests)

    async def hold_tables(self, requests: Sequence[TableRequest]) -> list[table_references.TableReferenceResult]:
        return await self._update_tables("hold", requests)

    async def release_tables(self, requests: Sequence[TableRequest]) -> None:
        await self._update_tables("release", requests)

    async def _update_tables(
        self, action: Literal["reserve", "hold", "release"], requests: Sequence[TableRequest]
    ) -> list[table_references.TableReferenceResult]:
        tables = [TableReference(table=name, lease=lease) for name, lease in requests]
        return (await self._call(endpoints.UPDATE_TABLES, TablesRequest(action=action, tables=tables))).tables

    async def name_table(self, table_name: str, name: str, lease: Lease | None) -> None:
        await self._set_table_name(table_name, name, lease)

    async def unname_table(self, table_name: str, lease: Lease | None) -> None:
        await self._set_table_name(table_name, None, lease)

    async def _set_table_name(self, table_name: str, name: str | None, lease: Lease | None) -> None:
        assert lease is not None  # noqa: S101  (a worker's Objects belong to attempts)
        await self._call(endpoints.NAME_TABLE, NameTableRequest(lease=lease, table=table_name, name=name))


class HttpAttemptGateway(AttemptGateway):
    """Gateway over the server that the attempt was claimed from, which checks the lease."""

    has_database = False

    def __init__(self, endpoint: ServerEndpoint, lease: Lease, org_id: UUID, job_id: int | None) -> None:
        super().__init__(lease, org_id, job_id)
        self._endpoint = endpoint

    async def _call(self, endpoint: Endpoint[RequestT, ResponseT], request: RequestT) -> ResponseT:
        return await worker_api_client(self._endpoint).send_request(endpoint, request)

    def connection(self, *, keeps_session: bool = False) -> AbstractAsyncContextManager[Connection]:  # noqa: ARG002
        raise no_database_error()

    def session(self) -> AbstractAsyncContextManager[AsyncSession]:
        raise no_database_error()

    @property
    def engine(self) -> AsyncEngine:
        raise no_database_error()

    async def add_tasks(self, plan: Plan, names: Mapping[int, str], limits: JobLimits) -> None:  # noqa: ARG002  (the server has its own)
        if plan.session_tables:
            raise no_database_error()
        await self._call(endpoints.ADD_TASKS, AddTasksRequest.from_plan(self.lease, plan, names))

    async def task_results(self, task_ids: Sequence[int]) -> Mapping[int, queries.TaskResult]:
        request = ResultsRequest(lease=self.lease, task_ids=list(task_ids))
        return {task.task_id: task for task in (await self._call(endpoints.GET_RESULTS, request)).results}

    async def group_results(self, group_id: int) -> Sequence[queries.TaskResult]:
        request = ResultsRequest(lease=self.lease, group_id=group_id)
        return (await self._call(endpoints.GET_RESULTS, request)).results

    async def find_cached_result(
        self, key: str, max_age_seconds: float | None, refused: Sequence[int]
    ) -> queries.TaskResult | None:
        request = CachedResultRequest(lease=self.lease, key=key, max_age_seconds=max_age_seconds, refused=list(refused))
        results = (await self._call(endpoints.FIND_CACHED_RESULT, request)).results
        return results[0] if results else None

    async def load_literals(self, table_ids: Sequence[str]) -> Mapping[str, str]:
        request = LiteralsRequest(lease=self.lease, tables=list(table_ids))
        return (await self._call(endpoints.LOAD_LITERALS, request)).literals

    async def reserve_literal(self, table_id: str) -> Reservation:
        request = StoreLiteralRequest(lease=self.lease, table=table_id, action="reserve")
        return (await self._call(endpoints.STORE_LITERAL, request)).reservation

    async def replace_literal(self, table_id: str) -> None:
        request = StoreLiteralRequest(lease=self.lease, table=table_id, action="replace")
        await self._call(endpoints.STORE_LITERAL, request)

    async def abandon_literal(self, table_id: str) -> None:
        request = StoreLiteralRequest(lease=self.lease, table=table_id, action="abandon")
        await self._call(endpoints.STORE_LITERAL, request)

    async def read_secrets(self, names: Sequence[str]) -> list[Secret]:
        request = SecretsRequest(lease=self.lease, names=list(names))
        return (await self._call(endpoints.READ_SECRETS, request)).secrets

    async def load_definition(self, definition_id: UUID) -> definition_runs.Definition | None:
        request = DefinitionRequest(lease=self.lease, definition=definition_id)
        return (await self._call(endpoints.GET_DEFINITION, request)).definition

    async def take_ticket(self) -> int:
        return (await self._call(endpoints.TAKE_TICKET, LeaseRequest(lease=self.lease))).ticket

    async def get_state(self, definition_id: UUID, key: str) -> dict[str, object] | None:
        request = StateRequest(lease=self.lease, definition=definition_id, key=key)
        return (await self._call(endpoints.GET_STATE, request)).state

    async def list_partitions(
        self, generation: UUID, keys: Sequence[str] | None = None
    ) -> dict[str, definition_runs.Partition]:
        request = PartitionsRequest(lease=self.lease, generation=generation, keys=None if keys is None else list(keys))
        partitions = (await self._call(endpoints.LIST_PARTITIONS, request)).partitions
        return {partition.partition_key: partition for partition in partitions}

    async def input_digest(self, generation: UUID) -> str:
        request = GenerationRequest(lease=self.lease, generation=generation)
        return (await self._call(endpoints.GET_DIGEST, request)).digest

    async def publish_table(self, staged: StagedTable, publish: PublishDirectly) -> definition_runs.PublishOutcome:  # noqa: ARG002
        request = PublishRequest(lease=self.lease, **asdict(staged))
        return (await self._call(endpoints.PUBLISH, request)).outcome

    async def emit_updates(self, effects: str, cursor: str) -> None:
        request = EmitRequest(lease=self.lease, cursor=cursor, effects=TaskEffects.model_validate_json(effects))
        await self._call(endpoints.EMIT_EVENTS, request)


class HttpGateway(WorkerGateway):
    """Gateway to a server, which sends the ClickHouse endpoint along with claims."""

    name = "The server"
    check_seconds = 1.0

    def __init__(self, endpoint: ServerEndpoint, *, sends_logs: bool = True) -> None:
        self._endpoint = endpoint
        self.sends_logs = sends_logs

    @property
    def _access(self) -> ClickHouseAccess:
        return worker_api_client(self._endpoint).clickhouse_access

    @property
    def secrets(self) -> Sequence[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        clickhouse = self._access.clickhouse
        secrets = (self._endpoint.key, clickhouse and clickhouse.password, clickhouse and clickhouse.path)
        return [secret for secret in secrets if secret]

    @property
    def addresses(self) -> Collection[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        clickhouse = self._access.clickhouse
        nodes = (clickhouse, *clickhouse.others) if clickhouse else ()
        return [self._endpoint.address, *(node.address for node in nodes)]

    async def connect(self) -> GatewayConnection:
        return HttpGatewayConnection(worker_api_client(self._endpoint))

    def open_attempt(self, claim: Claim) -> AttemptGateway:
        return HttpAttemptGateway(self._endpoint, claim.lease, claim.org_id, claim.job_id)

    async def clickhouse(self, org_id: UUID) -> ClickHouseEndpoint:  # noqa: ARG002  (the org is that of the key)
        access = self._access
        if access.clickhouse is None and access.clickhouse_unreachable:
            raise UnreachableError("The ClickHouse of the server does not answer.", remedy="Check that it runs.").at(
                self._endpoint.address
            )
        if access.clickhouse is None:
            raise UnauthorisedError(
                f"The server gives this worker no access to ClickHouse: {access.no_clickhouse}",
                remedy="The operator of the server has to enable users per organisation; see docs/security.md.",
            )
        return access.clickhouse

    def export_access(self) -> ClickHouseAccess | None:
        return ClickHouseAccess(**dict(self._access))

    def import_access(self, access: ClickHouseAccess | None) -> None:
        if access is not None:
            worker_api_client(self._endpoint).clickhouse_access = access

    async def close(self) -> None:
        await worker_api_client(self._endpoint).close()


def _read_log(path: Path, offset: int) -> bytes:
    """Read up to LOG_CHUNK_BYTES of a file, not ending within a UTF-8 character unless the file does."""
    with path.open("rb") as file:
        file.seek(offset)
        data = file.read(LOG_CHUNK_BYTES)
    for cut in range(1, min(4, len(data)) + 1):
        if data[-cut] < 0x80:
            break
        if data[-cut] >= 0xC0:
            needed = 2 if data[-cut] < 0xE0 else 3 if data[-cut] < 0xF0 else 4
            return data[:-cut] if needed > cut and len(data) > cut else data
    return data
