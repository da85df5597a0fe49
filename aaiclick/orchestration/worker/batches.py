"""Batch handlers: items that are claimed one by one run in one call of their handler.

Each item is a task of its own, with its own lease, attempt, timeout and outcome; only the call is shared. An item that
waits for its batch takes no slot of the process, and a running batch takes one.

An item that is cancelled or loses its lease while the batch runs waits for its end, since the call cannot leave it out.
A timeout of one item stops the call: the others are released, not charged.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import UUID

from aaiclick.orchestration.handler_registry import BatchOptions
from aaiclick.orchestration.retry_policy import PermanentError
from aaiclick.orchestration.typed_arguments import restore_value
from aaiclick.orchestration.worker.running_task import RunningTask, StopReason, TaskStopped, raise_in_thread

Function = Callable[..., Any]
Verdict = tuple[object, BaseException | None]
"""Value and exception of an item."""


@dataclass(slots=True)
class ThreadHolder:
    """Thread that runs a batch, while it does."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    ident: int | None = None


@dataclass(slots=True, eq=False)
class _Item:
    running: RunningTask
    value: object
    verdict: asyncio.Future[Verdict]
    context: contextvars.Context = field(default_factory=contextvars.copy_context)


@dataclass(slots=True, eq=False)
class _Batch:
    """Items that wait for one call, or are in it."""

    options: BatchOptions
    items: list[_Item] = field(default_factory=list[_Item])
    timer: asyncio.TimerHandle | None = None
    call: asyncio.Task[None] | None = None
    thread: ThreadHolder = field(default_factory=ThreadHolder)
    is_stopped: bool = False


class BatchRunner:
    """Collects items; calls their handler when a batch is full or its first item has waited long enough."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._collecting: dict[tuple[Function, UUID], _Batch] = {}
        """By handler and organisation: the call has the database and the secrets of one organisation."""
        self.batched_items = 0
        """Items in batches, less the batches that run: tasks that take no slot."""
        self.on_slot_freed: Callable[[], None] = lambda: None

    async def run(self, running: RunningTask, function: Function, options: BatchOptions, payload: object) -> object:
        """Value of one item; raises its exception."""
        value = payload if options.item_type is None else restore_value(payload, options.item_type, "The payload")
        key = function, running.claim.org_id
        batch = self._collecting.get(key)
        if batch is None:
            batch = self._collecting[key] = _Batch(options)
            batch.timer = asyncio.get_running_loop().call_later(options.within_seconds, self._start, key, batch)
        item = _Item(running, value, asyncio.get_running_loop().create_future())
        batch.items.append(item)
        self.batched_items += 1
        try:
            if len(batch.items) >= options.size:
                self._start(key, batch)
            else:
                self.on_slot_freed()
            value, error = await self._wait_for_verdict(item, batch)
        finally:
            self.batched_items -= 1
        if error is not None:
            raise error
        return value

    async def _wait_for_verdict(self, item: _Item, batch: _Batch) -> Verdict:
        while True:
            try:
                return await asyncio.shield(item.verdict)
            except asyncio.CancelledError:
                if item.verdict.done():
                    raise
                if batch.call is None:
                    batch.items.remove(item)
                    raise
                if item.running.stop_reason in (StopReason.TIMEOUT, StopReason.RELEASED):
                    self._stop_call(batch)

    def _start(self, key: tuple[Function, UUID], batch: _Batch) -> None:
        """Call the handler with the items of a batch, in the context of the first one."""
        if batch.timer is not None:
            batch.timer.cancel()
        if self._collecting.get(key) is batch:
            del self._collecting[key]
        if batch.items:
            self.batched_items -= 1
            batch.call = asyncio.create_task(self._run_batch(batch), context=batch.items[0].context)

    async def _run_batch(self, batch: _Batch) -> None:
        try:
            verdicts = _check_verdicts(await self._call(batch), batch)
        except BaseException as error:  # noqa: BLE001  (a handler may raise anything; all of it is its outcome)
            if isinstance(error, asyncio.CancelledError | TaskStopped):
                for item in batch.items:
                    item.running.request_stop(StopReason.RELEASED)
            verdicts = [error] * len(batch.items)
        finally:
            self.batched_items += 1
        for item, verdict in zip(batch.items, verdicts, strict=True):
            item.verdict.set_result((None, verdict) if isinstance(verdict, BaseException) else (verdict, None))

    async def _call(self, batch: _Batch) -> object:
        function, values = batch.options.function, [item.value for item in batch.items]
        if inspect.iscoroutinefunction(function):
            return await function(values)
        work = asyncio.get_running_loop().run_in_executor(
            self._pool, functools.partial(_call_in_thread, batch.thread, function, values)
        )
        while True:  # a thread cannot be abandoned: it would run concurrently with the next attempts
            try:
                value, error = await asyncio.shield(work)
            except asyncio.CancelledError:
                if work.done():
                    raise
                continue
            if error is not None:
                raise error
            return await cast("Awaitable[object]", value) if inspect.isawaitable(value) else value

    def _stop_call(self, batch: _Batch) -> None:
        if batch.is_stopped:
            return
        batch.is_stopped = True
        with batch.thread.lock:
            if batch.thread.ident is not None:
                raise_in_thread(batch.thread.ident)
                return
        if batch.call is not None:
            batch.call.cancel()


def _check_verdicts(value: object, batch: _Batch) -> Sequence[object]:
    if value is None:
        return [None] * len(batch.items)
    if isinstance(value, list | tuple):
        verdicts = cast("Sequence[object]", value)
        if len(verdicts) == len(batch.items):
            return verdicts
    name = batch.options.function.__qualname__
    count = f"{len(cast('Sequence[object]', value))} values" if isinstance(value, list | tuple) else f"{value!r:.50}"
    raise PermanentError(
        f"The batch handler {name}() returned {count} for {len(batch.items)} items.",
        remedy="Return a list with one result or exception for each item, or None.",
    )


def _call_in_thread(
    thread: ThreadHolder, function: Function, values: list[object]
) -> tuple[object, BaseException | None]:
    with thread.lock:
        thread.ident = threading.get_ident()
    try:
        return function(values), None
    except BaseException as error:  # noqa: BLE001  (the waiter raises it)
        return None, error
    finally:
        with thread.lock:
            thread.ident = None
