"""Registry of this process: handlers by task type, and functions that were used as tasks by entrypoint."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Never, TypeVar, get_args, get_origin, get_type_hints

from aaiclick.cron import parse_interval
from aaiclick.errors import EntrypointError, SubmitError
from aaiclick.orchestration.decorator_checks import check_keywords
from aaiclick.store.task_options import TaskKeywords

Function = Callable[..., Any]
F = TypeVar("F", bound=Function)

MAX_BATCH_ITEMS = 1_000
MAX_WITHIN_SECONDS = 60.0

_handlers: dict[str, Function] = {}
_batches: dict[Function, BatchOptions] = {}
_local_functions: dict[str, Function] = {}


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """A handler that receives many items at once."""

    function: Function
    size: int
    within_seconds: float
    item_type: Any
    """Annotation of an item; None: the payload as it is."""


def handler(task_type: str, *, batch: int | None = None, within: str = "1s", **unknown: Never) -> Callable[[F], F]:
    """Register the decorated function for items of a type; its parameters are the fields of the payload.

    With `batch`, its only parameter is a list of up to so many payloads, which a worker has collected `within` that
    time. It returns a list with one result or exception for each item, or raises an exception for all of them.

    ```python
    @handler("email:send")
    async def send(to: str, subject: str) -> None: ...

    await enqueue("email:send", {"to": "ada@example.org", "subject": "Hello"})
    ```
    """
    if not isinstance(task_type, str) or not task_type:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise SubmitError("@handler has no type of items.", remedy='Name it: @handler("mail:send").')
    for option in unknown:
        is_of_items = option in TaskKeywords.__annotations__
        elsewhere = f"{option!r} is an option of enqueue() and enqueue_many()." if is_of_items else ""
        check_keywords({option: None}, ("batch", "within"), "@handler", elsewhere)

    def register(function: F) -> F:
        entry = function if batch is None else _make_batch_entry(function, task_type, batch, within)
        registered = _handlers.setdefault(task_type, entry)
        if registered is not entry and _qualified_name(registered) != _qualified_name(function):
            raise EntrypointError(
                f"Two handlers for tasks of type {task_type!r}: {_qualified_name(registered)} and "
                f"{_qualified_name(function)}.",
                remedy="Give one of them another type.",
            )
        return function

    return register


def _make_batch_entry(function: Function, task_type: str, size: int, within: str) -> Function:
    """A function with the name of a batch handler and any parameters, for one item."""
    seconds = parse_interval(within).total_seconds()
    if not 1 <= size <= MAX_BATCH_ITEMS or seconds > MAX_WITHIN_SECONDS:
        raise EntrypointError(
            f"The handler of type {task_type!r} has batches of {size} items within {within}.",
            remedy=f"A batch has 1 to {MAX_BATCH_ITEMS} items, and is collected within {MAX_WITHIN_SECONDS:.0f}s.",
        )
    [*parameters] = inspect.signature(function).parameters.values()
    if len(parameters) != 1:
        raise EntrypointError(
            f"The batch handler {_qualified_name(function)} has {len(parameters)} parameters.",
            remedy="It has one: the list of payloads.",
        )
    item_types = get_args(get_type_hints(function).get(parameters[0].name))
    is_plain = not item_types or (get_origin(item_types[0]) or item_types[0]) in (dict, Any, object)

    async def run_item(**payload: Any) -> Any:
        raise NotImplementedError  # the worker calls the handler with all items of a batch

    run_item.__module__, run_item.__qualname__ = function.__module__, function.__qualname__
    _batches[run_item] = BatchOptions(function, size, seconds, None if is_plain else item_types[0])
    return run_item


def find_batch(function: Function) -> BatchOptions | None:
    """Options of a batch handler, by the function that `find_handler` returns."""
    return _batches.get(function)


def has_handler(task_type: str) -> bool:
    """Whether this process has imported a handler of a type."""
    return task_type in _handlers


def find_handler(task_type: str) -> Function:
    """The handler of a type; raises EntrypointError if this process has none."""
    if task_type not in _handlers:
        raise EntrypointError(
            f"This worker has no handler for tasks of type {task_type!r}.",
            remedy="Register one with @handler and name its module: aaiclick worker start --import MODULE, or "
            "AAICLICK_TASK_MODULES.",
        )
    return _handlers[task_type]


def entrypoint_of(function: Callable[..., object]) -> str:
    """Import path of a function; raises SubmitError if another process could not import it."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not module or not name or "<" in name:
        raise SubmitError(
            f"{function!r} cannot be run by another process.",
            remedy="Use a function defined at the top of a module, or its import path.",
        )
    entrypoint = f"{_module_name(module)}.{name}"
    register_local_function(entrypoint, function)
    return entrypoint


def _module_name(module: str) -> str:
    """Name by which another process imports a module; for a script, the name of its file.

    Without one (a notebook, or a file name that is no identifier) it stays `__main__`: only `run_job_test` of this
    process can run such a function.
    """
    if module != "__main__":
        return module
    main = sys.modules["__main__"]
    if main.__spec__ is not None:
        return main.__spec__.name  # python -m
    stem = Path(getattr(main, "__file__", None) or "").stem
    return stem if stem.isidentifier() else module


def register_local_function(entrypoint: str, function: Function) -> None:
    """Remember the function object behind an entrypoint, for jobs that run in this process (`run_job_test`)."""
    _local_functions[entrypoint] = function


def local_function(entrypoint: str) -> Function | None:
    """The function object that this process made tasks of under that entrypoint."""
    return _local_functions.get(entrypoint)


def _qualified_name(function: Function) -> str:
    return f"{function.__module__}.{function.__qualname__}"
