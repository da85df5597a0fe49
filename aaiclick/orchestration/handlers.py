"""Registry of this process: handlers by task type, and functions that were used as tasks by entrypoint."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from aaiclick.errors import EntrypointError, SubmitError

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
