"""Failure paths of jobs: branches, failure handlers and final tasks.

    @task(on_failure=alert)
    def load(day: str) -> Object | Branch: ...

    @task
    def alert(failure: TaskFailure) -> None: ...

    @job(finally_=clean_up, on_failure=alert)
    def nightly(day: str) -> None: ...

Handlers are tasks of the job with `when="failed"` or `when="ended"`: the engine starts or skips them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

from aaiclick.errors import SubmitError
from aaiclick.orchestration.arguments import FAILURE_ARGUMENT
from aaiclick.orchestration.graph import Group, Node, Task
from aaiclick.orchestration.handlers import entrypoint_of
from aaiclick.orchestration.submit_plan import collect_unsubmitted
from aaiclick.store.task_options import DEFAULT_OPTIONS, HANDLER_RULES, TaskOptions, When

Handler: TypeAlias = Task | str | Callable[..., object]
"""A handler: a task, a task function, a function or its import path."""


class Branch:
    """Returned by a task to choose which of its dependents run; the others are skipped.

    Dependents are named by task functions, groups, or the names of functions and groups. `Branch()` skips all.
    """

    __slots__ = ("names",)

    def __init__(self, *chosen: Callable[..., object] | Group | str) -> None:
        self.names = tuple(_branch_name(node) for node in chosen)

    def __repr__(self) -> str:
        return f"Branch({', '.join(map(repr, self.names))})"


def _branch_name(node: Callable[..., object] | Group | str) -> str:
    if isinstance(node, str):
        return node
    return node.name if isinstance(node, Group) else entrypoint_of(_function_of(node))


def make_handler(handler: Handler, when: When, arguments: Mapping[str, object] | None = None) -> Task:
    """The task that runs a handler. Its first parameter is the failure, unless `arguments` names it."""
    if isinstance(handler, Task):
        handler.options = replace(handler.options, when=when)
        return handler
    if isinstance(handler, str):
        return Task(handler, {"failure": FAILURE_ARGUMENT}, options=replace(DEFAULT_OPTIONS, when=when))
    function = _function_of(handler)
    options: TaskOptions = getattr(handler, "task_options", DEFAULT_OPTIONS)
    kwargs = _handler_arguments(function, when, arguments or {})
    return Task(entrypoint_of(function), kwargs, name=function.__name__, options=replace(options, when=when))


def _function_of(handler: Callable[..., object]) -> Callable[..., object]:
    return cast("Callable[..., object]", getattr(handler, "function", handler))


def _handler_arguments(
    function: Callable[..., object], when: When, arguments: Mapping[str, object]
) -> dict[str, object]:
    """Arguments of the job that the function has parameters for, and the failure for its first other parameter."""
    kwargs: dict[str, object] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name in arguments:
            kwargs[name] = arguments[name]
        elif FAILURE_ARGUMENT not in kwargs.values() and (when == "failed" or name == "failure"):
            kwargs[name] = FAILURE_ARGUMENT
        elif parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            raise SubmitError(
                f"The handler {function.__qualname__}() has a parameter {name!r} without a value.",
                remedy="A handler has a parameter for the failure, and others that are named like those of the job.",
            )
    return kwargs


def add_handler(node: Node, handler: Handler, when: When) -> None:
    """Run a handler after the end of a task or group."""
    task = make_handler(handler, when)
    task.depends_on(node)
    node.handlers.append(task)


def make_job_handlers(
    nodes: Sequence[Node],
    finally_: Handler | None,
    on_failure: Handler | None,
    arguments: Mapping[str, object] | None = None,
) -> list[Task]:
    """Handlers of a whole job: they depend on all of its tasks, and the final task on the failure handler too."""
    handlers: list[Task] = []
    for handler, when in ((on_failure, "failed"), (finally_, "ended")):
        if handler is not None:
            task = make_handler(handler, cast("When", when), arguments)
            covered = [node for node in collect_unsubmitted(nodes) if isinstance(node, Task) and node is not task]
            task.depends_on(*covered, *handlers)
            handlers.append(task)
    return handlers


def is_handler(task: Task) -> bool:
    return task.options.when in HANDLER_RULES


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """The final failure of a task, as the argument of a failure handler or of a dependent of a non-critical task."""

    task_id: int
    type: str
    status: str
    attempt: int
    error: str

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> TaskFailure | None:
        """None for a final task that ran without a failure."""
        if "task_id" not in fields:
            return None
        return cls(int(fields["task_id"]), *(fields[name] for name in ("type", "status", "attempt", "error")))
