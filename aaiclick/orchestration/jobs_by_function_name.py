"""Jobs that are started by the name of their function: by a schedule, a form, a command or a request.

Their first task calls the function, which adds the other tasks and their handlers. If that task does not complete, the
job has none of them; a further task, added at the start, then runs `on_failure` and `finally_` of the function.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, cast

from aaiclick.orchestration.context import get_current_context
from aaiclick.orchestration.decorators import JobFunction
from aaiclick.orchestration.failure_argument import TaskFailure
from aaiclick.orchestration.task_context import current_scope
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.engine.rerun import HANDLERS_ENTRYPOINT
from aaiclick.store.engine.submission_plan import NewTask, Plan
from aaiclick.store.job_policy import JobPolicy
from aaiclick.store.task_options import DEFAULT_OPTIONS, TaskOptions


def make_named_plan(entrypoint: str, kwargs: str, policy: JobPolicy, options: TaskOptions = DEFAULT_OPTIONS) -> Plan:
    """The plan of a job that begins with a call of its function; `kwargs` is JSON text."""
    plan = Plan([NewTask(get_snowflake_id(), entrypoint, entrypoint, kwargs, options=options)], [], [])
    return add_function_handlers(plan, policy)


def add_function_handlers(plan: Plan, policy: JobPolicy) -> Plan:
    """The plan of one task, which calls a function with this policy, and of the task for its handlers."""
    if policy.handlers is None:
        return plan
    (builder,) = plan.tasks
    assert builder.entrypoint is not None  # noqa: S101
    arguments = {name: value for name, value in json.loads(builder.kwargs).items() if _is_plain(value)}
    kwargs = {
        "function": builder.entrypoint,
        "arguments": arguments,
        "builder_id": str(builder.id),
        "failure": {"object_type": "failure"},
    }
    options = TaskOptions(queue=builder.options.queue, when=policy.handlers)
    handler = NewTask(get_snowflake_id(), "job_handlers", HANDLERS_ENTRYPOINT, json.dumps(kwargs), options=options)
    return replace(plan, tasks=[builder, handler], edges=[(builder.id, handler.id)])


def _is_plain(value: object) -> bool:
    """Whether a value refers to no Object: handlers get their own references from tasks only."""
    return '"object_type"' not in json.dumps(value)


async def run_job_handlers(function: str, arguments: Any, builder_id: str, failure: TaskFailure | None) -> None:
    """Add the handlers of a function if its call has failed or was cancelled; else the call has added them."""
    scope = current_scope()
    assert scope is not None  # noqa: S101
    assert scope.resolve is not None  # noqa: S101
    results = await scope.gateway.task_results([int(builder_id)])
    builder = results.get(int(builder_id))
    # A call that has returned tasks has its result before they end, whatever their outcome.
    if builder is not None and (builder.completed_at is not None or builder.result is not None):
        return
    job_function = cast("JobFunction[...]", cast("Any", scope.resolve(function)).job_function)
    if tasks := job_function.make_handlers_of_failed_call(arguments, failure):
        await get_current_context().apply(tasks)
