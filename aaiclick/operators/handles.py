"""What authors call: each operator is a task that spreads the work when it runs, and stands for its result."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any

from aaiclick.data import Object, View, open_reference
from aaiclick.data.values import types_of
from aaiclick.errors import SubmitError
from aaiclick.operators.callbacks import parameters_of
from aaiclick.orchestration import Task, get_current_context, get_task
from aaiclick.orchestration.decorators import note_built
from aaiclick.orchestration.factories import entrypoint_of
from aaiclick.store.words import TaskStatus

CHUNK_ROWS = 100_000
"""Rows in a chunk unless said otherwise; docs/operators.md has the measurements."""

STEPS = "aaiclick.operators.steps"
OPTIONS = (
    "max_attempts",
    "timeout_seconds",
    "retry_policy",
    "queue",
    "priority",
    "concurrency_key",
    "concurrency_limit",
)


class Handle(Task):
    """The task that stands for the whole of a `map`, `reduce` or `foreach`: its result is the operator's.

    `await handle` submits it to the job of the current context (inside a task: the task's own) and gives the handle
    back; what waits for the result takes the handle as an argument.
    """

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, Handle]:
        return self._submitted().__await__()

    async def _submitted(self) -> Handle:
        if not self.submitted:
            self.kwargs["inputs"] = [await _as_table(each) for each in self.kwargs["inputs"]]
            await get_current_context().apply(self)
        return self

    async def object(self) -> Object:
        """The result, once it is there, as an Object of the current DataContext."""
        task = await get_task(self.id)
        if task.status is not TaskStatus.COMPLETED:
            raise SubmitError(
                f"{self} is {task.status.value}: it has no result yet.", remedy="Wait for its job to end."
            )
        return await open_reference(task.result)


async def _as_table(value: Any) -> Any:
    return await value if isinstance(value, Object) and not isinstance(value, View) else value


def map(  # noqa: A001  (the word of the requirements)
    callback: str | Callable[..., Any],
    *objects: Any,
    chunk_rows: int = CHUNK_ROWS,
    schema: Mapping[str, str | type] | None = None,
    options: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> Handle:
    """Call `callback` on every chunk of an Object; the result is one Object of all that it returned, in order.

    With several Objects, which must be of equal length, it gets a chunk of each. An Object may be a View, or a task
    that returns one. Chunks come as the annotations of the callback say (docs/operators.md), and with them `kwargs`.
    `schema` gives columns of the result other types than the first rows suggest; `options` are those of `create_task`
    for the tasks of the chunks.
    """
    types_of(schema)  # a wrong one is told of at once
    spec = {"schema": None if schema is None else {name: _type_name(kind) for name, kind in schema.items()}}
    return _handle("map", callback, objects, chunk_rows, options, kwargs, spec)


def foreach(
    callback: str | Callable[..., Any],
    *objects: Any,
    chunk_rows: int = CHUNK_ROWS,
    options: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> Handle:
    """Like `map`, for what the callback does and not for what it returns: the result is None."""
    return _handle("foreach", callback, objects, chunk_rows, options, kwargs, {})


def reduce(
    callback: str | Callable[..., Any],
    obj: Any,
    chunk_rows: int = CHUNK_ROWS,
    *,
    options: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> Handle:
    """Call `callback` on every chunk, then on chunks of what came out, and so on until one chunk is left; the result
    is what the callback returns for that one.

    The callback takes rows and returns fewer rows that it can take again, such as sums of sums.
    """
    return _handle("reduce", callback, (obj,), chunk_rows, options, kwargs, {})


def _handle(
    operator: str,
    callback: str | Callable[..., Any],
    objects: tuple[Any, ...],
    chunk_rows: int,
    options: Mapping[str, Any] | None,
    kwargs: Mapping[str, Any],
    spec: Mapping[str, Any],
) -> Handle:
    if not objects:
        raise SubmitError(f"{operator}() has nothing to work on.", remedy="Give an Object, a View, or a task.")
    if not isinstance(chunk_rows, int) or isinstance(chunk_rows, bool) or chunk_rows < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise SubmitError(
            f"{operator}() cannot make chunks of {chunk_rows!r} rows.", remedy="Use a whole number, 1 or more."
        )
    for given in objects:
        if not isinstance(given, Object | Task):
            raise SubmitError(
                f"{operator}() works on Objects, and was given {given!r:.60}.",
                remedy="Store it first (create_object_from_value), or give the task that returns an Object.",
            )
    if not isinstance(callback, str):
        parameters_of(callback, len(objects), kwargs)
    chosen = dict(options or {})
    unknown = sorted(set(chosen) - set(OPTIONS))
    if unknown:
        raise SubmitError(f"{operator}() has no options {unknown}.", remedy=f"There are: {', '.join(OPTIONS)}.")
    name = callback if isinstance(callback, str) else entrypoint_of(callback)
    arguments = {
        "callback": name, "inputs": list(objects), "chunk_rows": chunk_rows, "options": chosen,
        "extra": dict(kwargs), **spec,
    }  # fmt: skip
    place = {key: chosen[key] for key in ("queue", "priority") if key in chosen}
    made = Handle(f"{STEPS}.{operator}_rows", arguments, name=f"{operator} {name}", **place)
    note_built(made)
    return made


def _type_name(kind: str | type) -> str:
    return kind if isinstance(kind, str) else kind.__name__
