"""A graph of tasks that was built here, in the form that the API takes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from aaiclick.errors import SubmitError
from aaiclick.orchestration.graph import Node
from aaiclick.orchestration.planning import closure, make_plan
from aaiclick.store.plan import NewTask
from aaiclick.store.references import resolve, tables_in

MANNER = ("queue", "priority", "max_attempts", "timeout_seconds", "concurrency_key", "concurrency_limit", "critical")


def graph_of(nodes: Sequence[Node]) -> dict[str, Any]:
    """`tasks` and `groups` of a job, with everything that these nodes wait for."""
    plan, _ = make_plan(closure(nodes))
    before: dict[int, list[str]] = {}
    for previous, following in plan.edges:
        before.setdefault(following, []).append(str(previous))
    results = {task.id: {"object_type": "task", "task": str(task.id)} for task in plan.tasks}
    groups = [
        {
            "key": str(group.id),
            "name": group.name,
            "parent": None if group.parent_group_id is None else str(group.parent_group_id),
            "depends_on": before.get(group.id, []),
        }
        for group in plan.groups
    ]
    return {"tasks": [_task(task, before.get(task.id, []), results) for task in plan.tasks], "groups": groups}


def _task(task: NewTask, before: list[str], results: dict[int, dict[str, str]]) -> dict[str, Any]:
    given = json.loads(task.kwargs)
    if tables_in(given):
        raise SubmitError(
            f"An argument of {task.type} is an Object of this process.",
            remedy="From afar, pass the name of a named Object, or make it in a task.",
        )
    manner = {name: value for name in MANNER if (value := getattr(task, name)) is not None}
    if task.retry_policy is not None:
        manner["retry_policy"] = json.loads(task.retry_policy)
    if task.available_at is not None:
        manner["run_at"] = task.available_at.isoformat()
    return manner | {
        "key": str(task.id),
        "name": task.type,
        "entrypoint": task.entrypoint,
        "kwargs": resolve(given, results),
        "group": None if task.group_id is None else str(task.group_id),
        "depends_on": before,
    }
