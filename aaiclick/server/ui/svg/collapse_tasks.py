"""Group the tasks of a job into nodes of the graph: similar tasks become one node, groups become collapsible frames.

Tasks are similar if they have the same type, group, predecessors and dependents, such as the chunks of a `map`. In a
job too large to load every task, tasks of one type and group count as similar; a sample of them provides the edges.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aaiclick.operations.row_conversion import Row

PARTS: tuple[str, ...] = ("completed", "running", "retrying", "failed", "dead", "cancelled", "skipped", "pending")
NO_COUNTS = dict.fromkeys(PARTS, 0)
PART_NAMES = {"CLAIMED": "running", "DEAD_LETTER": "dead"}
MAX_SEPARATE = 3
"""Up to this number, similar tasks are drawn one by one."""


@dataclass
class GraphUnit:
    """One node of the graph: a task or several similar ones, with the number of tasks per state."""

    id: int
    name: str
    group_id: int | None
    counts: dict[str, int]
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    task_ids: list[int] = field(default_factory=list[int])

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def css_class(self) -> str:
        """Most important state of its tasks."""
        for part in ("dead", "failed", "running", "retrying"):
            if self.counts[part]:
                return part
        if self.counts["pending"]:
            return "running" if self.counts["completed"] else "pending"
        if self.counts["cancelled"]:
            return "cancelled"
        return "skipped" if self.counts["skipped"] and not self.counts["completed"] else "completed"

    @property
    def bad(self) -> int:
        return self.counts["failed"] + self.counts["dead"]


@dataclass
class CollapsedJob:
    """Units, groups (id → name, parent) and edges between units or groups."""

    units: dict[int, GraphUnit]
    groups: dict[int, tuple[str, int | None]]
    edges: set[tuple[int, int]]


def collapse_tasks(tasks: Sequence[Row], groups: Iterable[Row], edges: Sequence[tuple[int, int]]) -> CollapsedJob:
    """Collapse a job of which every task is loaded."""
    predecessor_ids: dict[int, list[int]] = defaultdict(list)
    dependent_ids: dict[int, list[int]] = defaultdict(list)
    for a, b in edges:
        predecessor_ids[b].append(a)
        dependent_ids[a].append(b)
    similar: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for task in tasks:
        task_id = task["id"]
        key = (
            task["group_id"],
            task["type"],
            _sorted_ids(predecessor_ids.get(task_id)),
            _sorted_ids(dependent_ids.get(task_id)),
        )
        similar[key].append(task)
    units: dict[int, GraphUnit] = {}
    unit_of: dict[int, int] = {}
    for similar_tasks in similar.values():
        for part in [[task] for task in similar_tasks] if len(similar_tasks) <= MAX_SEPARATE else [similar_tasks]:
            unit = _build_unit(part)
            units[unit.id] = unit
            unit_of.update(dict.fromkeys(unit.task_ids, unit.id))
    return CollapsedJob(units, _index_groups(groups), {(unit_of.get(a, a), unit_of.get(b, b)) for a, b in edges})


def _sorted_ids(nodes: list[int] | None) -> tuple[int, ...]:
    return () if nodes is None else tuple(sorted(nodes))


def _build_unit(tasks: Sequence[Row]) -> GraphUnit:
    first = tasks[0]
    if len(tasks) == 1:
        counts = {**NO_COUNTS, task_part(first): 1}
        times = first["created_at"], first["started_at"], first["completed_at"]
        return GraphUnit(first["id"], first["type"], first["group_id"], counts, *times, [first["id"]])
    counts = dict.fromkeys(PARTS, 0)
    for task in tasks:
        counts[task_part(task)] += 1
    ends = [task["completed_at"] for task in tasks]
    return GraphUnit(
        first["id"],
        first["type"],
        first["group_id"],
        counts,
        min(task["created_at"] for task in tasks),
        min((task["started_at"] for task in tasks if task["started_at"] is not None), default=None),
        None if None in ends else max(ends),
        [task["id"] for task in tasks],
    )


def task_part(task: Row) -> str:
    """Return the entry of PARTS that a row's state belongs to."""
    if task["retrying"]:
        return "retrying"
    return PART_NAMES.get(task["status"]) or str(task["status"]).lower()


def collapse_types(
    counts_by_type: Iterable[Row],
    samples: Iterable[Row],
    groups: Iterable[Row],
    edges: Iterable[tuple[int, int]],
) -> CollapsedJob:
    """Collapse a large job from its task counts by group, type and state, and a sample of tasks with edges."""
    units = {unit.id: unit for unit in units_by_type(counts_by_type)}
    unit_by_type = {(unit.group_id, unit.name): unit.id for unit in units.values()}
    unit_of = {task["id"]: unit_by_type.get((task["group_id"], task["type"]), 0) for task in samples}
    group_rows = _index_groups(groups)
    unit_edges = {(unit_of.get(a, a), unit_of.get(b, b)) for a, b in edges}
    return CollapsedJob(
        units,
        group_rows,
        {(a, b) for a, b in unit_edges if a != b and _is_node(a, units, group_rows) and _is_node(b, units, group_rows)},
    )


def units_by_type(counts_by_type: Iterable[Row]) -> list[GraphUnit]:
    """Build one unit per group and type."""
    rows_by_type: dict[tuple[int | None, str], list[Row]] = defaultdict(list)
    for row in counts_by_type:
        rows_by_type[row["group_id"], row["type"]].append(row)
    units: list[GraphUnit] = []
    for (group, name), parts in rows_by_type.items():
        counts = dict.fromkeys(PARTS, 0)
        for part in parts:
            counts[task_part(part)] += part["count"]
        first = min(part["first_id"] for part in parts)
        started = [part["started_at"] for part in parts if part["started_at"] is not None]
        ends = [part["completed_at"] for part in parts]
        units.append(
            GraphUnit(
                first,
                name,
                group,
                counts,
                min(part["created_at"] for part in parts),
                min(started, default=None),
                None if None in ends else max(ends),
                [first],
            )
        )
    return units


def _is_node(node: int, units: Mapping[int, GraphUnit], groups: Mapping[int, object]) -> bool:
    return node in units or node in groups


def _index_groups(rows: Iterable[Row]) -> dict[int, tuple[str, int | None]]:
    return {row["id"]: (row["name"], row["parent_group_id"]) for row in rows}


def find_predecessors(job: CollapsedJob) -> dict[int, set[int]]:
    """Map each unit to its predecessors, resolving groups to their units."""
    members = _units_by_group(job)
    predecessor_ids: dict[int, set[int]] = defaultdict(set)
    for a, b in job.edges:
        for dependent in members.get(b) or (b,):
            predecessor_ids[dependent].update(members.get(a) or (a,))
    return predecessor_ids


def find_critical_path(job: CollapsedJob, predecessor_ids: dict[int, set[int]]) -> list[int]:
    """Return the critical path, first to last: from the unit that ended last, back through its latest predecessors."""
    started = {unit.id: unit for unit in job.units.values() if unit.started_at is not None}
    if not started:
        return []
    latest = datetime.max.replace(tzinfo=next(iter(started.values())).created_at.tzinfo)

    def end_time(unit_id: int) -> datetime:
        return started[unit_id].completed_at or latest

    path: list[int] = []
    unit_id: int | None = max(started, key=end_time)
    while unit_id is not None and unit_id not in path:
        path.insert(0, unit_id)
        unit_id = max((unit for unit in predecessor_ids[unit_id] if unit in started), key=end_time, default=None)
    return path


def _units_by_group(job: CollapsedJob) -> dict[int, set[int]]:
    """Map each group to its units, including those of nested groups."""
    unit_ids: dict[int, set[int]] = defaultdict(set)
    for unit in job.units.values():
        group, visited = unit.group_id, set[int]()
        while group is not None and group not in visited and group in job.groups:
            visited.add(group)
            unit_ids[group].add(unit.id)
            group = job.groups[group][1]
    return unit_ids
