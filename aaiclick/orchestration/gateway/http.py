"""HTTP gateway, for workers without a database: every call is a request under `/v1/worker-api`.

An unreachable server or a rejected key raises the same errors as a lost connection: the worker keeps retrying.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID
from weakref import WeakKeyDictionary

from aaiclick import failpoints
from aaiclick.api.worker_protocol import endpoints
from aaiclick.client import AsyncClient
from aaiclick.client.requests import post
from aaiclick.endpoints import ClickHouseEndpoint, ServerEndpoint
from aaiclick.errors import AaiclickError, LeaseLost, UnansweredError, UnauthorisedError, UnreachableError
from aaiclick.orchestration.gateway import codecs
from aaiclick.orchestration.gateway.base import (
    CONNECTION_ERRORS,
    GatewayConnection,
    Registration,
    TableRequest,
    WorkerGateway,
)
from aaiclick.store.engine import worker_leases
from aaiclick.store.engine.leases import Claim, Failure, Lease, OrgQueue, OutcomeCounts, Success
from aaiclick.store.engine.plan import Plan
from aaiclick.store.tables import table_references
from aaiclick.store.tenancy.secrets import Secret

if TYPE_CHECKING:
    from aaiclick.store.connections import Connection

WAIT_SECONDS = 25.0
PAUSE_SECONDS = 1.0
LOG_CHUNK_BYTES = 1_000_000
"""Size of one log request."""
QUEUES_PER_REQUEST = 1_000


FAILPOINTS = {
    endpoints.START.path: "start",
    endpoints.ADD_TASKS.path: "add",
    endpoints.EMIT_EVENTS.path: "emit",
    endpoints.RENEW_LEASES.path: "extend_worker_leases",
}
"""Failpoint of each request path; see `_failpoint_of`."""


class WorkerApiClient:
    """HTTP client of the worker API, shared by all connections of an event loop to one server."""

    def __init__(self, endpoint: ServerEndpoint) -> None:
        self._endpoint = endpoint
        self._client = self._make_client()
        self._open_requests: Counter[AsyncClient] = Counter()
        self.clickhouse: ClickHouseEndpoint | None = None
        self.no_clickhouse = "nothing was claimed yet"
        self.clickhouse_unreachable = False

    def _make_client(self) -> AsyncClient:
        return AsyncClient(self._endpoint.url, self._endpoint.key or None)

    async def request(self, path: str, **body: object) -> Any:
        return await self.request_within(None, path, **body)

    async def request_within(self, seconds: float | None, path: str, **body: object) -> Any:
        """Send a request with its own timeout."""
        client = self._client
        self._open_requests[client] += 1
        try:
            async with failpoints.statement(_failpoint_of(path, body)):
                return await client.call(post(path, body), timeout_seconds=seconds)
        except UnreachableError as error:
            if isinstance(error, UnansweredError) and client is self._client:
                self._client = self._make_client()  # other connections of the pool are likely lost as well
            raise error.at(self._endpoint.address) from error.__cause__
        finally:
            self._open_requests[client] -= 1
            if client is not self._client and not self._open_requests[client]:
                del self._open_requests[client]
                await client.__aexit__(None, None, None)

    async def acknowledge_and_claim(self, seconds: float | None, **body: object) -> tuple[set[int], list[Claim]]:
        answer = await self.request_within(seconds, endpoints.EXCHANGE.path, **body)
        if answer["tasks"]:
            self.set_clickhouse(answer)
        claims = [codecs.decode_claim(task) for task in answer["tasks"]]
        return {int(task_id) for task_id in answer["accepted"]}, claims

    def set_clickhouse(self, state: Mapping[str, Any]) -> None:
        """Set the ClickHouse endpoint, or the reason why there is none."""
        target = state["clickhouse"]
        self.clickhouse = None if target is None else codecs.decode_endpoint(target)
        self.no_clickhouse = state["no_clickhouse"] or ""
        self.clickhouse_unreachable = bool(state.get("clickhouse_unreachable"))

    async def add_tasks(self, lease: Lease, plan: Plan, names: Mapping[int, str]) -> None:
        """Add tasks to the job of the lease's task."""
        await self.request(
            endpoints.ADD_TASKS.path, lease=codecs.encode_lease(lease), **codecs.encode_plan(plan, names)
        )

    async def task_results(self, lease: Lease, task_ids: Sequence[int]) -> dict[int, str | None]:
        """Results of tasks of the same job, as JSON text by task id."""
        answer = await self.request(
            endpoints.GET_RESULTS.path,
            lease=codecs.encode_lease(lease),
            task_ids=[str(task_id) for task_id in task_ids],
        )
        return {int(task["task_id"]): codecs.to_json_text(task["result"]) for task in answer["results"]}

    async def task_secrets(self, lease: Lease, names: Sequence[str]) -> list[Secret]:
        """Secrets by the names that the task's definition declares."""
        answer = await self.request(endpoints.READ_SECRETS.path, lease=codecs.encode_lease(lease), names=list(names))
        return [Secret(secret["name"], secret["value"], secret["host"]) for secret in answer["secrets"]]

    async def group_results(self, lease: Lease, group_id: int) -> list[dict[str, Any]]:
        """Results of the tasks of a group in the same job, as JSON text, ordered by task id."""
        answer = await self.request(
            endpoints.GET_RESULTS.path, lease=codecs.encode_lease(lease), group_id=str(group_id)
        )
        return [
            {
                "attempt": task["attempt"],
                "result": codecs.to_json_text(task["result"]),
                "started_at": codecs.decode_time(task["started_at"]),
                "completed_at": codecs.decode_time(task["completed_at"]),
            }
            for task in answer["results"]
        ]

    async def close(self) -> None:
        await self._client.__aexit__(None, None, None)


def _failpoint_of(path: str, body: Mapping[str, object]) -> str:
    """Name of the failpoint of a request; an exchange with outcomes passes `end`, one without `claim`."""
    if path == endpoints.EXCHANGE.path:
        return "end" if body["completed"] or body["failed"] or body["released"] else "claim"
    return FAILPOINTS.get(path, path)


_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[ServerEndpoint, WorkerApiClient]] = WeakKeyDictionary()


def worker_api_client(endpoint: ServerEndpoint) -> WorkerApiClient:
    """The client of this event loop for a server."""
    clients = _clients.setdefault(asyncio.get_running_loop(), {})
    if endpoint not in clients:
        clients[endpoint] = WorkerApiClient(endpoint)
    return clients[endpoint]


async def check_server(endpoint: ServerEndpoint) -> None:
    """Raise an error if the server is unreachable or rejects the key."""
    client = WorkerApiClient(endpoint)
    try:
        await client.request(endpoints.WAIT.path, since="", wait_seconds=0)
    finally:
        await client.close()


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

    async def _request(self, path: str, **body: object) -> Any:
        return await self._client.request_within(self._timeout_seconds, path, **body)

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
    ) -> tuple[set[int], Sequence[Claim]]:
        return await self._client.acknowledge_and_claim(
            self._timeout_seconds,
            worker_id=str(worker_id),
            completed=[codecs.encode_success(success) for success in successes],
            failed=[codecs.encode_failure(failure) for failure in failures],
            released=[codecs.encode_lease(lease) for lease in releases],
            limit=limit,
            queues=list(queues),
            lease_seconds=lease_seconds,
        )

    async def seconds_to_next_due(self) -> float | None:
        """Unknown: due times of other organisations are not disclosed, so the worker polls every second."""
        return None

    async def mark_running(self, leases: Sequence[Lease]) -> None:
        await self._request(endpoints.START.path, leases=[codecs.encode_lease(lease) for lease in leases])

    async def add_counts(self, worker_id: int, tallies: Mapping[OrgQueue, OutcomeCounts]) -> None:
        queues = [{"queue": queue, **asdict(tally)} for (_, queue), tally in tallies.items()]  # all of one org
        for start in range(0, len(queues), QUEUES_PER_REQUEST):
            part = queues[start : start + QUEUES_PER_REQUEST]
            await self._request(endpoints.ADD_COUNTS.path, worker_id=str(worker_id), queues=part)

    async def held_leases(self, worker_id: int) -> list[worker_leases.HeldLease]:
        answer = await self._request(endpoints.LIST_HELD_TASKS.path, worker_id=str(worker_id))
        return [codecs.decode_held(task) for task in answer["tasks"]]

    async def listen(self, on_ready: Callable[..., None], on_cancel: Callable[..., None]) -> None:
        self._listening = asyncio.create_task(self._poll_notifications(on_ready, on_cancel))

    async def _poll_notifications(self, on_ready: Callable[..., None], on_cancel: Callable[..., None]) -> None:
        since = ""
        while True:
            try:
                answer = await self._client.request(endpoints.WAIT.path, since=since, wait_seconds=WAIT_SECONDS)
            except CONNECTION_ERRORS:
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            if since and answer["ready"]:
                on_ready()
            if since and answer["cancel"]:
                on_cancel()
            since = answer["now"]

    async def send_log(self, lease: Lease, path: Path, offset: int) -> int:
        """Send the log; a log that cannot be sent does not change the outcome."""
        with contextlib.suppress(FileNotFoundError, LeaseLost):
            while part := await asyncio.to_thread(_read_log, path, offset):
                text = part.decode(errors="replace")
                await self._request(
                    endpoints.WRITE_LOG.path, lease=codecs.encode_lease(lease), offset=offset, text=text
                )
                offset += len(part)
        return offset

    async def register_worker(self, worker: Registration) -> None:
        await self._request(
            endpoints.REGISTER_WORKER.path,
            worker_id=str(worker.worker_id),
            hostname=worker.hostname,
            pid=worker.pid,
            pool_size=worker.pool_size,
            version=worker.version,
            queues=list(worker.queues),
        )

    async def renew_leases(self, worker_ids: Sequence[int], lease_seconds: float) -> None:
        await self._request(
            endpoints.RENEW_LEASES.path, worker_ids=_ids_to_text(worker_ids), lease_seconds=lease_seconds
        )

    async def overdue_tasks(
        self, worker_ids: Sequence[int], grace_seconds: float, default_timeout_seconds: float
    ) -> list[worker_leases.OverdueTask]:
        if not worker_ids:
            return []
        answer = await self._request(
            endpoints.LIST_OVERDUE_TASKS.path,
            worker_ids=_ids_to_text(worker_ids),
            grace_seconds=grace_seconds,
            default_timeout_seconds=default_timeout_seconds,
        )
        return [codecs.decode_overdue(task) for task in answer["tasks"]]

    async def finish_worker(
        self, worker_id: int, overdue: Sequence[worker_leases.OverdueTask], crash: str | None
    ) -> None:
        await self._request(
            endpoints.SETTLE_WORKER.path,
            worker_id=str(worker_id),
            overdue=[codecs.encode_overdue(task) for task in overdue],
            crash=crash,
        )

    async def run_leader_loops(self, worker_id: int, term_seconds: float) -> None:
        await self._request(endpoints.RUN_LOOPS.path, worker_id=str(worker_id), term_seconds=term_seconds)

    async def draining_workers(self, worker_ids: Sequence[int]) -> list[int]:
        answer = await self._request(endpoints.LIST_DRAINING_WORKERS.path, worker_ids=_ids_to_text(worker_ids))
        return [int(worker_id) for worker_id in answer["worker_ids"]]

    async def reserve_tables(self, requests: Sequence[TableRequest]) -> list[table_references.TableReferenceResult]:
        return await self._request_tables("reserve", requests)

    async def hold_tables(self, requests: Sequence[TableRequest]) -> list[table_references.TableReferenceResult]:
        return await self._request_tables("hold", requests)

    async def release_tables(self, requests: Sequence[TableRequest]) -> None:
        await self._request_tables("release", requests)

    async def _request_tables(
        self, action: str, wishes: Sequence[TableRequest]
    ) -> list[table_references.TableReferenceResult]:
        tables = [{"table": name, "lease": codecs.encode_lease(lease)} for name, lease in wishes]
        answer = await self._request(endpoints.UPDATE_TABLES.path, action=action, tables=tables)
        return [
            table_references.TableReferenceResult(each["lease_lost"], each["is_unknown"]) for each in answer["tables"]
        ]

    async def name_table(self, table_name: str, name: str, lease: Lease | None) -> None:
        await self._set_table_name(table_name, name, lease)

    async def unname_table(self, table_name: str, lease: Lease | None) -> None:
        await self._set_table_name(table_name, None, lease)

    async def _set_table_name(self, table_name: str, name: str | None, lease: Lease | None) -> None:
        assert lease is not None  # noqa: S101  (a worker's Objects belong to attempts)
        await self._request(endpoints.NAME_TABLE.path, lease=codecs.encode_lease(lease), table=table_name, name=name)


class HttpGateway(WorkerGateway):
    """Gateway to a server, which sends the ClickHouse endpoint along with claims."""

    name = "The server"
    check_seconds = 1.0

    def __init__(self, endpoint: ServerEndpoint, *, sends_logs: bool = True) -> None:
        self._endpoint = endpoint
        self.sends_logs = sends_logs

    @property
    def secrets(self) -> Sequence[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        clickhouse = worker_api_client(self._endpoint).clickhouse
        return [
            secret
            for secret in (self._endpoint.key, clickhouse and clickhouse.password, clickhouse and clickhouse.path)
            if secret
        ]

    @property
    def addresses(self) -> Collection[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        clickhouse = worker_api_client(self._endpoint).clickhouse
        nodes = (clickhouse, *clickhouse.others) if clickhouse else ()
        return [self._endpoint.address, *(node.address for node in nodes)]

    async def connect(self) -> GatewayConnection:
        return HttpGatewayConnection(worker_api_client(self._endpoint))

    async def clickhouse(self, org_id: UUID) -> ClickHouseEndpoint:  # noqa: ARG002  (the org is that of the key)
        client = worker_api_client(self._endpoint)
        if client.clickhouse is None and client.clickhouse_unreachable:
            raise UnreachableError("The ClickHouse of the server does not answer.", remedy="Check that it runs.").at(
                self._endpoint.address
            )
        if client.clickhouse is None:
            raise UnauthorisedError(
                f"The server gives this worker no access to ClickHouse: {client.no_clickhouse}",
                remedy="The operator of the server has to enable users per organisation; see docs/security.md.",
            )
        return client.clickhouse

    def export_state(self) -> dict[str, object]:
        client = worker_api_client(self._endpoint)
        clickhouse = None if client.clickhouse is None else codecs.encode_endpoint(client.clickhouse)
        return {
            "clickhouse": clickhouse,
            "no_clickhouse": client.no_clickhouse,
            "clickhouse_unreachable": client.clickhouse_unreachable,
        }

    def import_state(self, state: Mapping[str, object]) -> None:
        worker_api_client(self._endpoint).set_clickhouse(state)

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


def _ids_to_text(ids: Sequence[int]) -> list[str]:
    return [str(number) for number in ids]
