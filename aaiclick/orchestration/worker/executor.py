"""One task, from its claim to its outcome: find the function, bind its arguments, run it, turn its value into a
result.

Whatever the task does, exactly one outcome comes out, and nothing else: no exception leaves `execute`. An
asynchronous function runs on the loop, an ordinary one in a thread. A task that must end is first told (cancelled,
or an exception raised in its thread); ending code that does not listen is the supervisor's work, since only the end
of a process does it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import inspect
import json
import os
import socket
import threading
import time
import traceback
from collections.abc import AsyncIterable, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from aaiclick.data import DataContext, Object, View, create_object_from_value, is_reference, open_reference
from aaiclick.data.client import connect, is_connected
from aaiclick.data.context import set_unavailable
from aaiclick.data.errors import ConversionError, ObjectNotFoundError
from aaiclick.data.forms import annotations_of, given_as
from aaiclick.data.values import Whole
from aaiclick.errors import AaiclickError, EntrypointError, UnauthorisedError, UnreachableError
from aaiclick.orchestration.arguments import found_in, is_plain, serialise_value
from aaiclick.orchestration.context import get_current_context
from aaiclick.orchestration.graph import Task
from aaiclick.orchestration.lifecycle import AttemptTables, PgLifecycleHandler
from aaiclick.orchestration.redaction import MASK
from aaiclick.orchestration.retry import PermanentError, RetryPolicy, fingerprint, is_permanent
from aaiclick.orchestration.scope import Record, TaskScope, enter_scope
from aaiclick.orchestration.sharing import MARK
from aaiclick.orchestration.transport import Transport
from aaiclick.orchestration.worker.entrypoints import Entrypoints
from aaiclick.orchestration.worker.log_shipping import spool_path
from aaiclick.orchestration.worker.logs import TaskLog, set_log
from aaiclick.orchestration.worker.outages import RELEASE_SECONDS, find_outage, publish_pauses
from aaiclick.orchestration.worker.witness import Witness
from aaiclick.store.leases import Claim, Failure, Lease, Success
from aaiclick.store.references import resolve, results_needed, tables_in
from aaiclick.targets import ClickHouseTarget, WorkTarget

ERROR_CHARACTERS = 20_000


class Ending(Enum):
    """Why a task is ended before it has finished by itself."""

    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    LOST = "lease lost"
    RELEASED = "released"


class TaskEnded(BaseException):
    """Raised in a thread whose task must end."""


@dataclass(slots=True)
class Running:
    """A task that this process holds: claimed, perhaps begun."""

    claim: Claim
    log: TaskLog
    timeout_seconds: float
    deadline: float
    began: float | None = None
    """By the monotonic clock."""
    announced: bool = False
    begun: bool = False
    job: asyncio.Task[Any] | None = None
    thread: int | None = None
    ending: Ending | None = None
    told_at: float = 0.0
    """When it was told to end."""
    outage: AaiclickError | None = None
    """Why its result could not be published so far: no fault of the task, also if its time runs out meanwhile."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def end(self, why: Ending) -> None:
        """Tell the task that it must end; the first reason stays."""
        if self.ending is not None or self.job is None:
            return
        self.ending, self.told_at = why, time.monotonic()
        if not self.begun:
            return  # a coroutine that is cancelled before its first step never runs, not even to say that it ended
        with self.lock:
            if self.thread is not None:
                _raise_in_thread(self.thread)
                return
        self.job.cancel()


SOON_SECONDS = 1.0
OPEN_SECONDS = 30.0

Outcome = Success | Failure | Lease
"""What came of an attempt: it succeeded, it failed, or it is given back as if it had not been tried."""


def _silent(target: ClickHouseTarget) -> UnreachableError:
    return UnreachableError(
        f"{target} does not answer.", remedy="Check that it runs, and the network between it and this worker."
    ).at(target.endpoint)


async def _open(target: ClickHouseTarget) -> None:
    async with asyncio.timeout(OPEN_SECONDS):
        await connect(target)


class Executor:
    """Runs tasks in the contexts that their functions expect."""

    def __init__(
        self,
        *,
        work: WorkTarget,
        transport: Transport,
        entrypoints: Entrypoints,
        tables: PgLifecycleHandler,
        threads: int,
        witness: Witness | None = None,
    ) -> None:
        self._work = work
        self.transport = transport
        self._entrypoints = entrypoints
        self._tables = tables
        self.witness = witness
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="aaiclick-task")
        self._opening: dict[ClickHouseTarget, tuple[asyncio.Task[None], float]] = {}

    async def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        await self._tables.stop()
        await self.transport.close()
        if self.witness is not None:
            self.witness.close()

    async def execute(self, running: Running) -> Outcome | None:
        """Run one task to its outcome; None means that the lease is lost and there is nobody to tell."""
        set_log(running.log)
        running.began = time.monotonic()
        if self.witness is not None:
            self.witness.began(running.claim)
        try:
            result, awaits, tables, effects = await self._run(running)
        except BaseException as error:  # noqa: BLE001  (a task may raise anything; all of it is its outcome)
            return _failure(running, error, self.transport)
        finally:
            running.log.close()
            await _absorb_cancel()
        return Success(running.claim.lease, result, running.began, awaits, tables, effects)

    async def _run(self, running: Running) -> tuple[str | None, tuple[int, ...], tuple[str, ...] | None, str | None]:
        """The result as JSON text, the tasks it waits for, the tables within it (None if no table plays a part), and
        what else its completion writes.
        """
        claim = running.claim
        tables = self._tables.for_attempt(claim.lease)
        function = self._entrypoints.resolve(claim.type, claim.entrypoint, shared=claim.shared)
        scope = TaskScope(
            claim.lease, claim.org_id, claim.job_id, claim.group_id, self._work,
            resolve=functools.partial(self._entrypoints.load, shared=claim.shared),
            call=functools.partial(self._call, running),
            redactor=running.log.redactor,
        )  # fmt: skip
        enter_scope(scope)
        data = _TaskData(functools.partial(self._enter_data, claim, tables))
        try:
            await data.open()
            arguments = await self._bind(claim, function, tables)
            value = await self._call(running, function, arguments)
            tables.seal()  # what only carries the result ends soon; its tables stay until the outcome holds them
            result, awaits = await self._publish_through_outage(running, value, data)
            within = tables_in(json.loads(result)) if result is not None and MARK in result else ()
            return result, awaits, tuple(sorted(within)) if within or tables.used else None, scope.effects
        finally:
            tables.seal()
            await data.close()

    async def _enter_data(self, claim: Claim, tables: AttemptTables) -> DataContext | AaiclickError:
        """A task that never touches data runs also while ClickHouse is away or closed to it; else that is its error."""
        prefix = f"aai-{claim.lease.task_id}-{claim.lease.attempt}"
        try:
            target = await self.transport.clickhouse(claim.org_id)
            if not is_connected(target):
                await self._connect_soon(target)
            data = DataContext(target, lifecycle=tables, name=f"task {claim.lease.task_id}", query_prefix=prefix)
            return await data.__aenter__()
        except (UnreachableError, UnauthorisedError) as error:
            return error

    async def _connect_soon(self, target: ClickHouseTarget) -> None:
        """The first of a process may wait for ClickHouse a little, on behalf of all: a network that swallows everything
        must not hold up those who want no data. Whoever does is told, and tried again.
        """
        if target not in self._opening:
            opening = asyncio.create_task(_open(target))
            opening.add_done_callback(lambda _: self._opening.pop(target, None))
            self._opening[target] = opening, time.monotonic() + SOON_SECONDS
        opening, until = self._opening[target]
        done, _ = await asyncio.wait([opening], timeout=max(0.0, until - time.monotonic()))
        if not done:
            raise _silent(target)
        try:
            opening.result()
        except TimeoutError as error:
            raise _silent(target) from error

    async def _bind(self, claim: Claim, function: Callable[..., Any], tables: AttemptTables) -> dict[str, Any]:
        """Arguments out of their JSON form, with the results of other tasks in their places."""
        if claim.kwargs == "{}":
            return {}
        given = json.loads(claim.kwargs)
        needed = results_needed(given)
        found: Mapping[int, str | None] = {}
        if needed and claim.job_id is not None:
            found = await get_current_context().task_results(claim.job_id, sorted(needed))
            given = resolve(given, {task_id: text and json.loads(text) for task_id, text in found.items()})
        if MARK not in claim.kwargs and not any(text is not None and MARK in text for text in found.values()):
            return cast("dict[str, Any]", given)
        tables.granted = tables_in(given)
        try:
            opened = await _each_leaf(given, is_reference, open_reference)
        except ObjectNotFoundError as error:
            if error.endpoint:
                raise
            raise _released(error, found) from error
        return await _as_annotated(function, opened)

    async def _call(self, running: Running, function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        if _is_asynchronous(function):
            value = await function(**arguments)
            return await value if inspect.iscoroutine(value) else value
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._pool, functools.partial(_capture, running, function, arguments))
        while True:  # a thread cannot be abandoned: it would go on beside the next attempt
            try:
                value, error = await asyncio.shield(work)
            except asyncio.CancelledError:
                if work.done():
                    raise
                running.end(Ending.RELEASED)
                continue
            if error is not None:
                raise error
            return await value if inspect.isawaitable(value) else value

    async def _publish_through_outage(
        self, running: Running, value: Any, data: _TaskData
    ) -> tuple[str | None, tuple[int, ...]]:
        """Publish; while ClickHouse is unreachable, try again: the supervisor keeps the lease meanwhile."""
        if value is None:
            return None, ()
        for pause in publish_pauses(running.began, running.deadline):
            try:
                await data.open()
                return await self._publish(value)
            except Exception as error:
                outage = find_outage(error, self.transport.endpoints)
                if outage is None or not _is_repeatable(value):
                    raise
                if running.outage is None:
                    running.log.write(f"The result is published when this is over: {outage}\n")
                running.outage = outage
            await asyncio.sleep(pause)
        await data.open()
        return await self._publish(value)

    async def _publish(self, value: Any) -> tuple[str | None, tuple[int, ...]]:
        """A task's value as its result, and the tasks whose results it waits for."""
        if value is None or isinstance(value, Object | Record):
            return await self._publish_value(value), ()
        returned = list(found_in(value, Task))
        if not returned and next(found_in(value, Object), None) is None:
            return await self._publish_value(value), ()
        await get_current_context().apply([task for task in returned if not task.submitted])
        stored = await _each_leaf(value, _is_object, _materialised)
        form, needed = serialise_value(stored, "The returned value")
        return form, tuple({task.id for task in needed})

    async def _publish_value(self, value: Any) -> str | None:
        """Nothing, an Object or View as it is, a record as JSON, anything else as a new Object."""
        if value is None:
            return None
        if isinstance(value, Record):
            return json.dumps(value)
        if not isinstance(value, Object):
            value = await _stored(value)
        return json.dumps((await _materialised(value)).to_dict())


class _TaskData:
    """The DataContext of one attempt. If ClickHouse is unreachable at first, it is opened when it is needed."""

    def __init__(self, enter: Callable[[], Awaitable[DataContext | AaiclickError]]) -> None:
        self._enter = enter
        self._context: DataContext | None = None

    async def open(self) -> None:
        if self._context is None:
            entered = await self._enter()
            self._context = entered if isinstance(entered, DataContext) else None
            set_unavailable(entered if isinstance(entered, AaiclickError) else None)

    async def close(self) -> None:
        if self._context is not None:
            await self._context.__aexit__(None, None, None)


async def _absorb_cancel() -> None:
    """Take a cancellation that the task's own code requested and did not await: it concerns nothing after the task."""
    current = asyncio.current_task()
    if current is not None and current.cancelling():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0)


def _is_repeatable(value: Any) -> bool:
    """Whether publishing can be tried twice: an iterator can be read once, and tasks are added once."""
    if isinstance(value, AsyncIterable | Iterator) and not isinstance(value, Object):
        return False
    return all(task.submitted for task in found_in(value, Task))


@functools.lru_cache(maxsize=1024)
def _is_asynchronous(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function)


async def _stored(value: Any) -> Object:
    """A returned value as an Object: rows and columns where it has some, else as it is; trying again would not help."""
    try:
        return await create_object_from_value(value)
    except ConversionError as error:
        if not isinstance(value, dict | list | tuple):
            raise PermanentError(f"What the task returned cannot be kept. {error.what}", remedy=error.remedy) from error
    try:
        return await create_object_from_value(Whole(cast("Any", value)))
    except ConversionError as error:
        raise PermanentError(f"What the task returned cannot be kept. {error.what}", remedy=error.remedy) from error


async def _materialised(value: Object) -> Object:
    return value if isinstance(value, View) else await value.materialize()


def _released(error: ObjectNotFoundError, results: Mapping[int, str | None]) -> PermanentError:
    """An input is gone for good; whoever made it can make it again."""
    made = [
        task for task, text in results.items() if text is not None and any(name in error.what for name in _names(text))
    ]
    remedy = f"Make it again: aaiclick tasks clear {made[0]}" if made else "Make it again, and submit the task anew."
    return PermanentError(f"An input of this task was released. {error.what}", remedy=remedy)


def _names(text: str) -> set[str]:
    return tables_in(json.loads(text))


async def _as_annotated(function: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Objects in the form that the function takes: what a type checker was promised is what it gets."""
    annotations = annotations_of(function)
    return {name: await given_as(value, annotations.get(name, Any)) for name, value in arguments.items()}


def _is_object(value: Any) -> bool:
    return isinstance(value, Object)


async def _each_leaf(value: Any, matches: Callable[[Any], bool], change: Callable[[Any], Awaitable[Any]]) -> Any:
    """Nested lists and dicts with what matches replaced; a million numbers are passed over by their types."""
    if matches(value):
        return await change(value)
    if isinstance(value, dict):
        return {k: await _each_leaf(item, matches, change) for k, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        items = cast("list[Any]", value)
        return items if is_plain(items) else [await _each_leaf(item, matches, change) for item in items]
    return value


def _capture(
    running: Running, function: Callable[..., Any], arguments: dict[str, Any]
) -> tuple[Any, BaseException | None]:
    """What a function returned, or raised: as a value, since a future that carries StopIteration or GeneratorExit never
    wakes its waiter.
    """
    try:
        return _in_thread(running, function, arguments), None
    except BaseException as error:  # noqa: BLE001  (the waiter raises it)
        return None, error


def _in_thread(running: Running, function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    with running.lock:
        running.thread = threading.get_ident()
    try:
        return function(**arguments)
    finally:
        with running.lock:
            running.thread = None


def _raise_in_thread(thread: int) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(TaskEnded))


def ending_outcome(running: Running) -> Outcome | None:
    """The outcome of an attempt that was ended from outside, by its reason."""
    if running.ending is Ending.LOST:
        return None
    if running.ending is Ending.CANCELLED:
        return failed(running, "Cancelled while running.", "cancelled", permanent=True)
    if running.ending is Ending.TIMEOUT:
        return failed(running, f"Timed out after {running.timeout_seconds:g} s.", "timeout", permanent=False)
    return running.claim.lease


def _failure(running: Running, error: BaseException, transport: Transport) -> Outcome | None:
    """The outcome of an attempt that did not return a value."""
    if running.ending is not None and not (running.ending is Ending.TIMEOUT and running.outage is not None):
        return ending_outcome(running)
    redact = running.log.redactor.redact
    try:
        outage = running.outage if running.ending is not None else find_outage(error, transport.endpoints)
        text = f"Released, not charged: {outage}" if outage is not None else _describe(error)
        mark, permanent = fingerprint(outage or error, redact), is_permanent(error)
    except BaseException as stumble:  # noqa: BLE001  (the exception's own code: `__str__`, a property, `__cause__`)
        outage, permanent = None, False
        text = f"{type(error).__name__}: its description raised {type(stumble).__name__}."
        mark = type(error).__name__
    for secret in transport.secrets:  # a driver's exception may carry the address it used
        text = text.replace(secret, MASK)
    text = redact(text)
    running.log.write(text + "\n")
    running.log.close()
    if outage is None:
        return failed(running, text, mark, permanent=permanent)
    released = failed(running, text, mark, permanent=False)
    return replace(released, charged=False, outcome="RELEASED", delay_seconds=RELEASE_SECONDS)


def failed(running: Running, error: str, mark: str, *, permanent: bool) -> Failure:
    claim = running.claim
    policy = RetryPolicy.of(claim.retry_policy)
    return Failure(
        lease=claim.lease,
        error=_storable(error[:ERROR_CHARACTERS]),
        fingerprint=mark,
        permanent=permanent,
        delay_seconds=policy.delay_seconds(claim.failures + 1),
        began=running.began,
    )


def refused(outcome: Outcome, error: BaseException) -> Failure:
    """What the queue would not take, as a failure that it can: a value that it has no room or no character for."""
    return Failure(
        lease=outcome if isinstance(outcome, Lease) else outcome.lease,
        error=_storable(f"What came of it cannot be kept: {error}"[:ERROR_CHARACTERS]),
        fingerprint=f"refused:{type(error).__name__}",
        delay_seconds=RetryPolicy().delay_seconds(1),
    )


def _storable(text: str) -> str:
    """What PostgreSQL has no characters for, spelled out: an outcome that cannot be told would be told forever."""
    return text.replace("\x00", "\\x00").encode(errors="backslashreplace").decode()


OURS = (__name__, "concurrent.futures.thread")
"""Modules through which every task is called."""


def _describe(error: BaseException) -> str:
    if isinstance(error, EntrypointError):  # what one worker lacks, the next may have
        return f"{error}\nIt ran on {socket.gethostname()}, process {os.getpid()}, in {Path.cwd()}."
    return "".join(traceback.format_exception(type(error), error, _beyond_us(error))).rstrip()


def _beyond_us(error: BaseException) -> TracebackType | None:
    """Where an error came from, without how its task was called; all of it if there is nothing else."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__") in OURS:
        trace = trace.tb_next
    return trace or error.__traceback__


def make_running(
    claim: Claim, log_directory: Path, default_timeout_seconds: float, *, spooled: bool = False
) -> Running:
    """A claimed task, not begun. A spooled log has a file per attempt, which is sent to the server."""
    seconds = claim.timeout_seconds or default_timeout_seconds
    path = spool_path(log_directory, claim.lease) if spooled else log_directory / f"{claim.lease.task_id}.log"
    log = TaskLog(path, claim.lease.attempt)
    return Running(claim, log, seconds, time.monotonic() + seconds)
