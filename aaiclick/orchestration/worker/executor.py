"""Executor: runs one task from its claim to its outcome.

It resolves the function, binds its arguments, calls it, and publishes its value as the result. `execute` returns
exactly one outcome and raises nothing. An asynchronous function runs on the event loop, an ordinary one in a thread. A
task is stopped by cancellation, or by an exception raised in its thread; code that ignores both is ended by the
supervisor, which kills the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import json
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, cast

from aaiclick.data.errors import ConversionError, ObjectNotFoundError
from aaiclick.orchestration.argument_tables import TABLE_ID_KEY
from aaiclick.orchestration.failure_paths import Branch
from aaiclick.orchestration.gateway import WorkerGateway
from aaiclick.orchestration.graph import Task
from aaiclick.orchestration.handler_registry import BatchOptions, find_batch
from aaiclick.orchestration.pg_lifecycle import AttemptTables, PgLifecycleHandler
from aaiclick.orchestration.process_code_version import current_code_version
from aaiclick.orchestration.result_cache import CacheOptions, cached_branch_error, find_cache, make_cache_key
from aaiclick.orchestration.retry_policy import PermanentError
from aaiclick.orchestration.task_context import SuspendTask, TaskScope, enter_scope
from aaiclick.orchestration.typed_arguments import restore_arguments
from aaiclick.orchestration.worker.argument_binding import bind_arguments, digest_inputs, open_result
from aaiclick.orchestration.worker.attempt_telemetry import AttemptTelemetry
from aaiclick.orchestration.worker.batches import BatchRunner
from aaiclick.orchestration.worker.entrypoints import Entrypoints
from aaiclick.orchestration.worker.failure_outcomes import Outcome, failure_outcome, make_call_error
from aaiclick.orchestration.worker.logs import set_log
from aaiclick.orchestration.worker.result_publishing import NOTHING_PUBLISHED, ResultPublisher
from aaiclick.orchestration.worker.running_task import RunningTask, StopReason
from aaiclick.orchestration.worker.task_data import ClickHouseClients, TaskData
from aaiclick.store.engine.leases_and_outcomes import Success
from aaiclick.store.engine.result_placeholders import temporary_tables_in


class Executor:
    """Runs tasks with their OrchContext, DataContext and log."""

    def __init__(
        self,
        *,
        gateway: WorkerGateway,
        entrypoints: Entrypoints,
        tables: PgLifecycleHandler,
        threads: int,
        max_literal_bytes: int,
        telemetry: AttemptTelemetry | None = None,
    ) -> None:
        self.gateway = gateway
        self._entrypoints = entrypoints
        self._tables = tables
        self._max_literal_bytes = max_literal_bytes
        self.telemetry = telemetry
        self.open_debugger: Callable[[BaseException], None] | None = None
        """Called with the exceptions of tasks, in a test that runs them in its own process."""
        self._publisher = ResultPublisher(max_literal_bytes, gateway)
        self._clients = ClickHouseClients(gateway)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="aaiclick-task")
        self.batches = BatchRunner(self._pool)

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
            return await self._run_attempt(running)
        except BaseException as error:  # noqa: BLE001  (a task may raise anything; all of it is its outcome)
            if self.open_debugger is not None and isinstance(error, Exception):
                self.open_debugger(error)
            return failure_outcome(running, error, self.gateway)
        finally:
            running.log.close()
            current = running.asyncio_task or asyncio.current_task()
            if current is not None and current.cancelling():
                await _absorb_cancel()

    async def _run_attempt(self, running: RunningTask) -> Success:
        claim = running.claim
        tables = self._tables.for_attempt(claim.lease)
        function = self._entrypoints.resolve(claim.type, claim.entrypoint, shared=claim.shared)
        scope = TaskScope(
            claim.lease, claim.org_id, claim.job_id, claim.group_id, self.gateway.open_attempt(claim),
            functools.partial(self._entrypoints.load, shared=claim.shared),
            functools.partial(self._call_function, running),
            running.log.redactor,
        )  # fmt: skip
        enter_scope(scope)
        data = TaskData(self._clients, claim, tables, self._max_literal_bytes)
        try:
            if not data.provide():
                await data.open()
            value = await self._compute_value(running, function, scope, tables)
            tables.seal()  # tables of the result must stay until the outcome refers to them
            result, literal, awaits, branch, wait = (
                NOTHING_PUBLISHED if value is None else await self._publisher.publish(running, value, data, function)
            )
            within: set[str] = set()
            if result is not None and literal is None and TABLE_ID_KEY in result:
                within = temporary_tables_in(json.loads(result))
            held = tuple(sorted(within)) if within or tables.has_references else None
            return Success(claim.lease, result, running.began, awaits, held, literal, scope.effects, branch, wait)
        finally:
            tables.seal()
            closing = data.close()
            if closing is not None:
                await closing

    async def _compute_value(
        self, running: RunningTask, function: Callable[..., Any], scope: TaskScope, tables: AttemptTables
    ) -> Any:
        """Value of the function, the cached one of another task, or the wait for a child job."""
        cache = _inspect_function(function).cache
        try:
            if cache is not None:
                return await self._find_or_compute(running, function, cache, scope, tables)
            if running.claim.kwargs == "{}":
                return await self._call_function(running, function, {})
            bound = await bind_arguments(scope, running.claim, function, tables)
            return await self._call_function(running, function, _restore_arguments(function, bound))
        except SuspendTask as suspension:
            return suspension.wait

    async def _find_or_compute(
        self,
        running: RunningTask,
        function: Callable[..., Any],
        cache: CacheOptions,
        scope: TaskScope,
        tables: AttemptTables,
    ) -> Any:
        """The cached value of another task, or that of the function."""
        claim, digests = running.claim, list[str]()

        def record_digest(arguments: Mapping[str, object]) -> None:
            if cache.key is None:
                digests.append(digest_inputs(arguments))

        bound = await bind_arguments(scope, claim, function, tables, record_digest)
        arguments = _restore_arguments(function, bound)
        inputs = cache.key(**arguments) if callable(cache.key) else cache.key or digests[0]
        version = await asyncio.to_thread(current_code_version)
        key = make_cache_key(version, claim.entrypoint or claim.type, str(inputs))
        is_found, value = await _find_cached_value(scope, key, cache.max_age_seconds, tables)
        if not is_found:
            value = await self._call_function(running, function, arguments)
            if isinstance(value, Branch):
                raise cached_branch_error(function)
        return value

    async def _call_function(
        self, running: RunningTask, function: Callable[..., Any], arguments: dict[str, Any]
    ) -> Any:
        if running.before_call is not None:
            await running.before_call(running)
        call = _inspect_function(function)
        if call.batch is not None:
            return await self.batches.run(running, function, call.batch, arguments)
        if call.is_asynchronous:
            value = await _start_call(function, arguments)
            return await cast("Coroutine[Any, Any, Any]", value) if isinstance(value, Coroutine) else value
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
            return await value if inspect.isawaitable(value) and not isinstance(value, Task) else value


async def _find_cached_value(
    scope: TaskScope, key: str, max_age_seconds: float | None, tables: AttemptTables
) -> tuple[bool, object]:
    """Whether there is a cached result of the key, and its value; results with a dropped table are not used."""
    refused: list[int] = []
    while (result := await scope.gateway.find_cached_result(key, max_age_seconds, refused)) is not None:
        try:
            value = await open_result(scope, result, tables)
        except ObjectNotFoundError as error:
            if error.address:
                raise
            refused.append(result.task_id)
        else:
            print(f"Result reused from task {result.task_id} (cache).")  # noqa: T201  (the task's log)
            return True, value
    return False, None


async def _absorb_cancel() -> None:
    """Consume a cancellation that the task's code requested and did not await."""
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)


class _Call(NamedTuple):
    """How a function is called."""

    is_asynchronous: bool
    cache: CacheOptions | None
    batch: BatchOptions | None


@functools.lru_cache(maxsize=1024)
def _inspect_function(function: Callable[..., object]) -> _Call:
    return _Call(inspect.iscoroutinefunction(function), find_cache(function), find_batch(function))


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
        return _start_call(function, arguments)
    finally:
        with running.lock:
            running.thread = None


def _restore_arguments(function: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    try:
        return restore_arguments(function, arguments)
    except ConversionError as error:
        raise PermanentError(error.what, remedy=error.remedy) from None


def _start_call(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Call a function; arguments that do not match its signature are a permanent error."""
    try:
        return function(**arguments)
    except TypeError as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is None:  # raised by the call itself
            raise make_call_error(function, error) from None
        raise
