"""Debugging of tasks in the foreground: `breakpoint()` in tasks of this process, and attempts that are repeated.

A repeated attempt has its real inputs and changes nothing: it has no lease, its result is not stored, and the Objects
that it creates are dropped at its end.
"""

from __future__ import annotations

import inspect
import json
import pdb
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from aaiclick.data import DataContext, is_reference, open_reference
from aaiclick.data.io.annotations import convert_argument
from aaiclick.data.io.typed_values import annotations_of
from aaiclick.errors import NotFoundError
from aaiclick.orchestration.context import OrchContext
from aaiclick.orchestration.typed_arguments import restore_arguments
from aaiclick.orchestration.worker.argument_binding import map_leaves
from aaiclick.store.engine import queries


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


def _suspend_capture() -> bool:
    """Suspend the capture of output by pytest, which replaces `pdb.set_trace` by a method of its own."""
    plugins: Any = getattr(getattr(pdb.set_trace, "__self__", None), "_pluginmanager", None)
    capture = None if plugins is None else plugins.getplugin("capturemanager")
    if capture is not None:
        capture.suspend(in_=True)
    return capture is not None


async def repeat_task(task_id: int, load_function: Callable[[str], Callable[..., Any]]) -> Any:
    """Call the function of a task with its real arguments in this process; returns its value."""
    async with OrchContext() as context, DataContext():
        async with context.connection() as connection:
            row = await queries.get_task(connection, task_id)
            if row is None:
                raise NotFoundError(f"There is no task {task_id}.", remedy="'aaiclick tasks ls JOB' lists tasks.")
            arguments = json.loads(await queries.resolve_arguments(connection, row["job_id"], row["kwargs"]))
        function = load_function(row["entrypoint"] or row["type"])
        annotations = annotations_of(function)
        opened = cast("dict[str, Any]", await map_leaves(arguments, is_reference, open_reference))
        converted = {name: await convert_argument(value, annotations.get(name, Any)) for name, value in opened.items()}
        value = function(**restore_arguments(function, converted))
        return await value if inspect.isawaitable(value) else value
