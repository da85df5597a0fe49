"""Reference counting of tables in PostgreSQL.

`PgLifecycleHandler` accepts operations from any thread and writes them in batches from one asyncio task over its own
connection. It drops no tables: `loops.cleanup` does.

- `for_attempt(lease)` returns the handler of one attempt. Its references belong to the attempt: they are released in
  the transaction that ends it (completion, failure, reaper, end of a process), and an attempt that has lost its lease
  gets no more. An attempt that uses no table writes nothing.
- Used as `DataContext(lifecycle=…)` in a script, its references belong to a session, which expires without heartbeats.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import Counter, deque
from collections.abc import Collection
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from enum import Enum, auto

from aaiclick.data.errors import ObjectNotFoundError
from aaiclick.data.runtime.lifecycle import LifecycleHandler
from aaiclick.errors import AaiclickError, LeaseLost
from aaiclick.local import postgres_endpoint
from aaiclick.orchestration.gateway import GatewayConnection, PostgresGateway, WorkerGateway
from aaiclick.orchestration.gateway.base import backoff_timeout
from aaiclick.server_addresses import PostgresEndpoint
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.engine.leases_and_outcomes import Lease
from aaiclick.store.postgres_connections import OUTAGE_ERRORS
from aaiclick.store.tables import table_references

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 60.0
PAUSE_SECONDS = 0.2
ANSWER_SECONDS = 15.0
STOP_SECONDS = 10.0
"""How long `stop` retries while PostgreSQL is unreachable."""


class _Action(Enum):
    RESERVE = auto()
    HOLD = auto()
    RELEASE = auto()
    COUNT = auto()
    NAME = auto()
    UNNAME = auto()


@dataclass(slots=True, eq=False)
class _TableOperation:
    action: _Action
    table: str
    lease: Lease | None = None
    change: int = 0
    name: str = ""
    done: Future[None] = field(default_factory=Future[None])


class PgLifecycleHandler(LifecycleHandler):
    """Counts references in PostgreSQL; shared by all tasks of a worker process, or used by itself."""

    def __init__(self, endpoint: PostgresEndpoint | WorkerGateway | None = None) -> None:
        self._gateway = PostgresGateway(endpoint, None) if isinstance(endpoint, PostgresEndpoint) else endpoint
        self._session_id = 0
        self._operations: deque[_TableOperation] = deque()
        self._counts: Counter[str] = Counter()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None
        self._connection: GatewayConnection | None = None
        self._stopping = False

    async def start(self) -> None:
        """Start the writer; it connects when the first operation is submitted."""
        if self._writer is None:
            self._gateway = self._gateway or PostgresGateway(await postgres_endpoint(), None)
            self._stopping = False
            self._loop = asyncio.get_running_loop()
            self._writer = asyncio.create_task(self._write_forever())

    async def stop(self) -> None:
        """Write all submitted operations, and stop."""
        if self._writer is None:
            return
        self._stopping = True
        self._wake.set()
        await self._writer
        self._writer = None
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    def for_attempt(self, lease: Lease) -> AttemptTables:
        """The handler of one attempt."""
        return AttemptTables(self, lease)

    # --- counting for a session ---------------------------------------------------------------------------------------

    def incref(self, table_name: str) -> None:
        self.submit(_TableOperation(_Action.COUNT, table_name, change=1))

    def decref(self, table_name: str) -> None:
        self.submit(_TableOperation(_Action.COUNT, table_name, change=-1))

    async def reserve(self, table_name: str) -> None:
        try:
            await self.submit_and_wait(_TableOperation(_Action.COUNT, table_name, change=1))
        except asyncio.CancelledError:
            self.decref(table_name)
            raise

    async def hold(self, table_name: str) -> None:
        await self.reserve(table_name)

    async def name_table(self, table_name: str, name: str) -> None:
        await self.submit_and_wait(_TableOperation(_Action.NAME, table_name, name=name))

    async def unname_table(self, table_name: str, name: str) -> None:
        await self.submit_and_wait(_TableOperation(_Action.UNNAME, table_name, name=name))

    # --- operations ---------------------------------------------------------------------------------------------------

    def submit(self, operation: _TableOperation) -> None:
        """Submit an operation without waiting for it; thread-safe."""
        self._operations.append(operation)
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._wake.set)

    async def submit_and_wait(self, operation: _TableOperation) -> None:
        """Submit an operation and wait until it is written."""
        if self._writer is None:
            raise AaiclickError("This PgLifecycleHandler is not started.", remedy="Await its start() first.")
        self.submit(operation)
        await asyncio.wrap_future(operation.done)

    async def _write_forever(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), HEARTBEAT_SECONDS if self._counts else None)
            is_heartbeat = not self._wake.is_set()
            self._wake.clear()
            operations = [self._operations.popleft() for _ in range(len(self._operations))]
            self._add_counts(operations)
            if operations or is_heartbeat:
                await self._write_with_retry(operations)
            if self._stopping and not self._operations:
                return

    def _add_counts(self, operations: list[_TableOperation]) -> None:
        for operation in operations:
            if operation.action is _Action.COUNT:
                self._counts[operation.table] += operation.change

    async def _write_with_retry(self, operations: list[_TableOperation]) -> None:
        """Write operations, and reconnect and repeat them after an outage; all are idempotent."""
        waited, failures = 0.0, 0
        while True:
            try:
                assert self._gateway is not None  # noqa: S101
                if self._connection is None or self._connection.is_closed:
                    self._connection = await self._gateway.connect()
                with self._connection.response_deadline(backoff_timeout(ANSWER_SECONDS, failures)):
                    await self._execute_batch(self._connection, operations)
            except OUTAGE_ERRORS as error:
                failures += 1
                if self._connection is not None:
                    self._connection.terminate()
                    self._connection = None
                if self._stopping and waited >= STOP_SECONDS:
                    self._fail_operations(operations, error)
                    return
                waited += PAUSE_SECONDS
                await asyncio.sleep(PAUSE_SECONDS)
            except Exception as error:  # noqa: BLE001  (waiters receive it; the writer continues)
                self._fail_operations(operations, error)
                return
            else:
                return

    def _fail_operations(self, operations: list[_TableOperation], error: Exception) -> None:
        log.warning("%s operations on table references failed: %s", len(operations), error)
        for operation in operations:
            _resolve_operation(operation, error)

    async def _execute_batch(self, connection: GatewayConnection, operations: list[_TableOperation]) -> None:
        by_action: dict[_Action, list[_TableOperation]] = {}
        for operation in operations:
            by_action.setdefault(operation.action, []).append(operation)
        if released := by_action.get(_Action.RELEASE):
            await connection.release_tables(_table_requests(released))
        for action, request_tables in (
            (_Action.RESERVE, connection.reserve_tables),
            (_Action.HOLD, connection.hold_tables),
        ):
            if requested := by_action.get(action):
                for operation, held in zip(requested, await request_tables(_table_requests(requested)), strict=True):
                    _resolve_operation(operation, _hold_error(operation, held))
        for operation in by_action.get(_Action.NAME, ()):
            await connection.name_table(operation.table, operation.name, operation.lease)
        for operation in by_action.get(_Action.UNNAME, ()):
            await connection.unname_table(operation.table, operation.lease)
        await self._execute_counts(connection, by_action.get(_Action.COUNT, []))
        for operation in operations:
            _resolve_operation(operation)

    async def _execute_counts(self, connection: GatewayConnection, operations: list[_TableOperation]) -> None:
        if not operations:
            if self._counts:
                await table_references.renew_session(connection.postgres, self._session)
            return
        counts = {operation.table: self._counts[operation.table] for operation in operations}
        dropped = await table_references.set_session_references(connection.postgres, self._session, counts)
        for name, count in counts.items():
            if count <= 0 or name in dropped:
                del self._counts[name]
        for operation in operations:
            if operation.table in dropped and operation.change > 0:
                _resolve_operation(operation, _dropped_error(operation.table))

    @property
    def _session(self) -> int:
        self._session_id = self._session_id or get_snowflake_id()
        return self._session_id


class AttemptTables(LifecycleHandler):
    """Handler of one attempt. Counts locally; only the first and the last reference are written to PostgreSQL.

    `granted` tables (the attempt's arguments) are held by its task or job for longer than the attempt.
    """

    # Defaults of the class: most attempts use no table, and one is created for each.
    _counts: Counter[str] | None = None
    _lock: threading.RLock | None = None
    _sealed = False
    granted: Collection[str] = ()
    has_references = False
    """Whether PostgreSQL has references of this attempt: then its outcome must release them."""

    def __init__(self, writer: PgLifecycleHandler, lease: Lease) -> None:
        self._writer = writer
        self._lease = lease

    async def start(self) -> None:
        """No-op: the owner of the writer starts it."""

    async def stop(self) -> None:
        """No-op: the owner of the writer stops it."""

    def seal(self) -> None:
        """Stop releasing references, since the outcome releases them all.

        New ones are still written, because the returned value may become a table.
        """
        self._sealed = True

    async def reserve(self, table_name: str) -> None:
        self._change_count(table_name, 1)
        self.has_references = True
        await self._writer.submit_and_wait(_TableOperation(_Action.RESERVE, table_name, self._lease))

    async def hold(self, table_name: str) -> None:
        if self._change_count(table_name, 1) > 1 or table_name in self.granted:
            return
        self.has_references = True
        await self._writer.submit_and_wait(_TableOperation(_Action.HOLD, table_name, self._lease))

    def incref(self, table_name: str) -> None:
        if self._change_count(table_name, 1) == 1 and table_name not in self.granted and not self._sealed:
            self.has_references = True
            self._writer.submit(_TableOperation(_Action.HOLD, table_name, self._lease))

    def decref(self, table_name: str) -> None:
        if self._change_count(table_name, -1) <= 0 and table_name not in self.granted and not self._sealed:
            self._writer.submit(_TableOperation(_Action.RELEASE, table_name, self._lease))

    async def name_table(self, table_name: str, name: str) -> None:
        await self._writer.submit_and_wait(_TableOperation(_Action.NAME, table_name, self._lease, name=name))

    async def unname_table(self, table_name: str, name: str) -> None:
        await self._writer.submit_and_wait(_TableOperation(_Action.UNNAME, table_name, self._lease, name=name))

    def _change_count(self, table_name: str, change: int) -> int:
        # Reentrant: a destructor may run while this very thread is in here.
        if self._lock is None:
            self._lock = threading.RLock()
        with self._lock:
            if self._counts is None:
                self._counts = Counter()
            self._counts[table_name] += change
            return self._counts[table_name]


def _table_requests(operations: list[_TableOperation]) -> list[tuple[str, Lease]]:
    return [(operation.table, operation.lease) for operation in operations if operation.lease is not None]


def _resolve_operation(operation: _TableOperation, error: Exception | None = None) -> None:
    with contextlib.suppress(InvalidStateError):  # resolved before, or its waiter was cancelled
        if error is None:
            operation.done.set_result(None)
        else:
            operation.done.set_exception(error)


def _hold_error(operation: _TableOperation, held: table_references.TableReferenceResult) -> Exception | None:
    assert operation.lease is not None  # noqa: S101
    if held.lease_lost:
        return LeaseLost(
            f"Attempt {operation.lease.attempt} of task {operation.lease.task_id} has lost its lease and can hold no "
            "tables.",
            remedy="Stop: another attempt is running or has finished.",
        )
    return _dropped_error(operation.table) if held.is_unknown else None


def _dropped_error(table_name: str) -> ObjectNotFoundError:
    return ObjectNotFoundError(
        f"The Object in table {table_name} was released and is dropped, or was never known here.",
        remedy="Create it again. A job keeps intermediate results while it runs, final ones while it is retained.",
    )
