"""From an author's graph to a plan of rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from aaiclick.errors import SubmitError
from aaiclick.orchestration.arguments import found_in, serialise
from aaiclick.orchestration.graph import Group, Node, Task
from aaiclick.orchestration.sharing import MARK
from aaiclick.settings import get_settings
from aaiclick.store.plan import NewGroup, NewTask, Plan

SLICE = 10_000
"""Items of a job that are held at once when they come from an iterator."""


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
                todo.extend(_needed(node))
    return sorted(found.values(), key=lambda node: node.id)


def _needed(task: Task) -> list[Task]:
    try:
        return list(found_in(task.kwargs, Task))
    except RecursionError:
        raise SubmitError(
            f"The arguments of {task} are nested without an end, or too deeply.", remedy="Flatten them."
        ) from None


def slices(items: Iterator[Node], job_id: int, size: int = SLICE) -> Iterator[tuple[list[Node], Plan, dict[int, str]]]:
    """Nodes, plan and names of `size` items each, as the author makes them; what has been handed on is let go of."""
    while batch := list(islice(items, size)):
        nodes = closure(batch)
        yield nodes, *make_plan(nodes)
        for node in nodes:
            node.job_id, node.submitted = job_id, True
            if isinstance(node, Task) and node.group is not None:
                node.group.members.clear()


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


SMALL = 32767
"""The largest smallint of PostgreSQL."""


def check_options(
    what: object,
    priority: int,
    max_attempts: int | None = None,
    timeout_seconds: float | None = None,
    concurrency_limit: int | None = None,
) -> None:
    """Refuse what no row can hold, or what could never run; `what` names the task in the message."""
    if not -SMALL - 1 <= priority <= SMALL:
        raise SubmitError(
            f"{what} has priority {priority}.", remedy=f"Priorities lie between {-SMALL - 1} and {SMALL}."
        )
    if max_attempts is not None and not 1 <= max_attempts <= SMALL:
        raise SubmitError(
            f"{what} would be tried {max_attempts} times.", remedy=f"max_attempts is 1 to {SMALL} (retries + 1)."
        )
    check_timeout(what, timeout_seconds)
    if concurrency_limit is not None and not 1 <= concurrency_limit < 1 << 31:
        raise SubmitError(f"{what} has concurrency_limit {concurrency_limit}.", remedy="It is 1 or more.")


def check_timeout(what: object, seconds: float | None) -> None:
    if seconds is not None and not 0 < seconds < float("inf"):
        raise SubmitError(f"{what} has timeout_seconds {seconds}.", remedy="Give a number of seconds above zero.")


def _task(task: Task, max_attempts: int) -> tuple[NewTask, list[Task]]:
    kwargs, needed = serialise(task.kwargs, str(task))
    check_options(task, task.priority, task.max_attempts, task.timeout_seconds, task.concurrency_limit)
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
        task.critical,
    )
    return new, needed
