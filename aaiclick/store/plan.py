"""What is to be submitted, and the counters it starts with: pure functions over plain values.

A group is two points in time, its opening and its completion; members lie between them. `A >> B` then means that B's
opening comes after A's completion, and a cycle through groups is a cycle like any other.

The counters are those of docs/engine.md: a task's `unmet` counts predecessors that have not completed; a group's also
counts its parent while that is closed; a group's `open` counts members that have not completed. A group that is open
and has no open members is complete: an empty one at once.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from aaiclick.errors import CycleError


@dataclass(slots=True)
class NewTask:
    """A task to insert; `kwargs` and `retry_policy` are JSON text."""

    id: int
    type: str
    entrypoint: str | None = None
    kwargs: str = "{}"
    group_id: int | None = None
    queue: str = "default"
    priority: int = 0
    max_attempts: int = 4
    timeout_seconds: float | None = None
    retry_policy: str | None = None
    available_at: datetime | None = None
    idempotency_key: str | None = None
    concurrency_key: str | None = None
    concurrency_limit: int | None = None
    critical: bool = True


@dataclass(slots=True)
class NewGroup:
    id: int
    name: str
    parent_group_id: int | None = None


@dataclass(slots=True)
class Plan:
    """Everything that one submit inserts. `edges` are (previous, next); ids are unique across tasks and groups."""

    tasks: Sequence[NewTask]
    groups: Sequence[NewGroup] = ()
    edges: Sequence[tuple[int, int]] = ()
    tables: Sequence[tuple[int, str]] = ()
    """(task, table) of the Objects and Views among the arguments."""
    adopted: Mapping[str, int] = field(default_factory=dict[str, int])
    """Those of them that only a session outside of PostgreSQL knows: table → session."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is in the database already and the plan refers to."""

    tasks: Mapping[int, bool] = field(default_factory=dict[int, bool])
    """Whether each has completed."""
    groups: Mapping[int, tuple[bool, bool]] = field(default_factory=dict[int, tuple[bool, bool]])
    """Whether each has opened, and whether it has completed."""


@dataclass(slots=True)
class Counters:
    unmet: Counter[int]
    open: Counter[int]
    opened: set[int]
    completed: set[int]
    followed: set[int]

    @classmethod
    def none(cls) -> Counters:
        return cls(Counter(), Counter(), set(), set(), set())


def find_cycle(
    tasks: Iterable[tuple[int, int | None]],
    groups: Iterable[tuple[int, int | None]],
    edges: Iterable[tuple[int, int]],
) -> list[int]:
    """Ids along a cycle, the first repeated at the end; empty if there is none. Tasks and groups come with their group.

    A group's completion is the vertex -id, its opening id.
    """
    after: dict[int, list[int]] = defaultdict(list)
    group_ids: set[int] = set()
    for group, parent in groups:
        group_ids.add(group)
        after[group].append(-group)
        if parent is not None:
            after[parent].append(group)
            after[-group].append(-parent)
    for task, group in tasks:
        if group is not None:
            after[group].append(task)
            after[task].append(-group)
    for previous, following in edges:
        after[-previous if previous in group_ids else previous].append(following)
    return [abs(vertex) for vertex in _cycle(after)]


def _cycle(after: Mapping[int, Sequence[int]]) -> list[int]:
    """Kahn's algorithm; what it cannot order contains every cycle, and walking back inside it finds one."""
    waiting = Counter(vertex for vertices in after.values() for vertex in vertices)
    free = deque(vertex for vertex in after if vertex not in waiting)
    while free:
        for vertex in after.get(free.popleft(), ()):
            waiting[vertex] -= 1
            if not waiting[vertex]:
                del waiting[vertex]
                free.append(vertex)
    if not waiting:
        return []
    before: dict[int, int] = {}
    for vertex in waiting:
        for following in after.get(vertex, ()):
            if following in waiting:
                before[following] = vertex
    path, seen = [next(iter(before))], set[int]()
    while path[-1] not in seen:
        seen.add(path[-1])
        path.append(before[path[-1]])
    path.reverse()
    return path[: path.index(path[0], 1) + 1]


def refuse_cycle(plan: Plan, names: Mapping[int, str], extra: Plan | None = None) -> None:
    """Raise CycleError that names a cycle in `plan`, together with what is there already."""
    parts = (plan, extra) if extra is not None else (plan,)
    cycle = find_cycle(
        ((task.id, task.group_id) for part in parts for task in part.tasks),
        ((group.id, group.parent_group_id) for part in parts for group in part.groups),
        (edge for part in parts for edge in part.edges),
    )
    if cycle:
        steps = [names.get(node, str(node)) for node in cycle]
        path = " → ".join(step for index, step in enumerate(steps) if index == 0 or step != steps[index - 1])
        raise CycleError(
            f"These wait for each other and could never run: {path}.", remedy="Remove one of these dependencies."
        )


def count(plan: Plan, known: Known) -> Counters:
    """The counters of everything in `plan`, after empty groups have passed."""
    counters = Counters.none()
    new_groups = {group.id: group for group in plan.groups}
    following: dict[int, list[int]] = defaultdict(list)
    for previous, after in set(plan.edges):
        met = known.tasks.get(previous, False) or known.groups.get(previous, (False, False))[1]
        if not met:
            counters.unmet[after] += 1
            following[previous].append(after)
        if previous not in new_groups and previous not in known.groups:
            counters.followed.add(previous)
    for task in plan.tasks:
        if task.group_id is not None:
            counters.open[task.group_id] += 1
    for group in plan.groups:
        parent = group.parent_group_id
        if parent is not None:
            counters.open[parent] += 1
            if not known.groups.get(parent, (False, False))[0]:
                counters.unmet[group.id] += 1
    _pass_empty(new_groups, following, counters)
    return counters


def _pass_empty(groups: Mapping[int, NewGroup], following: Mapping[int, Sequence[int]], counters: Counters) -> None:
    """Open groups that wait for nothing, complete those that are open and empty, and so on with what that opens."""
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
        for after in following.get(group, ()):
            counters.unmet[after] -= 1
            if after in groups and not counters.unmet[after]:
                todo.append(after)
        parent = groups[group].parent_group_id
        if parent is not None:
            counters.open[parent] -= 1
            if parent in counters.opened and not counters.open[parent]:
                todo.append(parent)
