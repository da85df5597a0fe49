"""Convert tasks and groups to a Plan: the rows of a submit."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from itertools import islice

from aaiclick.errors import SubmitError
from aaiclick.orchestration.argument_serialisation import iter_instances, serialise_arguments
from aaiclick.orchestration.argument_tables import TABLE_ID_KEY
from aaiclick.orchestration.graph import Group, Node, Task
from aaiclick.store.engine.submission_plan import NewGroup, NewTask, Plan
from aaiclick.store.name_and_key_limits import check_key
from aaiclick.store.task_options import DEFAULT_OPTIONS

_ID, _TABLE = re.compile(r"\d{15,19}"), re.compile(r"\bt\d{15,19}\b")
SLICE_SIZE = 10_000
"""Items per slice when a job is submitted from an iterator."""


def collect_unsubmitted(items: Iterable[Node]) -> list[Node]:
    """`items` and all unsubmitted nodes that belong to them: predecessors, handlers, enclosing groups, members."""
    nodes_by_id: dict[int, Node] = {}
    pending = list(items)
    while pending:
        node = pending.pop()
        if node.id in nodes_by_id or node.submitted:
            continue
        nodes_by_id[node.id] = node
        pending.extend(node.predecessors)
        pending.extend(node.handlers)
        if isinstance(node, Group):
            pending.extend(node.members)
            if node.parent is not None:
                pending.append(node.parent)
        elif isinstance(node, Task):
            if node.group is not None:
                pending.append(node.group)
            if node.kwargs:
                pending.extend(_argument_tasks(node))
    return sorted(nodes_by_id.values(), key=lambda node: node.id)


def _argument_tasks(task: Task) -> list[Task]:
    try:
        return list(iter_instances(task.kwargs, Task))
    except RecursionError:
        raise SubmitError(
            f"The arguments of {task!r} are nested too deeply, or contain themselves.", remedy="Flatten them."
        ) from None


def iter_slices(
    items: Iterator[Node], job_id: int, size: int = SLICE_SIZE
) -> Iterator[tuple[list[Node], Plan, dict[int, str]]]:
    """Nodes, plan and names of slices of `size` items; groups drop submitted members to save memory."""
    while batch := list(islice(items, size)):
        nodes = collect_unsubmitted(batch)
        yield nodes, *make_plan(nodes)
        for node in nodes:
            node.job_id, node.submitted = job_id, True
            if isinstance(node, Task) and node.group is not None:
                node.group.members.clear()


def make_plan(nodes: Iterable[Node]) -> tuple[Plan, dict[int, str]]:
    """Plan of `nodes`, and the names of these and of their predecessors."""
    tasks: list[NewTask] = []
    groups: list[NewGroup] = []
    edges: list[tuple[int, int]] = []
    names: dict[int, str] = {}
    checked_options = DEFAULT_OPTIONS
    checked_types: set[str] = set()
    for node in nodes:
        names[node.id] = node.name
        if isinstance(node, Group):
            groups.append(NewGroup(node.id, node.name, node.parent_group_id))
        elif isinstance(node, Task):
            if node.options is not checked_options:
                checked_options = node.options
                checked_options.check(repr(node))
            if node.type not in checked_types:
                check_key(f"The task {node.name!r:.80} has an import path that", node.type)
                checked_types.add(node.type)
            new_task, required_tasks = _make_new_task(node)
            tasks.append(new_task)
            for upstream in required_tasks:
                names[upstream.id] = upstream.name
                edges.append((upstream.id, node.id))
        for previous in node.predecessors:
            names[previous.id] = previous.name
            edges.append((previous.id, node.id))
    return Plan(tasks, groups, edges), names


def table_arguments(plan: Plan, nodes: Iterable[Node]) -> list[tuple[int, object]]:
    """Arguments of tasks that contain an Object or View; others are skipped by a text search."""
    with_tables = {task.id for task in plan.tasks if TABLE_ID_KEY in task.kwargs}
    return [(node.id, node.kwargs) for node in nodes if node.id in with_tables and isinstance(node, Task)]


def _make_new_task(task: Task) -> tuple[NewTask, list[Task]]:
    kwargs, required_tasks = serialise_arguments(task.kwargs, f"{task.name}()")
    new_task = NewTask(task.id, task.type, task.entrypoint, kwargs, task.group_id, task.idempotency_key, task.options)
    return new_task, required_tasks


def digest_plan(plan: Plan) -> str:
    """Digest of the functions, arguments and edges of a plan, without ids and tables, which each attempt creates."""
    numbers = {str(node.id): str(number) for number, node in enumerate([*plan.tasks, *plan.groups])}
    tasks = [
        (task.entrypoint, _TABLE.sub("t", _ID.sub(lambda i: numbers.get(i[0], i[0]), task.kwargs)))
        for task in plan.tasks
    ]
    edges = sorted((numbers.get(str(a), str(a)), numbers.get(str(b), str(b))) for a, b in plan.edges)
    return hashlib.sha256(json.dumps([tasks, edges]).encode()).hexdigest()[:32]
