"""Public operators. Each returns a Handle: a task that creates the chunk tasks when it runs."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any

from aaiclick.data import Object, View, open_reference
from aaiclick.data.io.to_arrow import parse_schema
from aaiclick.errors import SubmitError
from aaiclick.operators.callback_signatures import chunk_parameters
from aaiclick.orchestration import Task, get_current_context, get_task
from aaiclick.orchestration.decorators import add_to_built_job
from aaiclick.orchestration.handler_registry import entrypoint_of
from aaiclick.store.enums import DEFAULT_QUEUE, TaskStatus
from aaiclick.store.task_options import TaskKeywords, TaskOptions

CHUNK_ROWS = 100_000
"""Default number of rows of a chunk; measurements are in docs/operators.md."""

CHUNK_TASKS_MODULE = "aaiclick.operators.chunk_tasks"
CHUNK_OPTIONS = sorted(TaskKeywords.__annotations__.keys() - {"run_at", "critical"})
"""Options of chunk tasks, which start at once and are all needed for the result."""


class Handle(Task):
    """Task of a `map`, `reduce` or `foreach`; its result is the operator's result.

    `await handle` submits it to the job of the current context (inside a task: the task's job) and returns the handle.
    Tasks that need the result take the handle as an argument.

    ```python
    @task
    async def print_doubled(numbers: Object) -> None:
        doubled = await map(double, numbers)
        print(doubled.id)
    ```
    """

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, Handle]:
        return self._ensure_submitted().__await__()

    async def _ensure_submitted(self) -> Handle:
        if not self.submitted:
            self.kwargs["inputs"] = [await _as_table(value) for value in self.kwargs["inputs"]]
            await get_current_context().apply(self)
        return self

    async def object(self) -> Object:
        """Open the result as an Object of the current DataContext; raise SubmitError before the task has completed."""
        task = await get_task(self.id)
        if task.status is not TaskStatus.COMPLETED:
            raise SubmitError(
                f"{self!r} is {task.status.value}: it has no result yet.", remedy="Wait for its job to end."
            )
        return await open_reference(task.result)


async def _as_table(value: object) -> object:
    return await value if isinstance(value, Object) and not isinstance(value, View) else value


def map(  # noqa: A001  (the word of the requirements)
    callback: str | Callable[..., object],
    *objects: object,
    chunk_rows: int = CHUNK_ROWS,
    schema: Mapping[str, str | type] | None = None,
    options: TaskKeywords | None = None,
    **kwargs: object,
) -> Handle:
    """Call `callback` on every chunk of an Object; the result is one Object of all returned rows, in order.

    With several Objects of equal length, the callback gets a chunk of each. An Object may be a View, or a task that
    returns one. Chunks are passed in the form of the callback's annotations (docs/operators.md), together with
    `kwargs`. `schema` overrides inferred column types of the result; `options` are `create_task` options of the chunk
    tasks.

    ```python
    numbers = await create_object_from_value({"x": [1, 2, 3]})
    await create_job("double", map(double, numbers, chunk_rows=2))
    ```
    """
    parse_schema(schema)  # raises for an invalid schema now, not in the tasks
    spec = {"schema": None if schema is None else {name: _type_name(dtype) for name, dtype in schema.items()}}
    return _build_handle("map", callback, objects, chunk_rows, options, kwargs, spec)


def foreach(
    callback: str | Callable[..., object],
    *objects: object,
    chunk_rows: int = CHUNK_ROWS,
    options: TaskKeywords | None = None,
    **kwargs: object,
) -> Handle:
    """Call `callback` on every chunk for its side effects; the result is None.

    ```python
    numbers = await create_object_from_value({"x": [1, 2, 3]})
    await create_job("store", foreach(store, numbers, options={"retries": 5}))
    ```
    """
    return _build_handle("foreach", callback, objects, chunk_rows, options, kwargs, {})


def reduce(
    callback: str | Callable[..., object],
    obj: object,
    chunk_rows: int = CHUNK_ROWS,
    *,
    options: TaskKeywords | None = None,
    **kwargs: object,
) -> Handle:
    """Tree reduction: call `callback` on every chunk, then on chunks of the results, until one chunk is left.

    The callback must return fewer rows than it gets, in the same columns, such as sums of sums. The result is the
    value returned for the last chunk.

    ```python
    numbers = await create_object_from_value({"x": [1, 2, 3]})
    await create_job("add", reduce(add, numbers, chunk_rows=2))
    ```
    """
    return _build_handle("reduce", callback, (obj,), chunk_rows, options, kwargs, {})


def _build_handle(
    operator: str,
    callback: str | Callable[..., object],
    objects: tuple[object, ...],
    chunk_rows: int,
    options: TaskKeywords | None,
    kwargs: Mapping[str, object],
    spec: Mapping[str, object],
) -> Handle:
    if not objects:
        raise SubmitError(f"{operator}() needs at least one Object.", remedy="Pass an Object, a View, or a task.")
    if not isinstance(chunk_rows, int) or isinstance(chunk_rows, bool) or chunk_rows < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise SubmitError(
            f"{operator}() cannot make chunks of {chunk_rows!r} rows.", remedy="Use an integer of 1 or more."
        )
    for value in objects:
        if not isinstance(value, Object | Task):
            raise SubmitError(
                f"{operator}() takes Objects, not {value!r:.60}.",
                remedy="Store it first (create_object_from_value), or pass the task that returns an Object.",
            )
    if not isinstance(callback, str):
        chunk_parameters(callback, len(objects), kwargs)
    chosen: TaskKeywords = {**options} if options else {}
    unknown = sorted(set(chosen) - set(CHUNK_OPTIONS))
    if unknown:
        raise SubmitError(f"{operator}() has no options {unknown}.", remedy=f"Options: {', '.join(CHUNK_OPTIONS)}.")
    name = callback if isinstance(callback, str) else entrypoint_of(callback)
    arguments = {
        "callback": name, "inputs": list(objects), "chunk_rows": chunk_rows, "options": chosen,
        "extra": dict(kwargs), **spec,
    }  # fmt: skip
    own_options = TaskOptions(queue=chosen.get("queue", DEFAULT_QUEUE), priority=chosen.get("priority", 0))
    entrypoint = f"{CHUNK_TASKS_MODULE}.{operator}_rows"
    handle = Handle(entrypoint, arguments, name=f"{operator} {name}", options=own_options)
    add_to_built_job(handle)
    return handle


def _type_name(dtype: str | type) -> str:
    return dtype if isinstance(dtype, str) else dtype.__name__
