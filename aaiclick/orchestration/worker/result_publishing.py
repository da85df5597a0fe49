"""Publishing of returned values: small ones are stored with the task, larger ones as ClickHouse tables."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterable, Callable, Iterator
from typing import NamedTuple, cast

from aaiclick.data import Object, View, create_object_from_value
from aaiclick.data.create import create_object_from_rows
from aaiclick.data.errors import ConversionError, DataError
from aaiclick.data.io.literal_result_codec import convert_value, encode_converted, encode_rows, encode_simple
from aaiclick.data.io.to_arrow import ArrowRows
from aaiclick.data.io.typed_values import (
    contains_typed_value,
    find_adapter,
    iter_other_keys,
    return_annotation_of,
    to_columns,
    to_plain,
)
from aaiclick.data.runtime.tables import new_table_name
from aaiclick.orchestration.argument_serialisation import await_jobs, iter_instances, serialise_value
from aaiclick.orchestration.context import get_current_context
from aaiclick.orchestration.decorator_checks import describe_function
from aaiclick.orchestration.failure_paths import Branch
from aaiclick.orchestration.gateway import WorkerGateway
from aaiclick.orchestration.graph import Task
from aaiclick.orchestration.retry_policy import PermanentError
from aaiclick.orchestration.task_context import JsonResult
from aaiclick.orchestration.worker.argument_binding import map_leaves
from aaiclick.orchestration.worker.outages import find_outage, publish_pauses
from aaiclick.orchestration.worker.running_task import RunningTask
from aaiclick.orchestration.worker.task_data import TaskData
from aaiclick.store.engine.leases_and_outcomes import Wait
from aaiclick.tracebacks import is_user_error

MAX_INLINE_ITEMS = 10_000
"""Larger values are converted in a thread, so that other tasks go on."""
MAX_ENCODED_BYTES = 1 << 20
"""Limit of the text of a literal Object, which is larger than its rows."""


class PublishedResult(NamedTuple):
    """A published value: the result as JSON text, a literal, ids of awaited tasks, chosen dependents, or a wait."""

    result: str | None
    literal: str | None = None
    awaits: tuple[int, ...] = ()
    branch: tuple[str, ...] | None = None
    wait: Wait | None = None


NOTHING_PUBLISHED = PublishedResult(None)
"""Of a task without a value."""


class ResultPublisher:
    """Publishes the values that tasks return."""

    def __init__(self, max_literal_bytes: int, gateway: WorkerGateway) -> None:
        self._max_literal_bytes = max_literal_bytes
        self._gateway = gateway

    async def publish(
        self, running: RunningTask, value: object, data: TaskData, function: Callable[..., object]
    ) -> PublishedResult:
        """Publish the value; retry while ClickHouse is unreachable. The supervisor renews the lease meanwhile."""
        if value is None:
            return NOTHING_PUBLISHED
        if isinstance(value, Branch):
            return PublishedResult(None, branch=value.names)
        if isinstance(value, Wait):
            return PublishedResult(None, wait=value)
        try:
            text = encode_simple(value, self._max_literal_bytes)
            if text is not None:
                return _publish_literal(new_table_name(), text)
            _check_value(running, value, function)
            return await self._publish_reconnecting(running, value, data)
        except PermanentError as error:
            error.what = f"{error.what}\n\n{describe_function(function)}\n"
            raise
        except RecursionError as error:
            if is_user_error(error):  # of an iterator
                raise
            raise PermanentError(
                f"The returned value cannot be stored. It is nested too deeply, or contains itself.\n\n"
                f"{describe_function(function)}\n",
                remedy="Return a flat structure, such as a list of dicts.",
            ) from None

    async def _publish_reconnecting(self, running: RunningTask, value: object, data: TaskData) -> PublishedResult:
        for pause in publish_pauses(running.began, running.deadline):
            try:
                return await self._publish_result(value, data)
            except Exception as error:
                outage = find_outage(error, self._gateway.addresses)
                if outage is None or not _is_repeatable(value):
                    raise
                if running.outage is None:
                    running.log.write(f"Waiting to publish the result: {outage}\n")
                running.outage = outage
            await asyncio.sleep(pause)
        return await self._publish_result(value, data)

    async def _publish_result(self, value: object, data: TaskData) -> PublishedResult:
        """Store a task's value, and submit the tasks in it; it waits for the jobs in it."""
        value = await_jobs(value)
        if isinstance(value, JsonResult):
            return PublishedResult(json.dumps(value))
        if isinstance(value, Object):
            await data.open()
            return await self._publish_object(await _materialise(value))
        returned = list(iter_instances(value, Task))
        if not returned and next(iter_instances(value, Object), None) is None:
            return await self._publish_value(value, data)
        await data.open()
        await get_current_context().apply([task for task in returned if not task.submitted])
        stored = await map_leaves(value, _is_object, _store_object)
        result, needed = serialise_value(stored, "The returned value")
        return PublishedResult(result, awaits=tuple({task.id for task in needed}))

    async def _publish_value(self, value: object, data: TaskData) -> PublishedResult:
        """Store a value that contains no Objects: with the task if it is small, else as a table."""
        if isinstance(value, AsyncIterable | Iterator):
            await data.open()
            return await _publish_table(await create_object_from_value(value))
        try:
            rows = await asyncio.to_thread(_convert_typed, value) if _is_large(value) else _convert_typed(value)
        except DataError as error:
            raise PermanentError(f"The returned value cannot be stored. {error.what}", remedy=error.remedy) from error
        text = encode_converted(value, rows, self._max_literal_bytes)
        if text is not None:
            return _publish_literal(new_table_name(), text)
        _check_rows(value)
        await data.open()
        return await _publish_table(await create_object_from_rows(rows))

    async def _publish_object(self, obj: Object) -> PublishedResult:
        """Refer to an Object; one that is a literal of this attempt is stored with the task."""
        literal = obj.literal
        if literal is None or literal.is_result or isinstance(obj, View):
            return _publish_reference(obj)
        text = encode_rows(ArrowRows(literal.rows, literal.columns, obj.shape), MAX_ENCODED_BYTES)
        return await _publish_table(obj) if text is None else _publish_literal(obj.table_id, text)


def _check_value(running: RunningTask, value: object, function: Callable[..., object]) -> None:
    """Raise PermanentError for values that cannot be stored, or never end."""
    if isinstance(value, io.IOBase):
        raise PermanentError(
            "The returned value cannot be stored. It is an open file.", remedy="Return its content or its path."
        )
    if isinstance(value, Task) and not value.submitted and _is_same_call(running, value):
        raise PermanentError(
            "The function returned a call of itself with the same arguments, which would never end.",
            remedy="If it has several decorators, write @task above all others: it has to be the outermost one.",
        )
    _check_keys(value, function)


def _is_same_call(running: RunningTask, task: Task) -> bool:
    if task.entrypoint != running.claim.entrypoint:
        return False
    return json.loads(running.claim.kwargs) == json.loads(serialise_value(task.kwargs, "The returned task")[0])


def _check_keys(value: object, function: Callable[..., object]) -> None:
    """Raise PermanentError for keys that become text, unless the annotation of the function restores them."""
    for key in iter_other_keys(value):
        if find_adapter(return_annotation_of(function)) is None:
            name, type_name = getattr(function, "__name__", "the function"), type(key).__name__
            raise PermanentError(
                f"The returned value cannot be stored. A dict in it has the key {key!r:.60} of type {type_name}.",
                remedy=f"Keys are text unless an annotation restores them: def {name}(…) -> dict[{type_name}, …], and "
                "the same for the parameter that receives it.",
            )
        return


def _check_rows(value: object) -> None:
    """Raise PermanentError for a list of dicts with unlike keys, which a table would fill with None."""
    rows = cast("list[object]", value) if isinstance(value, list) else []
    if not rows or not isinstance(rows[0], dict):
        return
    keys = cast("dict[object, object]", rows[0]).keys()
    for number, row in enumerate(rows):
        if isinstance(row, dict) and (other_keys := cast("dict[object, object]", row).keys()) != keys:
            key = min(other_keys ^ keys, key=str)
            raise PermanentError(
                f"The returned value cannot be stored. Its rows have unlike keys: {key!r:.60} is in row "
                f"{number if key in other_keys else 0} and not in row {0 if key in other_keys else number}.",
                remedy="A value of this size becomes a table, whose rows have all columns: add the keys with None.",
            )


def _convert_typed(value: object) -> ArrowRows:
    """Convert a value to rows; types that neither columns nor JSON have are stored as plain values."""
    columns = to_columns(value) if contains_typed_value(value) else value
    try:
        return convert_value(columns)
    except DataError:
        try:
            return convert_value(to_plain(columns))
        except ConversionError:
            pass
        raise


async def _publish_table(obj: Object) -> PublishedResult:
    """Refer to an Object that is stored as a table: its text is too long for a literal, even if its rows are small."""
    await obj.store_literal()
    return _publish_reference(obj)


def _publish_reference(obj: Object) -> PublishedResult:
    return PublishedResult(json.dumps(obj.to_dict()))


def _publish_literal(table_id: str, text: str) -> PublishedResult:
    return PublishedResult(f'{{"object_type": "object", "table_id": "{table_id}"}}', text)


def _is_repeatable(value: object) -> bool:
    """Whether publishing can be retried: iterators can be read once, and tasks are added once."""
    if isinstance(value, AsyncIterable | Iterator) and not isinstance(value, Object):
        return False
    return all(task.submitted for task in iter_instances(value, Task))


async def _materialise(value: Object) -> Object:
    """Compute an Object; a View or a literal of this attempt that others cannot read as it is becomes a table."""
    obj = value if isinstance(value, View) else await value.materialize()
    literal = obj.literal
    if literal is not None and not literal.is_result and isinstance(obj, View):
        await obj.store_literal()
    return obj


async def _store_object(value: Object) -> Object:
    """Compute an Object inside of another value, and store it as a table unless it is a result already."""
    obj = await _materialise(value)
    literal = obj.literal
    if literal is not None and not literal.is_result:
        await obj.store_literal()
    return obj


def _is_large(value: object) -> bool:
    return hasattr(value, "__len__") and len(value) > MAX_INLINE_ITEMS  # pyright: ignore[reportArgumentType]


def _is_object(value: object) -> bool:
    return isinstance(value, Object)
