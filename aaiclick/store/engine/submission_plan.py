"""Submission plans: cycle check and initial counters, as pure functions over plain values.

A group is two vertices, its opening and its completion; members lie between them. `A >> B` means that B's opening comes
after A's completion, so a cycle through groups is a cycle like any other.

The counters are those of docs/internals/engine.md: a task's `unmet` counts predecessors that have not completed; a
group's also counts its parent while that is closed; a group's `open` counts members that have not completed. An open
group without open members is complete; an empty one is complete at once.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from aaiclick.errors import CycleError, SubmitError
from aaiclick.store.enums import RUNTIME_QUEUE, VERSION_QUEUE
from aaiclick.store.task_options import DEFAULT_OPTIONS, HANDLER_RULES, TaskOptions


@dataclass(slots=True)
class NewTask:
    """A task to insert; `kwargs` is JSON text."""

    id: int
    type: str
    entrypoint: str | None = None
    kwargs: str = "{}"
    group_id: int | None = None
    idempotency_key: str | None = None
    options: TaskOptions = DEFAULT_OPTIONS


@dataclass(slots=True)
class NewGroup:
    id: int
    name: str
    parent_group_id: int | None = None


@dataclass(slots=True)
class Plan:
    """Nodes and edges that one submit inserts. `edges` are (previous, next); tasks and groups share one id space."""

    tasks: Sequence[NewTask]
    groups: Sequence[NewGroup] = ()
    edges: Sequence[tuple[int, int]] = ()
    tables: Sequence[tuple[int, str]] = ()
    """(task, table) of the Objects and Views in the arguments."""
    session_tables: Mapping[str, int] = field(default_factory=dict[str, int])
    """Those tables that PostgreSQL does not know yet: table → session that holds it in ClickHouse."""


@dataclass(frozen=True, slots=True)
class ExistingNodes:
    """Nodes in the database that the plan refers to."""

    tasks: Mapping[int, bool] = field(default_factory=dict[int, bool])
    """Task → whether it has completed."""
    groups: Mapping[int, tuple[bool, bool]] = field(default_factory=dict[int, tuple[bool, bool]])
    """Group → whether it has opened, whether it has completed."""


@dataclass(slots=True)
class Counters:
    unmet: Counter[int]
    open: Counter[int]
    opened: set[int]
    completed: set[int]
    with_dependents: set[int]

    @classmethod
    def empty(cls) -> Counters:
        return cls(Counter(), Counter(), set(), set(), set())


def pinned_version(queue: str) -> str | None:
    """Version of the code in the name of a queue of pinned tasks."""
    return queue.split(":")[2] if queue.startswith(VERSION_QUEUE) else None


def pin_plan(plan: Plan, version: str) -> None:
    """Let only workers with a version of the code claim the tasks of a plan; those of runtimes stay as they are."""
    pinned: dict[TaskOptions, TaskOptions] = {}
    for task in plan.tasks:
        if not task.options.queue.startswith(RUNTIME_QUEUE):
            queue = f"{VERSION_QUEUE}{version.replace(':', '_')}:{task.options.queue}"
            task.options = pinned.setdefault(task.options, replace(task.options, queue=queue))


def list_handlers(plan: Plan) -> set[int]:
    """The handlers of a plan: tasks that wait for the end of their predecessors, not for their success."""
    return {task.id for task in plan.tasks if task.options.when in HANDLER_RULES}


def expand_handler_edges(plan: Plan, names: Mapping[int, str]) -> Plan:
    """The plan in which handlers depend on the tasks of groups, not on the groups: those end only by success."""
    handlers = list_handlers(plan)
    if not handlers:
        return plan
    parents = {group.id: group.parent_group_id for group in plan.groups}
    members: dict[int, list[int]] = defaultdict(list)
    for task in plan.tasks:
        group_id = task.group_id
        while group_id is not None:
            members[group_id].append(task.id)
            group_id = parents.get(group_id)
    edges = {edge for edge in plan.edges if edge[1] not in handlers}
    for previous, handler in set(plan.edges) - edges:
        inside = members[previous] if previous in parents else [previous]
        edges.update((task_id, handler) for task_id in inside if task_id != handler)
    for task in plan.tasks:
        if task.id in handlers and task.group_id is not None:
            raise SubmitError(
                f"{names.get(task.id, task.id)} is in a group and has when={task.options.when!r}.",
                remedy="Leave it outside: it runs after the end of tasks in the group.",
            )
        if task.options.when == "failed" and all(handler != task.id for _, handler in edges):
            raise SubmitError(
                f"{names.get(task.id, task.id)} has when='failed' and no predecessor.",
                remedy="Add the tasks with failures to handle as its predecessors.",
            )
    return replace(plan, edges=sorted(edges))


def find_cycle(
    tasks: Iterable[tuple[int, int | None]],
    groups: Iterable[tuple[int, int | None]],
    edges: Iterable[tuple[int, int]],
) -> list[int]:
    """Ids along a cycle, the first repeated at the end; empty if there is none. Tasks and groups come with their group.

    A group's opening is the vertex id, its completion -id.
    """
    successors: dict[int, list[int]] = defaultdict(list)
    group_ids: set[int] = set()
    for group, parent in groups:
        group_ids.add(group)
        successors[group].append(-group)
        if parent is not None:
            successors[parent].append(group)
            successors[-group].append(-parent)
    for task, group in tasks:
        if group is not None:
            successors[group].append(task)
            successors[task].append(-group)
    for previous, following in edges:
        successors[-previous if previous in group_ids else previous].append(following)
    return [abs(vertex) for vertex in _find_vertex_cycle(successors)]


def _find_vertex_cycle(successors: Mapping[int, Sequence[int]]) -> list[int]:
    """Kahn's algorithm; the vertices that it cannot order contain every cycle, and walking back in them finds one."""
    in_degree = Counter(vertex for vertices in successors.values() for vertex in vertices)
    free = deque(vertex for vertex in successors if vertex not in in_degree)
    while free:
        for vertex in successors.get(free.popleft(), ()):
            in_degree[vertex] -= 1
            if not in_degree[vertex]:
                del in_degree[vertex]
                free.append(vertex)
    if not in_degree:
        return []
    predecessor: dict[int, int] = {}
    for vertex in in_degree:
        for following in successors.get(vertex, ()):
            if following in in_degree:
                predecessor[following] = vertex
    path, visited = [next(iter(predecessor))], set[int]()
    while path[-1] not in visited:
        visited.add(path[-1])
        path.append(predecessor[path[-1]])
    path.reverse()
    return path[: path.index(path[0], 1) + 1]


def check_acyclic(plan: Plan, names: Mapping[int, str], existing: Plan | None = None) -> None:
    """Raise CycleError that names a cycle in `plan` together with the existing graph."""
    parts = (plan, existing) if existing is not None else (plan,)
    cycle = find_cycle(
        ((task.id, task.group_id) for part in parts for task in part.tasks),
        ((group.id, group.parent_group_id) for part in parts for group in part.groups),
        (edge for part in parts for edge in part.edges),
    )
    if cycle:
        steps = [names.get(node, str(node)) for node in cycle]
        path = " → ".join(step for index, step in enumerate(steps) if index == 0 or step != steps[index - 1])
        raise CycleError(f"The dependencies form a cycle: {path}.", remedy="Remove one of these dependencies.")


def compute_counters(plan: Plan, existing: ExistingNodes) -> Counters:
    """The counters of all nodes in `plan`, after empty groups have completed."""
    counters = Counters.empty()
    new_groups = {group.id: group for group in plan.groups}
    dependents: dict[int, list[int]] = defaultdict(list)
    for previous, after in set(plan.edges):
        met = existing.tasks.get(previous, False) or existing.groups.get(previous, (False, False))[1]
        if not met:
            counters.unmet[after] += 1
            dependents[previous].append(after)
        if previous not in new_groups and previous not in existing.groups:
            counters.with_dependents.add(previous)
    for task in plan.tasks:
        if task.group_id is not None:
            counters.open[task.group_id] += 1
    for group in plan.groups:
        parent = group.parent_group_id
        if parent is not None:
            counters.open[parent] += 1
            if not existing.groups.get(parent, (False, False))[0]:
                counters.unmet[group.id] += 1
    _complete_empty_groups(new_groups, dependents, counters)
    return counters


def _complete_empty_groups(
    groups: Mapping[int, NewGroup], dependents: Mapping[int, Sequence[int]], counters: Counters
) -> None:
    """Open groups without unmet predecessors, complete open groups without members, and propagate."""
    children: dict[int, list[int]] = defaultdict(list)
    for group in groups.values():
        if group.parent_group_id is not None:
            children[group.parent_group_id].append(group.id)
    todo = [group for group in groups if not counters.unmet[group]]
    while todo:
        group = todo.pop()
        if group in counters.completed:
            continue
        if group not in counters.opened:
            counters.opened.add(group)
            for child in children[group]:
                counters.unmet[child] -= 1
                if not counters.unmet[child]:
                    todo.append(child)
        if counters.open[group]:
            continue
        counters.completed.add(group)
        for after in dependents.get(group, ()):
            counters.unmet[after] -= 1
            if after in groups and not counters.unmet[after]:
                todo.append(after)
        parent = groups[group].parent_group_id
        if parent is not None:
            counters.open[parent] -= 1
            if parent in counters.opened and not counters.open[parent]:
                todo.append(parent)
