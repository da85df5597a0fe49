"""Request body for a job graph that was built locally."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from aaiclick.errors import SubmitError
from aaiclick.orchestration.decorators import JobFunction
from aaiclick.orchestration.graph import Node
from aaiclick.orchestration.job_labels import make_call_trigger, split_labels
from aaiclick.orchestration.submit_plan import collect_unsubmitted, make_plan
from aaiclick.store.engine.result_placeholders import resolve_placeholders, temporary_tables_in
from aaiclick.store.engine.submission_plan import NewTask


def build_job_graph(nodes: Sequence[Node]) -> dict[str, Any]:
    """Build `tasks` and `groups` of a job from nodes and all their predecessors."""
    plan, _ = make_plan(collect_unsubmitted(nodes))
    predecessors: dict[int, list[str]] = {}
    for predecessor, dependent in plan.edges:
        predecessors.setdefault(dependent, []).append(str(predecessor))
    results = {task.id: {"object_type": "task", "task": str(task.id)} for task in plan.tasks}
    groups = [
        {
            "key": str(group.id),
            "name": group.name,
            "parent": None if group.parent_group_id is None else str(group.parent_group_id),
            "depends_on": predecessors.get(group.id, []),
        }
        for group in plan.groups
    ]
    return {
        "tasks": [_build_task(task, predecessors.get(task.id, []), results) for task in plan.tasks],
        "groups": groups,
    }


async def build_job_options(function: JobFunction[...], arguments: Mapping[str, object]) -> dict[str, Any]:
    """Build the other fields of the request for a job that a `@job` has built from these arguments."""
    tags, owner = split_labels(function.labels)
    policy = function.policy
    options: dict[str, Any] = {
        "tags": tags,
        "owner": owner,
        "timeout_seconds": function.timeout_seconds,
        "concurrency": policy.concurrency,
        "when_busy": None if policy.concurrency is None else policy.when_busy,
        "deadline_seconds": policy.deadline_seconds,
        "pin_version": await function.find_pinned_version(),
    }
    if (trigger := make_call_trigger(function.function, arguments)) is not None:
        call = json.loads(trigger)
        options["call"] = {"entrypoint": call["entrypoint"], "arguments": call["arguments"]}
    return {name: value for name, value in options.items() if value is not None}


def _build_task(task: NewTask, predecessors: list[str], results: dict[int, dict[str, str]]) -> dict[str, Any]:
    kwargs = json.loads(task.kwargs)
    if temporary_tables_in(kwargs):
        raise SubmitError(
            f"An argument of {task.type} is a temporary Object of this process.",
            remedy="With a remote server, pass the name of a named Object, or create the Object in a task.",
        )
    return task.options.to_json() | {
        "key": str(task.id),
        "name": task.type,
        "entrypoint": task.entrypoint,
        "kwargs": resolve_placeholders(kwargs, results),
        "group": None if task.group_id is None else str(task.group_id),
        "depends_on": predecessors,
    }
