"""From an author's graph to a plan of rows."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from aaiclick.errors import SubmitError
from aaiclick.orchestration.arguments import serialise, tasks_in
from aaiclick.orchestration.graph import Group, Node, Task
from aaiclick.orchestration.sharing import MARK
from aaiclick.settings import get_settings
from aaiclick.store.plan import NewGroup, NewTask, Plan


def closure(items: Iterable[Node]) -> list[Node]:
    """`items` with everything they need and that is not submitted: predecessors, groups around, members inside."""
    found: dict[int, Node] = {}
    todo = list(items)
    while todo:
        node = todo.pop()
        if node.id in found or node.submitted:
            continue
        found[node.id] = node
        todo.extend(node.previous)
        if isinstance(node, Group):
            todo.extend(node.members)
            if node.parent is not None:
                todo.append(node.parent)
        elif isinstance(node, Task):
            if node.group is not None:
                todo.append(node.group)
            if node.kwargs:
                todo.extend(tasks_in(node.kwargs))
    return sorted(found.values(), key=lambda node: node.id)


def make_plan(nodes: Iterable[Node]) -> tuple[Plan, dict[int, str]]:
    """The rows of `nodes`, and the names of everything they mention."""
    tasks: list[NewTask] = []
    groups: list[NewGroup] = []
    edges: list[tuple[int, int]] = []
    names: dict[int, str] = {}
    max_attempts = get_settings().worker_max_retries + 1
    for node in nodes:
        names[node.id] = node.name
        if isinstance(node, Group):
            groups.append(NewGroup(node.id, node.name, node.parent_group_id))
        elif isinstance(node, Task):
            new, needed = _task(node, max_attempts)
            tasks.append(new)
            for upstream in needed:
                names[upstream.id] = upstream.name
                edges.append((upstream.id, node.id))
        for previous in node.previous:
            names[previous.id] = previous.name
            edges.append((previous.id, node.id))
    return Plan(tasks, groups, edges), names


def arguments_of(plan: Plan, nodes: Iterable[Node]) -> list[tuple[int, Any]]:
    """The arguments of those tasks that are given an Object or View; most are not, and are not looked into."""
    with_tables = {task.id for task in plan.tasks if MARK in task.kwargs}
    return [(node.id, node.kwargs) for node in nodes if node.id in with_tables and isinstance(node, Task)]


def _task(task: Task, max_attempts: int) -> tuple[NewTask, list[Task]]:
    kwargs, needed = serialise(task.kwargs, str(task))
    if not -32768 <= task.priority <= 32767:
        raise SubmitError(f"{task} has priority {task.priority}.", remedy="Priorities lie between -32768 and 32767.")
    new = NewTask(
        task.id,
        task.type,
        task.entrypoint,
        kwargs,
        task.group_id,
        task.queue,
        task.priority,
        task.max_attempts or max_attempts,
        task.timeout_seconds,
        None if task.retry_policy is None else json.dumps(task.retry_policy),
        task.run_at,
        task.idempotency_key,
        task.concurrency_key,
        task.concurrency_limit,
    )
    return new, needed
