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
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias, cast

from aaiclick.errors import SubmitError
from aaiclick.orchestration.argument_serialisation import FAILURE_ARGUMENT, FailureArgument
from aaiclick.orchestration.compensation import make_compensator
from aaiclick.orchestration.failure_argument import TaskFailure
from aaiclick.orchestration.graph import Group, Node, Task
from aaiclick.orchestration.handler_registry import entrypoint_of
from aaiclick.orchestration.submit_plan import collect_unsubmitted
from aaiclick.orchestration.typed_arguments import to_plain_arguments
from aaiclick.store.engine.retry_and_redrive import COMPENSATOR
from aaiclick.store.task_options import DEFAULT_OPTIONS, HANDLER_RULES, TaskOptions, When

Handler: TypeAlias = Task | str | Callable[..., object]
"""A handler: a task, a task function, a function or its import path."""


class Branch:
    """Returned by a task to choose which of its dependents run; the others are skipped.

    Dependents are named by task functions, groups, or the names of functions and groups. `Branch()` skips all.

    ```python
    @task
    def choose(numbers: list[int]) -> Branch:
        return Branch(total) if numbers else Branch()
    ```
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


def check_handler(handler: object, option: str) -> None:
    """Raise SubmitError for a value that is no handler."""
    if handler is None or isinstance(handler, Task) or callable(handler):
        return
    if not isinstance(handler, str) or "." not in handler:
        raise SubmitError(
            f"The option {option} has the value {handler!r:.60}.",
            remedy="Give a function, or the import path of one: package.module.function.",
        )


def make_handler(handler: Handler, when: When, arguments: Mapping[str, object] | None = None) -> Task:
    """The task that runs a handler. Its first parameter is the failure, unless `arguments` names it."""
    if isinstance(handler, Task):
        handler.options = replace(handler.options, when=when)
        return handler
    if isinstance(handler, str):
        return Task(handler, {"failure": FAILURE_ARGUMENT}, options=replace(DEFAULT_OPTIONS, when=when))
    function = _function_of(handler)
    if not callable(function):
        raise SubmitError(f"{handler!r:.60} is no handler.", remedy="Give a function, or its import path.")
    options: TaskOptions = getattr(handler, "task_options", DEFAULT_OPTIONS)
    kwargs = _handler_arguments(function, when, arguments or {})
    return Task(entrypoint_of(function), kwargs, name=function.__name__, options=replace(options, when=when))


def _function_of(handler: Callable[..., object]) -> Callable[..., object]:
    return cast("Callable[..., object]", getattr(handler, "function", handler))


def _handler_arguments(
    function: Callable[..., object], when: When, arguments: Mapping[str, object]
) -> dict[str, object]:
    """Arguments of the job that the function has parameters for, and the failure for its first other parameter."""
    parameters = inspect.signature(function).parameters
    job_arguments = {name: arguments[name] for name in parameters if name in arguments}
    if not _is_json(job_arguments):
        job_arguments = to_plain_arguments(function, job_arguments)
    kwargs: dict[str, object] = {}
    for name, parameter in parameters.items():
        if name in job_arguments:
            kwargs[name] = job_arguments[name]
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


def _is_json(value: object) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


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
    """Handlers of a whole job: they depend on all of its tasks, and the final task on the other handlers too."""
    handlers: list[Task] = []
    if any(is_compensator(node) for node in nodes):  # the handlers of a @job were made by its function
        return handlers
    compensator = make_compensator([node for node in collect_unsubmitted(nodes) if isinstance(node, Task)])
    for handler, when in ((on_failure, "failed"), (finally_, "ended")):
        if handler is not None:
            task = make_handler(handler, cast("When", when), arguments)
            covered = [node for node in collect_unsubmitted(nodes) if isinstance(node, Task) and node is not task]
            task.depends_on(*covered, *handlers)
            handlers.append(task)
        if when == "failed" and compensator is not None:
            handlers.append(compensator)
    return handlers


def has_compensation(nodes: Sequence[Node]) -> bool:
    """Whether a task of a job is undone after a failure, and the handler for it is missing."""
    tasks = [node for node in collect_unsubmitted(nodes) if isinstance(node, Task)]
    return any(task.compensate is not None for task in tasks) and not any(map(is_compensator, tasks))


def is_compensator(node: Node) -> bool:
    return isinstance(node, Task) and node.entrypoint == COMPENSATOR


def is_handler(task: Task) -> bool:
    return task.options.when in HANDLER_RULES


def make_failure_tasks(
    on_failure: Handler | None, finally_: Handler | None, arguments: Mapping[str, object], failure: TaskFailure | None
) -> list[Task]:
    """The handlers of a job of which the first task failed or was cancelled, as tasks that run one after the other."""
    tasks: list[Task] = []
    for handler in (None if failure is None else on_failure, finally_):
        if handler is not None:
            task = make_handler(handler, "failed", arguments)
            task.kwargs = {
                name: failure if isinstance(value, FailureArgument) else value for name, value in task.kwargs.items()
            }
            # Not critical: the job has failed already, and a failed handler does not stop the next one.
            task.options = replace(task.options, when=None, critical=False)
            task.depends_on(*tasks)
            tasks.append(task)
    return tasks
