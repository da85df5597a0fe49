"""The drawing of a job: units as boxes, groups as frames around them, or as one box where they are shut."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Set
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from aaiclick.server.ui.svg.fold import PARTS, Folded, Unit, critical_path, predecessors
from aaiclick.server.ui.svg.layers import place
from aaiclick.server.ui.words import seen, task_name

BOX = (172.0, 40.0)
HEAD = 26.0
PAD = 12.0
MOST_OPEN = 24
"""A group with more boxes than this starts shut."""

MOST_BOXES = 400
"""With more boxes than this, every group is shut and what is left over is counted."""

LETTERS = 21

Points = list[tuple[float, float]]


@dataclass
class Box:
    """One node as drawn."""

    id: int
    x: float
    y: float
    width: float
    height: float
    name: str
    sub: str
    look: str
    kind: str  # "task", "fold" or "group"
    type: str = ""
    critical: bool = False
    parts: list[tuple[str, float, float]] = field(default_factory=list[tuple[str, float, float]])


@dataclass
class Frame:
    """An open group."""

    id: int
    x: float
    y: float
    width: float
    height: float
    name: str


@dataclass
class Drawing:
    """Everything that the template writes down."""

    width: float = 0.0
    height: float = 0.0
    boxes: list[Box] = field(default_factory=list[Box])
    frames: list[Frame] = field(default_factory=list[Frame])
    edges: list[tuple[Points, bool]] = field(default_factory=list[tuple[Points, bool]])
    """Points that each passes, and whether it is critical."""
    hidden: int = 0

    def paths(self, *, critical: bool) -> list[str]:
        """Edges as they are written down: those that are critical, or the others."""
        return [curve(points) for points, is_critical in self.edges if is_critical == critical]


def draw(folded: Folded, opened: Set[int] = frozenset(), shut: Set[int] = frozenset()) -> Drawing:
    """`opened` and `shut` are groups that somebody opened or shut; the others are open if they are small."""
    return _Drafter(folded, opened, shut).draw()


class _Drafter:
    def __init__(self, folded: Folded, opened: Set[int], shut: Set[int]) -> None:
        self._folded = folded
        path = critical_path(folded, predecessors(folded))
        self._critical = set(path)
        self._steps = list(pairwise(path))
        self._children: dict[int | None, list[int]] = defaultdict(list)
        for unit in folded.units.values():
            self._children[unit.group_id if unit.group_id in folded.groups else None].append(unit.id)
        for group, (_, parent) in folded.groups.items():
            self._children[parent if parent in folded.groups else None].append(group)
        many = len(folded.units) > MOST_BOXES
        self._open = {
            group
            for group in folded.groups
            if group not in shut and (group in opened or (not many and len(self._children[group]) <= MOST_OPEN))
        }
        self._parents = {node: parent for parent, nodes in self._children.items() for node in nodes}

    def draw(self) -> Drawing:
        drawing = self._level(None)
        drawing.boxes.sort(key=lambda box: (box.x, box.y))
        return drawing

    def _level(self, group: int | None) -> Drawing:
        """A group's inside, or the whole."""
        nodes = self._children[group]
        hidden = max(0, len(nodes) - MOST_BOXES)
        nodes = nodes[:MOST_BOXES]
        inner = {node: self._level(node) for node in nodes if node in self._open and self._children[node]}
        sizes = {
            node: (inner[node].width + 2 * PAD, inner[node].height + HEAD + PAD) if node in inner else BOX
            for node in nodes
        }
        edges = self._edges_at(group, set(nodes))
        placed = place(sizes, edges)
        drawing = Drawing(placed.width, placed.height, hidden=hidden)
        for node, (x, y) in placed.nodes.items():
            if node in inner:
                self._take_in(drawing, inner[node], node, x, y, sizes[node])
            else:
                drawing.boxes.append(self._box(node, x, y))
        critical = {(self._lift(a, group), self._lift(b, group)) for a, b in self._steps}
        for edge, points in placed.edges.items():
            drawing.edges.append((points, edge in critical))
        return drawing

    def _take_in(
        self, outer: Drawing, inner: Drawing, group: int, x: float, y: float, size: tuple[float, float]
    ) -> None:
        outer.frames.append(Frame(group, x, y, *size, shortened(self._folded.groups[group][0], 40)))
        dx, dy = x + PAD, y + HEAD
        outer.boxes += [replace(box, x=box.x + dx, y=box.y + dy) for box in inner.boxes]
        outer.frames += [replace(frame, x=frame.x + dx, y=frame.y + dy) for frame in inner.frames]
        outer.edges += [([(px + dx, py + dy) for px, py in points], critical) for points, critical in inner.edges]
        outer.hidden += inner.hidden

    def _edges_at(self, group: int | None, nodes: Set[int]) -> set[tuple[int, int]]:
        """Edges between nodes of this level, those of what lies inside of them included."""
        found: set[tuple[int, int]] = set()
        for a, b in self._folded.edges:
            if a in nodes and b in nodes:
                found.add((a, b))
                continue
            x, y = self._lift(a, group), self._lift(b, group)
            if x is not None and y is not None and x != y and x in nodes and y in nodes:
                found.add((x, y))
        return found

    def _lift(self, node: int, group: int | None) -> int | None:
        """The ancestor of a node that lies directly in the group."""
        at: int | None = node
        while at is not None:
            if at not in self._parents:
                return None
            if self._parents[at] == group:
                return at
            at = self._parents[at]
        return None

    def _is_critical(self, node: int) -> bool:
        if node in self._folded.units:
            return node in self._critical
        return any(self._is_critical(child) for child in self._children[node])

    def _box(self, node: int, x: float, y: float) -> Box:
        unit = self._folded.units.get(node)
        if unit is not None:
            kind = "fold" if unit.total > 1 else "task"
            return Box(
                node,
                x,
                y,
                *BOX,
                shortened(task_name(unit.name)),
                _words(unit),
                unit.look,
                kind,
                unit.name,
                node in self._critical,
                _parts(unit) if unit.total > 1 else [],
            )
        whole = self._sum(node)
        return Box(
            node, x, y, *BOX, shortened(self._folded.groups[node][0]), _words(whole) if whole.total else "empty",
            whole.look if whole.total else "completed", "group", "", self._is_critical(node), _parts(whole),
        )  # fmt: skip

    def _sum(self, group: int) -> Unit:
        """Everything in a group, as one."""
        counts = dict.fromkeys(PARTS, 0)
        created: Any = None
        waiting = [group]
        while waiting:
            for child in self._children[waiting.pop()]:
                unit = self._folded.units.get(child)
                if unit is None:
                    waiting.append(child)
                    continue
                created = unit.created_at
                for part, count in unit.counts.items():
                    counts[part] += count
        return Unit(group, "", None, counts, created, None, None)


def shortened(text: str, letters: int = LETTERS) -> str:
    text = seen(text)
    return text if len(text) <= letters else f"{text[: letters - 1]}…"


def _words(unit: Unit) -> str:
    if unit.total == 1:
        return unit.look.capitalize() if unit.look != "dead" else "Dead letter"
    words = f"×{unit.total:,}"
    if unit.bad:
        return f"{words}, {unit.bad:,} failed"
    if unit.counts["retrying"]:
        return f"{words}, {unit.counts['retrying']:,} retrying"
    done = unit.counts["completed"]
    return words if done == unit.total else f"{words}, {done:,} done"


def _parts(unit: Unit) -> list[tuple[str, float, float]]:
    """(look, offset, width) of the stripe that shows how many are where."""
    found: list[tuple[str, float, float]] = []
    at = 0.0
    for part in PARTS:
        width = BOX[0] * unit.counts[part] / max(1, unit.total)
        if width:
            found.append((part, at, width))
        at += width
    return found


def curve(points: Points) -> str:
    """A smooth path through points, level at each."""
    (x, y), *rest = points
    x, y = round(x), round(y)
    path = f"M{x} {y}"
    for next_x, next_y in rest:
        to_x, to_y = round(next_x), round(next_y)
        half = (x + to_x) // 2
        path += f"C{half} {y} {half} {to_y} {to_x} {to_y}"
        x, y = to_x, to_y
    return path
