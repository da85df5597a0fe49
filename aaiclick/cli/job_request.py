"""Request body for a job graph that was built locally."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from aaiclick.errors import SubmitError
from aaiclick.orchestration.graph import Node
from aaiclick.orchestration.submit_plan import collect_unsubmitted, make_plan
from aaiclick.store.engine.plan import NewTask
from aaiclick.store.engine.result_placeholders import resolve_placeholders, temporary_tables_in


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
