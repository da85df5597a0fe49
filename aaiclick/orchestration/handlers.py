"""Registry of this process: handlers by task type, and functions that were used as tasks by entrypoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from aaiclick.errors import EntrypointError

Function = Callable[..., Any]
F = TypeVar("F", bound=Function)

_handlers: dict[str, Function] = {}
_local_functions: dict[str, Function] = {}


def handler(task_type: str) -> Callable[[F], F]:
    """Register the decorated function for items of a type; its parameters are the fields of the payload.

    @handler("email:send")
    async def send(to: str, subject: str) -> None: ...

    await enqueue("email:send", {"to": "ada@example.org", "subject": "Hello"})
    """

    def register(function: F) -> F:
        registered = _handlers.setdefault(task_type, function)
        if registered is not function and _qualified_name(registered) != _qualified_name(function):
            raise EntrypointError(
                f"Two handlers for tasks of type {task_type!r}: {_qualified_name(registered)} and "
                f"{_qualified_name(function)}.",
                remedy="Give one of them another type.",
            )
        return function

    return register


def find_handler(task_type: str) -> Function:
    """The handler of a type; raises EntrypointError if this process has none."""
    if task_type not in _handlers:
        raise EntrypointError(
            f"This worker has no handler for tasks of type {task_type!r}.",
            remedy="Register one with @handler and name its module: aaiclick worker start --import MODULE.",
        )
    return _handlers[task_type]


def register_local_function(entrypoint: str, function: Function) -> None:
    """Remember the function object behind an entrypoint, for jobs that run in this process (`run_job_test`)."""
    _local_functions[entrypoint] = function


def local_function(entrypoint: str) -> Function | None:
    """The function object that this process made tasks of under that entrypoint."""
    return _local_functions.get(entrypoint)


def _qualified_name(function: Function) -> str:
    return f"{function.__module__}.{function.__qualname__}"
