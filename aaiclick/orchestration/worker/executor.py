"""Executor: runs one task from its claim to its outcome.

It resolves the function, binds its arguments, calls it, and publishes its value as the result. `execute` returns
exactly one outcome and raises nothing. An asynchronous function runs on the event loop, an ordinary one in a thread. A
task is stopped by cancellation, or by an exception raised in its thread; code that ignores both is ended by the
supervisor, which kills the process.
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
from aaiclick.data.context import set_unavailable
from aaiclick.data.errors import ConversionError, ObjectNotFoundError
from aaiclick.data.io.annotations import annotations_of, convert_argument
from aaiclick.data.io.to_arrow import SingleValue
from aaiclick.data.runtime.clickhouse_client import connect, is_connected
from aaiclick.endpoints import ClickHouseEndpoint
from aaiclick.errors import AaiclickError, EntrypointError, UnauthorisedError, UnreachableError
from aaiclick.orchestration.argument_tables import TABLE_ID_KEY
from aaiclick.orchestration.arguments import is_plain, iter_instances, serialise_value
from aaiclick.orchestration.context import get_current_context
from aaiclick.orchestration.gateway import WorkerGateway
from aaiclick.orchestration.graph import Task
from aaiclick.orchestration.lifecycle import AttemptTables, PgLifecycleHandler
from aaiclick.orchestration.redaction import MASK
from aaiclick.orchestration.retry_policy import PermanentError, RetryPolicy, error_fingerprint, is_permanent
from aaiclick.orchestration.task_context import JsonResult, TaskScope, enter_scope
from aaiclick.orchestration.worker.attempt_telemetry import AttemptTelemetry
from aaiclick.orchestration.worker.entrypoints import Entrypoints
from aaiclick.orchestration.worker.log_shipping import spool_path
from aaiclick.orchestration.worker.logs import TaskLog, set_log
from aaiclick.orchestration.worker.outages import RELEASE_SECONDS, find_outage, publish_pauses
from aaiclick.store.engine.leases import Claim, Failure, Lease, Success
from aaiclick.store.engine.result_placeholders import referenced_task_ids, resolve_placeholders, temporary_tables_in

ERROR_CHARACTERS = 20_000


class StopReason(Enum):
    """Reason why a task is stopped before it finishes."""

    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    LOST = "lease lost"
    RELEASED = "released"


class TaskStopped(BaseException):
    """Raised in the thread of a task that is stopped."""


@dataclass(slots=True)
class RunningTask:
    """A claimed task in this process, started or about to start."""

    claim: Claim
    log: TaskLog
    timeout_seconds: float
    deadline: float
    began: float | None = None
    """Start time by the monotonic clock."""
    is_reported: bool = False
    is_started: bool = False
    asyncio_task: asyncio.Task[Any] | None = None
    thread: int | None = None
    stop_reason: StopReason | None = None
    stop_requested_at: float = 0.0
    """Time of `request_stop` by the monotonic clock."""
    outage: AaiclickError | None = None
    """The outage that delays publishing its result: not charged, even if the task times out meanwhile."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def request_stop(self, reason: StopReason) -> None:
        """Request the task to stop; later reasons are ignored."""
        if self.stop_reason is not None or self.asyncio_task is None:
            return
        self.stop_reason, self.stop_requested_at = reason, time.monotonic()
        if not self.is_started:
            return  # a coroutine that is cancelled before its first step never runs, so it would report no outcome
        with self.lock:
            if self.thread is not None:
                _raise_in_thread(self.thread)
                return
        self.asyncio_task.cancel()


SOON_SECONDS = 1.0
OPEN_SECONDS = 30.0

Outcome = Success | Failure | Lease
"""Outcome of an attempt; a bare lease is released without an attempt being counted."""


def _unreachable_error(endpoint: ClickHouseEndpoint) -> UnreachableError:
    return UnreachableError(
        f"{endpoint} does not answer.", remedy="Check that it runs, and the network between it and this worker."
    ).at(endpoint.address)


async def _open_connection(endpoint: ClickHouseEndpoint) -> None:
    async with asyncio.timeout(OPEN_SECONDS):
        await connect(endpoint)


class Executor:
    """Runs tasks with their OrchContext, DataContext and log."""

    def __init__(
        self,
        *,
        gateway: WorkerGateway,
        entrypoints: Entrypoints,
        tables: PgLifecycleHandler,
        threads: int,
        telemetry: AttemptTelemetry | None = None,
    ) -> None:
        self.gateway = gateway
        self._entrypoints = entrypoints
        self._tables = tables
        self.telemetry = telemetry
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="aaiclick-task")
        self._connecting: dict[ClickHouseEndpoint, tuple[asyncio.Task[None], float]] = {}

    async def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        await self._tables.stop()
        await self.gateway.close()
        if self.telemetry is not None:
            self.telemetry.close()

    async def execute(self, running: RunningTask) -> Outcome | None:
        """Run a task and return its outcome; None if its lease is lost."""
        set_log(running.log)
        running.began = time.monotonic()
        if self.telemetry is not None:
            self.telemetry.record_start(running.claim)
        try:
            result, awaits, tables, effects = await self._run_attempt(running)
        except BaseException as error:  # noqa: BLE001  (a task may raise anything; all of it is its outcome)
            return _failure_outcome(running, error, self.gateway)
        finally:
            running.log.close()
            await _absorb_cancel()
        return Success(running.claim.lease, result, running.began, awaits, tables, effects)

    async def _run_attempt(
        self, running: RunningTask
    ) -> tuple[str | None, tuple[int, ...], tuple[str, ...] | None, str | None]:
        """Run an attempt and return its result.

        Returns the result as JSON text, the ids of tasks that it awaits, the tables in it (None if the attempt used no
        tables), and the effects of its completion.
        """
        claim = running.claim
        tables = self._tables.for_attempt(claim.lease)
        function = self._entrypoints.resolve(claim.type, claim.entrypoint, shared=claim.shared)
        scope = TaskScope(
            claim.lease, claim.org_id, claim.job_id, claim.group_id, self.gateway.open_attempt(claim),
            resolve=functools.partial(self._entrypoints.load, shared=claim.shared),
            call=functools.partial(self._call_function, running),
            redactor=running.log.redactor,
        )  # fmt: skip
        enter_scope(scope)
        data = _TaskData(functools.partial(self._open_data_context, claim, tables))
        try:
            await data.open()
            arguments = await self._bind_arguments(scope, claim, function, tables)
            value = await self._call_function(running, function, arguments)
            tables.seal()  # tables of the result must stay until the outcome refers to them
            result, awaits = await self._publish_through_outage(running, value, data)
            within = temporary_tables_in(json.loads(result)) if result is not None and TABLE_ID_KEY in result else ()
            return result, awaits, tuple(sorted(within)) if within or tables.has_references else None, scope.effects
        finally:
            tables.seal()
            await data.close()

    async def _open_data_context(self, claim: Claim, tables: AttemptTables) -> DataContext | AaiclickError:
        """Open the DataContext, or return the error: a task that uses no data runs also during an outage."""
        prefix = f"aai-{claim.lease.task_id}-{claim.lease.attempt}"
        try:
            endpoint = await self.gateway.clickhouse(claim.org_id)
            if not is_connected(endpoint):
                await self._connect_with_timeout(endpoint)
            data = DataContext(endpoint, lifecycle=tables, name=f"task {claim.lease.task_id}", query_prefix=prefix)
            return await data.__aenter__()
        except (UnreachableError, UnauthorisedError) as error:
            return error

    async def _connect_with_timeout(self, endpoint: ClickHouseEndpoint) -> None:
        """Connect in the background, and wait for at most SOON_SECONDS.

        An unreachable ClickHouse must not delay tasks that use no data; tasks that do get an UnreachableError.
        """
        if endpoint not in self._connecting:
            connecting = asyncio.create_task(_open_connection(endpoint))
            connecting.add_done_callback(lambda _: self._connecting.pop(endpoint, None))
            self._connecting[endpoint] = connecting, time.monotonic() + SOON_SECONDS
        connecting, until = self._connecting[endpoint]
        done, _ = await asyncio.wait([connecting], timeout=max(0.0, until - time.monotonic()))
        if not done:
            raise _unreachable_error(endpoint)
        try:
            connecting.result()
        except TimeoutError as error:
            raise _unreachable_error(endpoint) from error

    async def _bind_arguments(
        self, scope: TaskScope, claim: Claim, function: Callable[..., object], tables: AttemptTables
    ) -> dict[str, Any]:
        """Decode arguments from JSON and resolve the results of other tasks."""
        if claim.kwargs == "{}":
            return {}
        arguments = json.loads(claim.kwargs)
        needed = referenced_task_ids(arguments)
        results: Mapping[int, str | None] = {}
        if needed and claim.job_id is not None:
            results = await scope.gateway.task_results(sorted(needed))
            arguments = resolve_placeholders(
                arguments, {task_id: text and json.loads(text) for task_id, text in results.items()}
            )
        if TABLE_ID_KEY not in claim.kwargs and not any(
            text is not None and TABLE_ID_KEY in text for text in results.values()
        ):
            return cast("dict[str, Any]", arguments)
        tables.granted = temporary_tables_in(arguments)
        try:
            opened = await _map_leaves(arguments, is_reference, open_reference)
        except ObjectNotFoundError as error:
            if error.address:
                raise
            raise _released_input_error(error, results) from error
        return await _convert_arguments(function, opened)

    async def _call_function(
        self, running: RunningTask, function: Callable[..., Any], arguments: dict[str, Any]
    ) -> Any:
        if _is_asynchronous(function):
            value = await function(**arguments)
            return await value if inspect.iscoroutine(value) else value
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._pool, functools.partial(_call_and_capture, running, function, arguments))
        while True:  # a thread cannot be abandoned: it would run concurrently with the next attempt
            try:
                value, error = await asyncio.shield(work)
            except asyncio.CancelledError:
                if work.done():
                    raise
                running.request_stop(StopReason.RELEASED)
                continue
            if error is not None:
                raise error
            return await value if inspect.isawaitable(value) else value

    async def _publish_through_outage(
        self, running: RunningTask, value: object, data: _TaskData
    ) -> tuple[str | None, tuple[int, ...]]:
        """Publish the value; retry while ClickHouse is unreachable. The supervisor renews the lease meanwhile."""
        if value is None:
            return None, ()
        for pause in publish_pauses(running.began, running.deadline):
            try:
                await data.open()
                return await self._publish_result(value)
            except Exception as error:
                outage = find_outage(error, self.gateway.addresses)
                if outage is None or not _is_repeatable(value):
                    raise
                if running.outage is None:
                    running.log.write(f"Waiting to publish the result: {outage}\n")
                running.outage = outage
            await asyncio.sleep(pause)
        await data.open()
        return await self._publish_result(value)

    async def _publish_result(self, value: object) -> tuple[str | None, tuple[int, ...]]:
        """Store a task's value; returns the result as JSON text and the ids of tasks that it awaits."""
        if value is None or isinstance(value, Object | JsonResult):
            return await self._publish_value(value), ()
        returned = list(iter_instances(value, Task))
        if not returned and next(iter_instances(value, Object), None) is None:
            return await self._publish_value(value), ()
        await get_current_context().apply([task for task in returned if not task.submitted])
        stored = await _map_leaves(value, _is_object, _materialise)
        result, needed = serialise_value(stored, "The returned value")
        return result, tuple({task.id for task in needed})

    async def _publish_value(self, value: object) -> str | None:
        """Store None, an Object or View by reference, a JsonResult as JSON, anything else as a new Object."""
        if value is None:
            return None
        if isinstance(value, JsonResult):
            return json.dumps(value)
        if not isinstance(value, Object):
            value = await _store_value(value)
        return json.dumps((await _materialise(value)).to_dict())


class _TaskData:
    """DataContext of one attempt; if ClickHouse is unreachable, it is opened when the result is published."""

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
    """Consume a cancellation that the task's code requested and did not await."""
    current = asyncio.current_task()
    if current is not None and current.cancelling():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0)


def _is_repeatable(value: object) -> bool:
    """Whether publishing can be retried: iterators can be read once, and tasks are added once."""
    if isinstance(value, AsyncIterable | Iterator) and not isinstance(value, Object):
        return False
    return all(task.submitted for task in iter_instances(value, Task))


@functools.lru_cache(maxsize=1024)
def _is_asynchronous(function: Callable[..., object]) -> bool:
    return inspect.iscoroutinefunction(function)


async def _store_value(value: object) -> Object:
    """Store a returned value as an Object, with rows and columns if it has any. Errors are permanent."""
    try:
        return await create_object_from_value(value)
    except ConversionError as error:
        if not isinstance(value, dict | list | tuple):
            raise PermanentError(f"The returned value cannot be stored. {error.what}", remedy=error.remedy) from error
    try:
        return await create_object_from_value(SingleValue(cast("Any", value)))
    except ConversionError as error:
        raise PermanentError(f"The returned value cannot be stored. {error.what}", remedy=error.remedy) from error


async def _materialise(value: Object) -> Object:
    return value if isinstance(value, View) else await value.materialize()


def _released_input_error(error: ObjectNotFoundError, results: Mapping[int, str | None]) -> PermanentError:
    """Error for an input with a dropped table; the remedy is to clear the task that produced it."""
    producers = [
        task
        for task, text in results.items()
        if text is not None and any(name in error.what for name in _table_names(text))
    ]
    remedy = (
        f"Create it again: aaiclick tasks clear {producers[0]}"
        if producers
        else "Create it again, and submit a new task."
    )
    return PermanentError(f"An input of this task was released. {error.what}", remedy=remedy)


def _table_names(text: str) -> set[str]:
    return temporary_tables_in(json.loads(text))


async def _convert_arguments(function: Callable[..., object], arguments: dict[str, object]) -> dict[str, Any]:
    """Convert Objects to the annotated types of the function's parameters."""
    annotations = annotations_of(function)
    return {name: await convert_argument(value, annotations.get(name, Any)) for name, value in arguments.items()}


def _is_object(value: object) -> bool:
    return isinstance(value, Object)


async def _map_leaves(value: object, matches: Callable[[Any], bool], change: Callable[[Any], Awaitable[object]]) -> Any:
    """Replace matching values in nested lists and dicts; lists of scalars are skipped by a check of their types."""
    if matches(value):
        return await change(value)
    if isinstance(value, dict):
        return {k: await _map_leaves(item, matches, change) for k, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        items = cast("list[Any]", value)
        return items if is_plain(items) else [await _map_leaves(item, matches, change) for item in items]
    return value


def _call_and_capture(
    running: RunningTask, function: Callable[..., object], arguments: dict[str, object]
) -> tuple[object, BaseException | None]:
    """Call a function; returns its value or its exception.

    Returned, since a future with StopIteration or GeneratorExit as its exception never wakes its waiter.
    """
    try:
        return _call_in_thread(running, function, arguments), None
    except BaseException as error:  # noqa: BLE001  (the waiter raises it)
        return None, error


def _call_in_thread(running: RunningTask, function: Callable[..., object], arguments: dict[str, object]) -> object:
    with running.lock:
        running.thread = threading.get_ident()
    try:
        return function(**arguments)
    finally:
        with running.lock:
            running.thread = None


def _raise_in_thread(thread: int) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(TaskStopped))


def stopped_outcome(running: RunningTask) -> Outcome | None:
    """Outcome of an attempt that was stopped, by its reason."""
    if running.stop_reason is StopReason.LOST:
        return None
    if running.stop_reason is StopReason.CANCELLED:
        return make_failure(running, "Cancelled while running.", "cancelled", permanent=True)
    if running.stop_reason is StopReason.TIMEOUT:
        return make_failure(running, f"Timed out after {running.timeout_seconds:g} s.", "timeout", permanent=False)
    return running.claim.lease


def _failure_outcome(running: RunningTask, error: BaseException, gateway: WorkerGateway) -> Outcome | None:
    """Outcome of an attempt that raised an exception."""
    if running.stop_reason is not None and not (
        running.stop_reason is StopReason.TIMEOUT and running.outage is not None
    ):
        return stopped_outcome(running)
    redact = running.log.redactor.redact
    try:
        outage = running.outage if running.stop_reason is not None else find_outage(error, gateway.addresses)
        text = f"Released, not charged: {outage}" if outage is not None else _format_error(error)
        fingerprint_text, permanent = error_fingerprint(outage or error, redact), is_permanent(error)
    except BaseException as nested:  # noqa: BLE001  (the exception's own code: `__str__`, a property, `__cause__`)
        outage, permanent = None, False
        text = f"{type(error).__name__}: its description raised {type(nested).__name__}."
        fingerprint_text = type(error).__name__
    for secret in gateway.secrets:  # a driver's exception may carry the address it used
        text = text.replace(secret, MASK)
    text = redact(text)
    running.log.write(text + "\n")
    running.log.close()
    if outage is None:
        return make_failure(running, text, fingerprint_text, permanent=permanent)
    released = make_failure(running, text, fingerprint_text, permanent=False)
    return replace(released, charged=False, outcome="RELEASED", delay_seconds=RELEASE_SECONDS)


def make_failure(running: RunningTask, error: str, fingerprint_text: str, *, permanent: bool) -> Failure:
    claim = running.claim
    policy = RetryPolicy.from_json(claim.retry_policy)
    return Failure(
        lease=claim.lease,
        error=_escape_text(error[:ERROR_CHARACTERS]),
        fingerprint=fingerprint_text,
        permanent=permanent,
        delay_seconds=policy.delay_seconds(claim.failures + 1),
        began=running.began,
    )


def make_rejected_failure(outcome: Outcome, error: BaseException) -> Failure:
    """Failure for an outcome that the queue rejected: a value too large, or with characters it cannot store."""
    return Failure(
        lease=outcome if isinstance(outcome, Lease) else outcome.lease,
        error=_escape_text(f"The outcome cannot be stored: {error}"[:ERROR_CHARACTERS]),
        fingerprint=f"refused:{type(error).__name__}",
        delay_seconds=RetryPolicy().delay_seconds(1),
    )


def _escape_text(text: str) -> str:
    """Escape characters that PostgreSQL cannot store, or the outcome would be rejected for ever."""
    return text.replace("\x00", "\\x00").encode(errors="backslashreplace").decode()


OWN_MODULES = (__name__, "concurrent.futures.thread")
"""Modules that are left out of tracebacks of tasks."""


def _format_error(error: BaseException) -> str:
    if isinstance(error, EntrypointError):  # another worker may have the module
        return f"{error}\nIt ran on {socket.gethostname()}, process {os.getpid()}, in {Path.cwd()}."
    return "".join(traceback.format_exception(type(error), error, _strip_own_frames(error))).rstrip()


def _strip_own_frames(error: BaseException) -> TracebackType | None:
    """Traceback without the frames of the executor, unless there are no others."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__") in OWN_MODULES:
        trace = trace.tb_next
    return trace or error.__traceback__


def make_running_task(
    claim: Claim, log_directory: Path, default_timeout_seconds: float, *, spooled: bool = False
) -> RunningTask:
    """Make a RunningTask of a claim. A spooled log has a file per attempt, which is sent to the server."""
    seconds = claim.timeout_seconds or default_timeout_seconds
    path = spool_path(log_directory, claim.lease) if spooled else log_directory / f"{claim.lease.task_id}.log"
    log = TaskLog(path, claim.lease.attempt)
    return RunningTask(claim, log, seconds, time.monotonic() + seconds)
