"""References to tables, kept in PostgreSQL: what tasks make and read outlives no attempt, and no attempt's end is lost.

`PgLifecycleHandler` takes orders from any thread and writes them from one task over one connection of its own; what
comes in while a statement runs forms the next batch. It drops nothing: `loops.cleanup` does.

- `for_attempt(lease)` gives the handler of one attempt. Its references belong to the attempt: whoever ends the attempt
  (a completion, a failure, the reaper, the end of a process) releases them in the same transaction, and an attempt
  that has lost its lease gets no more. An attempt that touches no table writes nothing.
- Used by itself, as `DataContext(lifecycle=…)` in a script, its references belong to a session, which lives for as long
  as it says so.
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

import asyncpg

from aaiclick.data.errors import ObjectNotFoundError
from aaiclick.data.lifecycle import LifecycleHandler
from aaiclick.errors import AaiclickError, LeaseLost, UnreachableError
from aaiclick.local import postgres_target
from aaiclick.orchestration.transport import DirectTransport, Line, Transport
from aaiclick.orchestration.transport.line import patience
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store import tables
from aaiclick.store.leases import Lease
from aaiclick.targets import PostgresTarget

log = logging.getLogger(__name__)

BEAT_SECONDS = 60.0
PAUSE_SECONDS = 0.2
ANSWER_SECONDS = 15.0
STOP_SECONDS = 10.0
"""How long `stop` goes on trying to reach a PostgreSQL that is away."""

AWAY = (
    UnreachableError,
    OSError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.IdleInTransactionSessionTimeoutError,
)
"""PostgreSQL restarts or is cut off: what was to be written is written later. A driver whose connection was ended in
the middle of a statement may speak of a state of its own (InternalClientError).
"""


class _Kind(Enum):
    RESERVE = auto()
    HOLD = auto()
    RELEASE = auto()
    COUNT = auto()
    NAME = auto()
    UNNAME = auto()


@dataclass(slots=True, eq=False)
class _Order:
    kind: _Kind
    table: str
    lease: Lease | None = None
    change: int = 0
    name: str = ""
    done: Future[None] = field(default_factory=Future[None])


class PgLifecycleHandler(LifecycleHandler):
    """Counts references in PostgreSQL; shared by all tasks of a worker process, or used by itself."""

    def __init__(self, target: PostgresTarget | Transport | None = None) -> None:
        self._transport = DirectTransport(target, None) if isinstance(target, PostgresTarget) else target
        self._session_id = 0
        self._orders: deque[_Order] = deque()
        self._counts: Counter[str] = Counter()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None
        self._line: Line | None = None
        self._stopping = False

    async def start(self) -> None:
        """Begin to write; PostgreSQL is not spoken to before there is something to say."""
        if self._writer is None:
            self._transport = self._transport or DirectTransport(await postgres_target(), None)
            self._stopping = False
            self._loop = asyncio.get_running_loop()
            self._writer = asyncio.create_task(self._write())

    async def stop(self) -> None:
        """Write everything that was asked for, and stop."""
        if self._writer is None:
            return
        self._stopping = True
        self._wake.set()
        await self._writer
        self._writer = None
        if self._line is not None:
            await self._line.close()
            self._line = None

    def for_attempt(self, lease: Lease) -> AttemptTables:
        """The handler of one attempt."""
        return AttemptTables(self, lease)

    # --- counting for a session ---------------------------------------------------------------------------------------

    def incref(self, table_name: str) -> None:
        self.order(_Order(_Kind.COUNT, table_name, change=1))

    def decref(self, table_name: str) -> None:
        self.order(_Order(_Kind.COUNT, table_name, change=-1))

    async def reserve(self, table_name: str) -> None:
        try:
            await self.carry_out(_Order(_Kind.COUNT, table_name, change=1))
        except asyncio.CancelledError:
            self.decref(table_name)
            raise

    async def hold(self, table_name: str) -> None:
        await self.reserve(table_name)

    async def name(self, table_name: str, name: str) -> None:
        await self.carry_out(_Order(_Kind.NAME, table_name, name=name))

    async def unname(self, table_name: str, name: str) -> None:
        await self.carry_out(_Order(_Kind.UNNAME, table_name, name=name))

    # --- orders -------------------------------------------------------------------------------------------------------

    def order(self, order: _Order) -> None:
        """Have something written, soon; from any thread."""
        self._orders.append(order)
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody writes any more
                self._loop.call_soon_threadsafe(self._wake.set)

    async def carry_out(self, order: _Order) -> None:
        """Have something written, and return when it is."""
        if self._writer is None:
            raise AaiclickError("This PgLifecycleHandler is not started.", remedy="Await its start() first.")
        self.order(order)
        await asyncio.wrap_future(order.done)

    async def _write(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), BEAT_SECONDS if self._counts else None)
            beat = not self._wake.is_set()
            self._wake.clear()
            orders = [self._orders.popleft() for _ in range(len(self._orders))]
            self._count(orders)
            if orders or beat:
                await self._insist(orders)
            if self._stopping and not self._orders:
                return

    def _count(self, orders: list[_Order]) -> None:
        for order in orders:
            if order.kind is _Kind.COUNT:
                self._counts[order.table] += order.change

    async def _insist(self, orders: list[_Order]) -> None:
        """Every order can be carried out twice, so an answer lost on the way does no harm."""
        waited, failures = 0.0, 0
        while True:
            try:
                assert self._transport is not None  # noqa: S101
                if self._line is None or self._line.closed:
                    self._line = await self._transport.open()
                with self._line.answering_within(patience(ANSWER_SECONDS, failures)):
                    await self._carry_out(self._line, orders)
            except AWAY as error:
                failures += 1
                if self._line is not None:
                    self._line.terminate()
                    self._line = None
                if self._stopping and waited >= STOP_SECONDS:
                    self._fail(orders, error)
                    return
                waited += PAUSE_SECONDS
                await asyncio.sleep(PAUSE_SECONDS)
            except Exception as error:  # noqa: BLE001  (told to who waits for it; the writer goes on)
                self._fail(orders, error)
                return
            else:
                return

    def _fail(self, orders: list[_Order], error: Exception) -> None:
        log.warning("%s orders about tables were not carried out: %s", len(orders), error)
        for order in orders:
            _settle(order, error)

    async def _carry_out(self, line: Line, orders: list[_Order]) -> None:
        by_kind: dict[_Kind, list[_Order]] = {}
        for order in orders:
            by_kind.setdefault(order.kind, []).append(order)
        if released := by_kind.get(_Kind.RELEASE):
            await line.release(_wishes(released))
        for kind, act in ((_Kind.RESERVE, line.reserve), (_Kind.HOLD, line.hold)):
            if wanted := by_kind.get(kind):
                for order, held in zip(wanted, await act(_wishes(wanted)), strict=True):
                    _settle(order, _refusal(order, held))
        for order in by_kind.get(_Kind.NAME, ()):
            await line.name_table(order.table, order.name, order.lease)
        for order in by_kind.get(_Kind.UNNAME, ()):
            await line.unname_table(order.table, order.lease)
        await self._carry_out_counts(line, by_kind.get(_Kind.COUNT, []))
        for order in orders:
            _settle(order)

    async def _carry_out_counts(self, line: Line, orders: list[_Order]) -> None:
        if not orders:
            if self._counts:
                await tables.beat_session(line.connection, self._session)
            return
        counts = {order.table: self._counts[order.table] for order in orders}
        gone = await tables.count_session(line.connection, self._session, counts)
        for name, count in counts.items():
            if count <= 0 or name in gone:
                del self._counts[name]
        for order in orders:
            if order.table in gone and order.change > 0:
                _settle(order, _gone(order.table))

    @property
    def _session(self) -> int:
        self._session_id = self._session_id or get_snowflake_id()
        return self._session_id


class AttemptTables(LifecycleHandler):
    """What one attempt makes and reads. Counts here; PostgreSQL hears of the first reference and of the last.

    `granted` tables (the attempt's arguments) are held by its task or job for longer than the attempt can last.
    """

    def __init__(self, writer: PgLifecycleHandler, lease: Lease) -> None:
        self._writer = writer
        self._lease = lease
        self._counts: Counter[str] | None = None
        self._lock: threading.RLock | None = None
        self._sealed = False
        self.granted: Collection[str] = ()
        self.used = False
        """Whether PostgreSQL has heard of this attempt: then its end must be told the longer way."""

    async def start(self) -> None:
        """The writer is started by whoever made it."""

    async def stop(self) -> None:
        """The writer is stopped by whoever made it."""

    def seal(self) -> None:
        """The function has ended: the outcome releases everything, so nothing is let go before. What is still made or
        read (its value may become a table) is held as ever.
        """
        self._sealed = True

    async def reserve(self, table_name: str) -> None:
        self._change(table_name, 1)
        self.used = True
        await self._writer.carry_out(_Order(_Kind.RESERVE, table_name, self._lease))

    async def hold(self, table_name: str) -> None:
        if self._change(table_name, 1) > 1 or table_name in self.granted:
            return
        self.used = True
        await self._writer.carry_out(_Order(_Kind.HOLD, table_name, self._lease))

    def incref(self, table_name: str) -> None:
        if self._change(table_name, 1) == 1 and table_name not in self.granted and not self._sealed:
            self.used = True
            self._writer.order(_Order(_Kind.HOLD, table_name, self._lease))

    def decref(self, table_name: str) -> None:
        if self._change(table_name, -1) <= 0 and table_name not in self.granted and not self._sealed:
            self._writer.order(_Order(_Kind.RELEASE, table_name, self._lease))

    async def name(self, table_name: str, name: str) -> None:
        await self._writer.carry_out(_Order(_Kind.NAME, table_name, self._lease, name=name))

    async def unname(self, table_name: str, name: str) -> None:
        await self._writer.carry_out(_Order(_Kind.UNNAME, table_name, self._lease, name=name))

    def _change(self, table_name: str, change: int) -> int:
        # Reentrant: a destructor may run while this very thread is in here.
        if self._lock is None:
            self._lock = threading.RLock()
        with self._lock:
            if self._counts is None:
                self._counts = Counter()
            self._counts[table_name] += change
            return self._counts[table_name]


def _wishes(orders: list[_Order]) -> list[tuple[str, Lease]]:
    return [(order.table, order.lease) for order in orders if order.lease is not None]


def _settle(order: _Order, error: Exception | None = None) -> None:
    with contextlib.suppress(InvalidStateError):  # settled before, or nobody waits for it any more
        if error is None:
            order.done.set_result(None)
        else:
            order.done.set_exception(error)


def _refusal(order: _Order, held: tables.Held) -> Exception | None:
    assert order.lease is not None  # noqa: S101
    if held.lease_lost:
        return LeaseLost(
            f"Attempt {order.lease.attempt} of task {order.lease.task_id} has lost its lease and can hold no tables.",
            remedy="Stop: another attempt is at work or has finished.",
        )
    return _gone(order.table) if held.gone else None


def _gone(table_name: str) -> ObjectNotFoundError:
    return ObjectNotFoundError(
        f"The Object in table {table_name} was released and is dropped, or was never known here.",
        remedy="Make it again; a job holds its results while it runs, final ones while it is retained.",
    )
