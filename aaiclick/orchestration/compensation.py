"""Compensation (saga): completed steps of a failed job are undone, newest first.

    @task(compensate=release)
    def reserve(order: str) -> str: ...

    @task
    def release(order: str, result: str) -> None: ...

A job with such steps has one more failure handler. After the final failure it adds the compensations as a chain of
tasks, in the reverse order of the completions: each has its own retries, and waits for the one before it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, cast

from aaiclick.errors import SubmitError
from aaiclick.orchestration.argument_serialisation import FAILURE_ARGUMENT
from aaiclick.orchestration.context import get_current_context
from aaiclick.orchestration.failure_argument import TaskFailure
from aaiclick.orchestration.graph import Task
from aaiclick.orchestration.handler_registry import entrypoint_of
from aaiclick.orchestration.task_context import current_scope
from aaiclick.store.engine.queries import TaskResult
from aaiclick.store.engine.retry_and_redrive import COMPENSATOR
from aaiclick.store.task_options import DEFAULT_OPTIONS, TaskOptions

RESULT_PARAMETER = "result"


def describe_compensation(step: Task, compensate: Callable[..., object]) -> dict[str, object]:
    """The compensation of a step: the arguments of the step that it has parameters for, and `result`."""
    function = cast("Callable[..., object]", getattr(compensate, "function", compensate))
    options: TaskOptions = getattr(compensate, "task_options", DEFAULT_OPTIONS)
    available = {RESULT_PARAMETER: step} | step.kwargs
    parameters = inspect.signature(function).parameters
    missing = [
        name
        for name, parameter in parameters.items()
        if name not in available
        and parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if missing or not step.options.critical:
        what = f"has a parameter {missing[0]!r} without a value" if missing else "belongs to a step with critical=False"
        raise SubmitError(
            f"The compensation {function.__qualname__}() of {step.name}() {what}.",
            remedy=f"Its parameters are named like those of {step.name}(), or 'result'; a step that may fail has none.",
        )
    return {
        "task_id": str(step.id),
        "entrypoint": entrypoint_of(function),
        "arguments": {name: available[name] for name in parameters if name in available},
        "options": options.to_json(),
    }


def make_compensator(tasks: Sequence[Task]) -> Task | None:
    """The handler that undoes the steps among tasks; it waits for all critical ones."""
    steps = [describe_compensation(task, task.compensate) for task in tasks if task.compensate is not None]
    if not steps:
        return None
    arguments = {"steps": steps, "failure": FAILURE_ARGUMENT}
    compensator = Task(COMPENSATOR, arguments, name="compensate", options=TaskOptions(when="failed"))
    compensator.depends_on(*(task for task in tasks if task.options.critical))
    return compensator


async def run_compensations(steps: Any, failure: TaskFailure | None) -> None:
    """Add the compensations of the steps that have completed, the last one first."""
    scope = current_scope()
    assert scope is not None  # noqa: S101
    if failure is not None and not failure.critical:  # a step has the result of a task that may fail
        return
    results = await scope.gateway.task_results([int(step["task_id"]) for step in steps])
    tasks = [
        Task(step["entrypoint"], step["arguments"], options=DEFAULT_OPTIONS.with_json(step["options"]))
        for step in list_completed_steps(steps, results)
    ]
    for first, following in pairwise(tasks):
        following.depends_on(first)
    if tasks:
        await get_current_context().apply(tasks)


def list_completed_steps(steps: Sequence[Any], results: Mapping[int, TaskResult]) -> list[Any]:
    """The steps that have completed, the last one first."""
    ended = {task_id: result.completed_at for task_id, result in results.items() if result.completed_at is not None}
    completed = [step for step in steps if int(step["task_id"]) in ended]
    return sorted(completed, key=lambda step: (ended[int(step["task_id"])], int(step["task_id"])), reverse=True)
