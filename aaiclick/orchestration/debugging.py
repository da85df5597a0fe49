"""Debugging of tasks in the foreground: `breakpoint()` in tasks of this process, and attempts that are repeated.

A repeated attempt has its real inputs and changes nothing: it has no lease, its result is not stored, the Objects that
it creates are dropped at its end, and submits, events and changes of stored Objects are refused.
"""

from __future__ import annotations

import inspect
import json
import pdb
import sys
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from aaiclick.data import DataContext, is_reference, open_reference
from aaiclick.data.io.argument_conversion import convert_argument
from aaiclick.data.io.typed_values import annotations_of
from aaiclick.errors import ConflictError, NotFoundError
from aaiclick.orchestration.context import OrchContext
from aaiclick.orchestration.graph import Task
from aaiclick.orchestration.task_context import enter_repetition, leave_repetition
from aaiclick.orchestration.typed_arguments import restore_arguments
from aaiclick.orchestration.worker.argument_binding import map_leaves
from aaiclick.store.engine import queries
from aaiclick.tracebacks import is_user_error


@contextmanager
def breakpoints_on(stdout: TextIO) -> Generator[None]:
    """Let `breakpoint()` in tasks use the terminal, although the standard streams belong to the logs of tasks."""
    previous: Any = sys.breakpointhook

    def stop_at_caller(*_: object, **__: object) -> None:
        output = sys.__stdout__ if _suspend_capture() else stdout
        pdb.Pdb(stdin=sys.__stdin__, stdout=output).set_trace(sys._getframe(1))  # pyright: ignore[reportPrivateUsage]

    sys.breakpointhook = stop_at_caller
    try:
        yield
    finally:
        sys.breakpointhook = previous


def _find_capture() -> Any:
    """Capture of output by pytest, which replaces `pdb.set_trace` by a method of its own; None outside of pytest."""
    plugins: Any = getattr(getattr(pdb.set_trace, "__self__", None), "_pluginmanager", None)
    return None if plugins is None else plugins.getplugin("capturemanager")


def _suspend_capture() -> bool:
    capture = _find_capture()
    if capture is not None:
        capture.suspend(in_=True)
    return capture is not None


def find_post_mortem() -> Callable[[BaseException], None] | None:
    """Debugger for exceptions of tasks, if pytest runs with --pdb; tasks fail in a thread that pytest does not see."""
    config: Any = getattr(getattr(pdb.set_trace, "__self__", None), "_config", None)
    return _open_post_mortem if config is not None and config.getvalue("usepdb") else None


def _open_post_mortem(error: BaseException) -> None:
    if not is_user_error(error):
        return
    _suspend_capture()
    debugger = pdb.Pdb(stdin=sys.__stdin__, stdout=sys.__stdout__)
    debugger.reset()
    print("".join(traceback.format_exception_only(error)).rstrip(), file=sys.__stdout__)
    debugger.interaction(None, error.__traceback__)
    if (capture := _find_capture()) is not None:
        capture.resume()  # else pytest's own debugger, at the assertion after it, has no terminal


async def repeat_task(task_id: int, load_function: Callable[[str], Callable[..., Any]]) -> Any:
    """Call the function of a task with its real arguments in this process; returns its value."""
    async with OrchContext() as context, DataContext(protects_stored=True):
        async with context.connection() as connection:
            row = await queries.get_task(connection, task_id)
            if row is None:
                raise NotFoundError(f"There is no task {task_id}.", remedy="'aaiclick tasks ls JOB' lists tasks.")
            if row["definition_id"] is not None:
                raise ConflictError(
                    f"Task {task_id} is a step of a DAG, which reads and publishes datasets: it is not repeated alone.",
                    remedy="Call its function in a Python shell with the rows of 'aaiclick datasets query', or set "
                    "breakpoint() in it and run it with run_job_test.",
                )
            arguments = json.loads(await queries.resolve_arguments(connection, row["job_id"], row["kwargs"]))
        function = load_function(row["entrypoint"] or row["type"])
        annotations = annotations_of(function)
        opened = cast("dict[str, Any]", await map_leaves(arguments, is_reference, open_reference))
        converted = {name: await convert_argument(value, annotations.get(name, Any)) for name, value in opened.items()}
        token = enter_repetition()
        try:
            value = function(**restore_arguments(function, converted))
            return await value if inspect.isawaitable(value) and not isinstance(value, Task) else value
        finally:
            leave_repetition(token)
