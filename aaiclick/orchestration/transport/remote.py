"""The queue by a server, for workers that have no database: every call is a request under `/v1/task` or `/v1/worker`.

A server that is away, or a key that it refuses, are errors like those of a lost connection: the worker goes on trying.
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

from aaiclick import faults
from aaiclick.client import AsyncClient
from aaiclick.client.calls import post
from aaiclick.errors import AaiclickError, LeaseLost, UnansweredError, UnauthorisedError, UnreachableError
from aaiclick.orchestration.transport import forms
from aaiclick.orchestration.transport.line import GONE, Line, Registration, Transport, Wish
from aaiclick.store import supervision, tables
from aaiclick.store.leases import Claim, Failure, Lane, Lease, Success, Tally
from aaiclick.store.org_secrets import Secret
from aaiclick.store.plan import Plan
from aaiclick.targets import ClickHouseTarget, ServerTarget

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

WAIT_SECONDS = 25.0
PAUSE_SECONDS = 1.0
LOG_BYTES = 1_000_000
"""Sent at once."""
QUEUES_AT_ONCE = 1_000


COMMITS = {
    "/v1/task/start": "start",
    "/v1/task/add": "add",
    "/v1/task/events": "emit",
    "/v1/worker/keep": "keep_leases",
}
"""Requests by the commit that they ask for, as faults on purpose call it; see `_commit`."""


class Remote:
    """One server, as its workers speak to it."""

    def __init__(self, target: ServerTarget) -> None:
        self._target = target
        self._client = self._connect()
        self._asking: Counter[AsyncClient] = Counter()
        self.clickhouse: ClickHouseTarget | None = None
        self.no_clickhouse = "nothing was claimed yet"
        self.clickhouse_unreachable = False

    def _connect(self) -> AsyncClient:
        return AsyncClient(self._target.url, self._target.key or None)

    async def ask(self, path: str, **body: Any) -> Any:
        return await self.ask_within(None, path, **body)

    async def ask_within(self, seconds: float | None, path: str, **body: Any) -> Any:
        """The same with a time limit of its own."""
        client = self._client
        self._asking[client] += 1
        try:
            async with faults.statement(_commit(path, body)):
                return await client.call(post(path, body), timeout_seconds=seconds)
        except UnreachableError as error:
            if isinstance(error, UnansweredError) and client is self._client:
                self._client = self._connect()  # a network that swallowed this swallows its other connections, too
            raise error.at(self._target.endpoint) from error.__cause__
        finally:
            self._asking[client] -= 1
            if client is not self._client and not self._asking[client]:
                del self._asking[client]
                await client.__aexit__(None, None, None)

    async def exchange(self, seconds: float | None, **body: Any) -> tuple[set[int], list[Claim]]:
        answer = await self.ask_within(seconds, "/v1/task/exchange", **body)
        if answer["tasks"]:
            self.hear(answer)
        return {int(task_id) for task_id in answer["accepted"]}, [forms.claim_of(each) for each in answer["tasks"]]

    def hear(self, told: Mapping[str, Any]) -> None:
        """Where the data is, or why there is none."""
        found = told["clickhouse"]
        self.clickhouse = None if found is None else forms.target_of(found)
        self.no_clickhouse = told["no_clickhouse"] or ""
        self.clickhouse_unreachable = bool(told.get("clickhouse_unreachable"))

    async def add(self, lease: Lease, plan: Plan, names: Mapping[int, str]) -> None:
        """Add to the job of the lease's task."""
        await self.ask("/v1/task/add", lease=forms.lease_form(lease), **forms.plan_form(plan, names))

    async def task_results(self, lease: Lease, task_ids: Sequence[int]) -> dict[int, str | None]:
        """Task id → what it returned, as JSON text; of tasks of the same job."""
        answer = await self.ask(
            "/v1/task/results", lease=forms.lease_form(lease), task_ids=[str(task_id) for task_id in task_ids]
        )
        return {int(each["task_id"]): forms.dumped(each["result"]) for each in answer["results"]}

    async def task_secrets(self, lease: Lease, names: Sequence[str]) -> list[Secret]:
        """Secrets by the names that the lease's task has for them."""
        answer = await self.ask("/v1/task/secrets", lease=forms.lease_form(lease), names=list(names))
        return [Secret(each["name"], each["value"], each["host"]) for each in answer["secrets"]]

    async def group_results(self, lease: Lease, group_id: int) -> list[dict[str, Any]]:
        """What the tasks of a group of the same job returned, as JSON text, in their order."""
        answer = await self.ask("/v1/task/results", lease=forms.lease_form(lease), group_id=str(group_id))
        return [
            {
                "attempt": each["attempt"],
                "result": forms.dumped(each["result"]),
                "started_at": forms.moment(each["started_at"]),
                "completed_at": forms.moment(each["completed_at"]),
            }
            for each in answer["results"]
        ]

    async def close(self) -> None:
        await self._client.__aexit__(None, None, None)


def _commit(path: str, body: Mapping[str, Any]) -> str:
    """What this request asks for: an exchange that tells of attempts ends them, and claims besides."""
    if path == "/v1/task/exchange":
        return "end" if body["completed"] or body["failed"] or body["released"] else "claim"
    return COMMITS.get(path, path)


_remotes: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[ServerTarget, Remote]] = WeakKeyDictionary()


def remote_of(target: ServerTarget) -> Remote:
    """The connections of this event loop to a server; shared by all that speak to it."""
    shared = _remotes.setdefault(asyncio.get_running_loop(), {})
    if target not in shared:
        shared[target] = Remote(target)
    return shared[target]


async def check(target: ServerTarget) -> None:
    """Raise what is wrong with a server or with the key to it."""
    remote = Remote(target)
    try:
        await remote.ask("/v1/task/wait", since="", wait_seconds=0)
    finally:
        await remote.close()


def no_database() -> AaiclickError:
    return AaiclickError(
        "This worker speaks to a server and has no database of its own.",
        remedy="Within a task of such a worker: add tasks to its own job, return values, use Objects.",
    )


class RemoteLine(Line):
    """Asks a server."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self._listening: asyncio.Task[None] | None = None
        self._seconds: float | None = None

    @property
    def connection(self) -> Connection:
        raise no_database()

    @property
    def closed(self) -> bool:
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
    def answering_within(self, seconds: float) -> Generator[None]:
        before, self._seconds = self._seconds, seconds
        try:
            yield
        finally:
            self._seconds = before

    async def _ask(self, path: str, **body: Any) -> Any:
        return await self._remote.ask_within(self._seconds, path, **body)

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
        return await self._remote.exchange(
            self._seconds,
            worker_id=str(worker_id),
            completed=[forms.success_form(each) for each in successes],
            failed=[forms.failure_form(each) for each in failures],
            released=[forms.lease_form(each) for each in releases],
            limit=limit,
            queues=list(queues),
            lease_seconds=lease_seconds,
        )

    async def next_due(self) -> float | None:
        """When something of other organisations is due is not ours to know: we look every second."""
        return None

    async def start(self, leases: Sequence[Lease]) -> None:
        await self._ask("/v1/task/start", leases=[forms.lease_form(each) for each in leases])

    async def count(self, worker_id: int, tallies: Mapping[Lane, Tally]) -> None:
        counted = [{"queue": queue, **asdict(tally)} for (_, queue), tally in tallies.items()]  # all of one org
        for start in range(0, len(counted), QUEUES_AT_ONCE):
            part = counted[start : start + QUEUES_AT_ONCE]
            await self._ask("/v1/worker/count", worker_id=str(worker_id), queues=part)

    async def held(self, worker_id: int) -> list[supervision.Held]:
        answer = await self._ask("/v1/worker/held", worker_id=str(worker_id))
        return [forms.held_of(each) for each in answer["tasks"]]

    async def listen(self, on_ready: Callable[..., None], on_cancel: Callable[..., None]) -> None:
        self._listening = asyncio.create_task(self._listen(on_ready, on_cancel))

    async def _listen(self, on_ready: Callable[..., None], on_cancel: Callable[..., None]) -> None:
        since = ""
        while True:
            try:
                answer = await self._remote.ask("/v1/task/wait", since=since, wait_seconds=WAIT_SECONDS)
            except GONE:
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            if since and answer["ready"]:
                on_ready()
            if since and answer["cancel"]:
                on_cancel()
            since = answer["now"]

    async def send_log(self, lease: Lease, path: Path, offset: int) -> int:
        """A log that cannot be sent costs nobody its outcome."""
        with contextlib.suppress(FileNotFoundError, LeaseLost):
            while part := await asyncio.to_thread(_read, path, offset):
                text = part.decode(errors="replace")
                await self._ask("/v1/task/log", lease=forms.lease_form(lease), offset=offset, text=text)
                offset += len(part)
        return offset

    async def register(self, worker: Registration) -> None:
        await self._ask(
            "/v1/worker/register",
            worker_id=str(worker.worker_id),
            hostname=worker.hostname,
            pid=worker.pid,
            pool_size=worker.pool_size,
            version=worker.version,
            queues=list(worker.queues),
        )

    async def keep_leases(self, worker_ids: Sequence[int], lease_seconds: float) -> None:
        await self._ask("/v1/worker/keep", worker_ids=_texts(worker_ids), lease_seconds=lease_seconds)

    async def overdue(
        self, worker_ids: Sequence[int], grace_seconds: float, default_timeout_seconds: float
    ) -> list[supervision.Overdue]:
        if not worker_ids:
            return []
        answer = await self._ask(
            "/v1/worker/overdue",
            worker_ids=_texts(worker_ids),
            grace_seconds=grace_seconds,
            default_timeout_seconds=default_timeout_seconds,
        )
        return [forms.overdue_of(each) for each in answer["tasks"]]

    async def settle(self, worker_id: int, culprits: Sequence[supervision.Overdue], crashed: str | None) -> None:
        await self._ask(
            "/v1/worker/settle",
            worker_id=str(worker_id),
            culprits=[forms.overdue_form(each) for each in culprits],
            crashed=crashed,
        )

    async def keep_house(self, worker_id: int, term_seconds: float) -> None:
        await self._ask("/v1/worker/house", worker_id=str(worker_id), term_seconds=term_seconds)

    async def draining(self, worker_ids: Sequence[int]) -> list[int]:
        answer = await self._ask("/v1/worker/draining", worker_ids=_texts(worker_ids))
        return [int(each) for each in answer["worker_ids"]]

    async def reserve(self, wishes: Sequence[Wish]) -> list[tables.Held]:
        return await self._tables("reserve", wishes)

    async def hold(self, wishes: Sequence[Wish]) -> list[tables.Held]:
        return await self._tables("hold", wishes)

    async def release(self, wishes: Sequence[Wish]) -> None:
        await self._tables("release", wishes)

    async def _tables(self, deed: str, wishes: Sequence[Wish]) -> list[tables.Held]:
        asked = [{"table": name, "lease": forms.lease_form(lease)} for name, lease in wishes]
        answer = await self._ask("/v1/task/tables", deed=deed, tables=asked)
        return [tables.Held(each["lease_lost"], each["gone"]) for each in answer["tables"]]

    async def name_table(self, table_name: str, name: str, lease: Lease | None) -> None:
        await self._name(table_name, name, lease)

    async def unname_table(self, table_name: str, lease: Lease | None) -> None:
        await self._name(table_name, None, lease)

    async def _name(self, table_name: str, name: str | None, lease: Lease | None) -> None:
        assert lease is not None  # noqa: S101  (a worker's Objects belong to attempts)
        await self._ask("/v1/task/name", lease=forms.lease_form(lease), table=table_name, name=name)


class RemoteTransport(Transport):
    """A server; where the data is comes with the claims."""

    name = "The server"
    check_seconds = 1.0

    def __init__(self, target: ServerTarget, *, sends_logs: bool = True) -> None:
        self._target = target
        self.sends_logs = sends_logs

    @property
    def secrets(self) -> Sequence[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        found = remote_of(self._target).clickhouse
        return [secret for secret in (self._target.key, found and found.password, found and found.path) if secret]

    @property
    def endpoints(self) -> Collection[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        found = remote_of(self._target).clickhouse
        nodes = (found, *found.others) if found else ()
        return [self._target.endpoint, *(node.endpoint for node in nodes)]

    async def open(self) -> Line:
        return RemoteLine(remote_of(self._target))

    async def clickhouse(self, org_id: UUID) -> ClickHouseTarget:  # noqa: ARG002  (the org is that of the key)
        remote = remote_of(self._target)
        if remote.clickhouse is None and remote.clickhouse_unreachable:
            raise UnreachableError(
                "The ClickHouse of the server does not answer.", remedy="Check that it runs, beside the server."
            ).at(self._target.endpoint)
        if remote.clickhouse is None:
            raise UnauthorisedError(
                f"The server gives this worker no access to ClickHouse: {remote.no_clickhouse}",
                remedy="Whoever runs the server has to give organisations users of their own; see docs/security.md.",
            )
        return remote.clickhouse

    def tell(self) -> dict[str, Any]:
        remote = remote_of(self._target)
        found = None if remote.clickhouse is None else forms.target_form(remote.clickhouse)
        return {
            "clickhouse": found,
            "no_clickhouse": remote.no_clickhouse,
            "clickhouse_unreachable": remote.clickhouse_unreachable,
        }

    def hear(self, told: Mapping[str, Any]) -> None:
        remote_of(self._target).hear(told)

    async def close(self) -> None:
        await remote_of(self._target).close()


def _read(path: Path, offset: int) -> bytes:
    """Up to LOG_BYTES of a file, not ending within a character unless the file does."""
    with path.open("rb") as file:
        file.seek(offset)
        data = file.read(LOG_BYTES)
    for cut in range(1, min(4, len(data)) + 1):
        if data[-cut] < 0x80:
            break
        if data[-cut] >= 0xC0:
            needed = 2 if data[-cut] < 0xE0 else 3 if data[-cut] < 0xF0 else 4
            return data[:-cut] if needed > cut and len(data) > cut else data
    return data


def _texts(ids: Sequence[int]) -> list[str]:
    return [str(each) for each in ids]
