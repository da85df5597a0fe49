"""From the tasks of a job to what is drawn: alike tasks as one node, groups as frames that can be shut.

Tasks are alike if they have the same type and group and wait for, and are waited for by, the same things: the thousand
chunks of a `map`, not the links of a chain. Of a job too large to look at each task, those of one type and group count
as alike, and a few of them tell what they wait for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

PARTS: tuple[str, ...] = ("completed", "running", "retrying", "failed", "dead", "cancelled", "pending")
NOWHERE = dict.fromkeys(PARTS, 0)
LOOKS = {"CLAIMED": "running", "DEAD_LETTER": "dead"}
FEW = 3
"""So many alike tasks are still drawn one by one."""


@dataclass
class Unit:
    """One node of the drawing: a task, or several that are alike. `counts` has how many are where."""

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
    def look(self) -> str:
        """What matters most of it."""
        for part in ("dead", "failed", "running", "retrying"):
            if self.counts[part]:
                return part
        if self.counts["pending"]:
            return "running" if self.counts["completed"] else "pending"
        return "cancelled" if self.counts["cancelled"] else "completed"

    @property
    def bad(self) -> int:
        return self.counts["failed"] + self.counts["dead"]


@dataclass
class Folded:
    """What is to be drawn: units, groups (id → name, parent), and what waits for what, by unit or group."""

    units: dict[int, Unit]
    groups: dict[int, tuple[str, int | None]]
    edges: set[tuple[int, int]]


def fold_tasks(tasks: Sequence[Any], groups: Iterable[Any], edges: Sequence[tuple[int, int]]) -> Folded:
    """Of a job whose tasks are all known."""
    before: dict[int, list[int]] = defaultdict(list)
    behind: dict[int, list[int]] = defaultdict(list)
    for a, b in edges:
        before[b].append(a)
        behind[a].append(b)
    alike: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for task in tasks:
        task_id = task["id"]
        key = task["group_id"], task["type"], _some(before.get(task_id)), _some(behind.get(task_id))
        alike[key].append(task)
    units: dict[int, Unit] = {}
    unit_of: dict[int, int] = {}
    for same in alike.values():
        for part in [[task] for task in same] if len(same) <= FEW else [same]:
            unit = _unit(part)
            units[unit.id] = unit
            unit_of.update(dict.fromkeys(unit.task_ids, unit.id))
    return Folded(units, _groups(groups), {(unit_of.get(a, a), unit_of.get(b, b)) for a, b in edges})


def _some(nodes: list[int] | None) -> tuple[int, ...]:
    return () if nodes is None else tuple(sorted(nodes))


def _unit(tasks: Sequence[Any]) -> Unit:
    first = tasks[0]
    if len(tasks) == 1:
        counts = {**NOWHERE, part_of(first): 1}
        times = first["created_at"], first["started_at"], first["completed_at"]
        return Unit(first["id"], first["type"], first["group_id"], counts, *times, [first["id"]])
    counts = dict.fromkeys(PARTS, 0)
    for task in tasks:
        counts[part_of(task)] += 1
    ends = [task["completed_at"] for task in tasks]
    return Unit(
        first["id"],
        first["type"],
        first["group_id"],
        counts,
        min(task["created_at"] for task in tasks),
        min((task["started_at"] for task in tasks if task["started_at"] is not None), default=None),
        None if None in ends else max(ends),
        [task["id"] for task in tasks],
    )


def part_of(task: Any) -> str:
    """Which of PARTS a task, or several alike, are."""
    if task["retrying"]:
        return "retrying"
    return LOOKS.get(task["status"]) or str(task["status"]).lower()


def fold_kinds(
    kinds: Iterable[Any],
    samples: Iterable[Any],
    groups: Iterable[Any],
    edges: Iterable[tuple[int, int]],
) -> Folded:
    """Of a large job: `kinds` are its tasks by group, type and state, `samples` the tasks whose edges are known."""
    units = {unit.id: unit for unit in kind_units(kinds)}
    by_kind = {(unit.group_id, unit.name): unit.id for unit in units.values()}
    unit_of = {task["id"]: by_kind.get((task["group_id"], task["type"]), 0) for task in samples}
    known = _groups(groups)
    found = {(unit_of.get(a, a), unit_of.get(b, b)) for a, b in edges}
    return Folded(units, known, {(a, b) for a, b in found if a != b and _is(a, units, known) and _is(b, units, known)})


def kind_units(kinds: Iterable[Any]) -> list[Unit]:
    """One unit for each group and type."""
    found: dict[tuple[int | None, str], list[Any]] = defaultdict(list)
    for kind in kinds:
        found[kind["group_id"], kind["type"]].append(kind)
    units: list[Unit] = []
    for (group, name), parts in found.items():
        counts = dict.fromkeys(PARTS, 0)
        for part in parts:
            counts[part_of(part)] += part["count"]
        first = min(part["first_id"] for part in parts)
        started = [part["started_at"] for part in parts if part["started_at"] is not None]
        ends = [part["completed_at"] for part in parts]
        units.append(
            Unit(
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


def _is(node: int, units: Mapping[int, Unit], groups: Mapping[int, Any]) -> bool:
    return node in units or node in groups


def _groups(rows: Iterable[Any]) -> dict[int, tuple[str, int | None]]:
    return {row["id"]: (row["name"], row["parent_group_id"]) for row in rows}


def predecessors(folded: Folded) -> dict[int, set[int]]:
    """Unit → units that it waits for, through groups too."""
    members = _members(folded)
    before: dict[int, set[int]] = defaultdict(set)
    for a, b in folded.edges:
        for follower in members.get(b) or (b,):
            before[follower].update(members.get(a) or (a,))
    return before


def critical_path(folded: Folded, before: dict[int, set[int]]) -> list[int]:
    """The units that decided when the job ended, first to last: back from the one that ended last, through the last
    that each waited for.
    """
    started = {unit.id: unit for unit in folded.units.values() if unit.started_at is not None}
    if not started:
        return []
    latest = datetime.max.replace(tzinfo=next(iter(started.values())).created_at.tzinfo)

    def end(unit_id: int) -> datetime:
        return started[unit_id].completed_at or latest

    path: list[int] = []
    at: int | None = max(started, key=end)
    while at is not None and at not in path:
        path.insert(0, at)
        at = max((unit for unit in before[at] if unit in started), key=end, default=None)
    return path


def _members(folded: Folded) -> dict[int, set[int]]:
    """Group → units in it, however deep."""
    found: dict[int, set[int]] = defaultdict(set)
    for unit in folded.units.values():
        group, seen = unit.group_id, set[int]()
        while group is not None and group not in seen and group in folded.groups:
            seen.add(group)
            found[group].add(unit.id)
            group = folded.groups[group][1]
    return found
