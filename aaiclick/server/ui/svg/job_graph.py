"""Layout of a job's graph: tasks as boxes, open groups as frames, collapsed groups as one box."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Set
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from aaiclick.server.ui.svg.collapse_tasks import PARTS, CollapsedJob, GraphUnit, find_critical_path, find_predecessors
from aaiclick.server.ui.svg.graph_layout import compute_layout
from aaiclick.server.ui.template_filters import escape_invisible, task_name

BOX = (172.0, 40.0)
HEAD = 26.0
PAD = 12.0
MAX_OPEN_BOXES = 24
"""A group with more boxes than this starts collapsed."""

MAX_BOXES = 400
"""With more boxes than this, all groups are collapsed and the remaining boxes are only counted."""

MAX_LETTERS = 21

Points = list[tuple[float, float]]


@dataclass
class GraphBox:
    """Box of a task, of several similar tasks, or of a collapsed group."""

    id: int
    x: float
    y: float
    width: float
    height: float
    name: str
    sub: str
    css_class: str
    node_kind: str  # "task", "collapsed" or "group"
    type: str = ""
    critical: bool = False
    parts: list[tuple[str, float, float]] = field(default_factory=list[tuple[str, float, float]])


@dataclass
class GroupFrame:
    """Frame of an open group."""

    id: int
    x: float
    y: float
    width: float
    height: float
    name: str


@dataclass
class JobDrawing:
    """Boxes, frames and edges with their coordinates, for the template."""

    width: float = 0.0
    height: float = 0.0
    boxes: list[GraphBox] = field(default_factory=list[GraphBox])
    frames: list[GroupFrame] = field(default_factory=list[GroupFrame])
    edges: list[tuple[Points, bool]] = field(default_factory=list[tuple[Points, bool]])
    """Points of each edge, and whether it is on the critical path."""
    hidden: int = 0

    def paths(self, *, critical: bool) -> list[str]:
        """Return the SVG paths of the edges that are, or are not, on the critical path."""
        return [curve_path(points) for points, is_critical in self.edges if is_critical == critical]


def draw_job(job: CollapsedJob, opened: Set[int] = frozenset(), shut: Set[int] = frozenset()) -> JobDrawing:
    """Draw a job; groups not in `opened` or `shut` are open if they are small."""
    return _JobGraphBuilder(job, opened, shut).draw()


class _JobGraphBuilder:
    def __init__(self, job: CollapsedJob, opened: Set[int], shut: Set[int]) -> None:
        self._job = job
        path = find_critical_path(job, find_predecessors(job))
        self._critical = set(path)
        self._steps = list(pairwise(path))
        self._children: dict[int | None, list[int]] = defaultdict(list)
        for unit in job.units.values():
            self._children[unit.group_id if unit.group_id in job.groups else None].append(unit.id)
        for group, (_, parent) in job.groups.items():
            self._children[parent if parent in job.groups else None].append(group)
        many = len(job.units) > MAX_BOXES
        self._open = {
            group
            for group in job.groups
            if group not in shut and (group in opened or (not many and len(self._children[group]) <= MAX_OPEN_BOXES))
        }
        self._parents = {node: parent for parent, nodes in self._children.items() for node in nodes}

    def draw(self) -> JobDrawing:
        drawing = self._draw_level(None)
        drawing.boxes.sort(key=lambda box: (box.x, box.y))
        return drawing

    def _draw_level(self, group: int | None) -> JobDrawing:
        """Draw the children of a group, or the top level."""
        nodes = self._children[group]
        hidden = max(0, len(nodes) - MAX_BOXES)
        nodes = nodes[:MAX_BOXES]
        inner = {node: self._draw_level(node) for node in nodes if node in self._open and self._children[node]}
        sizes = {
            node: (inner[node].width + 2 * PAD, inner[node].height + HEAD + PAD) if node in inner else BOX
            for node in nodes
        }
        edges = self._edges_at(group, set(nodes))
        layout = compute_layout(sizes, edges)
        drawing = JobDrawing(layout.width, layout.height, hidden=hidden)
        for node, (x, y) in layout.nodes.items():
            if node in inner:
                self._embed_group(drawing, inner[node], node, x, y, sizes[node])
            else:
                drawing.boxes.append(self._draw_box(node, x, y))
        critical = {(self._ancestor_in(a, group), self._ancestor_in(b, group)) for a, b in self._steps}
        for edge, points in layout.edges.items():
            drawing.edges.append((points, edge in critical))
        return drawing

    def _embed_group(
        self, outer: JobDrawing, inner: JobDrawing, group: int, x: float, y: float, size: tuple[float, float]
    ) -> None:
        outer.frames.append(GroupFrame(group, x, y, *size, shorten_text(self._job.groups[group][0], 40)))
        dx, dy = x + PAD, y + HEAD
        outer.boxes += [replace(box, x=box.x + dx, y=box.y + dy) for box in inner.boxes]
        outer.frames += [replace(frame, x=frame.x + dx, y=frame.y + dy) for frame in inner.frames]
        outer.edges += [([(px + dx, py + dy) for px, py in points], critical) for points, critical in inner.edges]
        outer.hidden += inner.hidden

    def _edges_at(self, group: int | None, nodes: Set[int]) -> set[tuple[int, int]]:
        """Return the edges between nodes of this level, including edges between their descendants."""
        level_edges: set[tuple[int, int]] = set()
        for a, b in self._job.edges:
            if a in nodes and b in nodes:
                level_edges.add((a, b))
                continue
            x, y = self._ancestor_in(a, group), self._ancestor_in(b, group)
            if x is not None and y is not None and x != y and x in nodes and y in nodes:
                level_edges.add((x, y))
        return level_edges

    def _ancestor_in(self, node: int, group: int | None) -> int | None:
        """Return the ancestor of a node that is a direct child of the group."""
        at: int | None = node
        while at is not None:
            if at not in self._parents:
                return None
            if self._parents[at] == group:
                return at
            at = self._parents[at]
        return None

    def _is_critical(self, node: int) -> bool:
        if node in self._job.units:
            return node in self._critical
        return any(self._is_critical(child) for child in self._children[node])

    def _draw_box(self, node: int, x: float, y: float) -> GraphBox:
        unit = self._job.units.get(node)
        if unit is not None:
            box_kind = "collapsed" if unit.total > 1 else "task"
            return GraphBox(
                node,
                x,
                y,
                *BOX,
                shorten_text(task_name(unit.name)),
                _describe_unit(unit),
                unit.css_class,
                box_kind,
                unit.name,
                node in self._critical,
                _stripe_parts(unit) if unit.total > 1 else [],
            )
        group_total = self._sum_group(node)
        return GraphBox(
            node, x, y, *BOX, shorten_text(self._job.groups[node][0]),
            _describe_unit(group_total) if group_total.total else "empty",
            group_total.css_class if group_total.total else "completed", "group", "",
            self._is_critical(node), _stripe_parts(group_total),
        )  # fmt: skip

    def _sum_group(self, group: int) -> GraphUnit:
        """Sum the counts of all units in a group."""
        counts = dict.fromkeys(PARTS, 0)
        created: Any = None
        pending_groups = [group]
        while pending_groups:
            for child in self._children[pending_groups.pop()]:
                unit = self._job.units.get(child)
                if unit is None:
                    pending_groups.append(child)
                    continue
                created = unit.created_at
                for part, count in unit.counts.items():
                    counts[part] += count
        return GraphUnit(group, "", None, counts, created, None, None)


def shorten_text(text: str, max_letters: int = MAX_LETTERS) -> str:
    text = escape_invisible(text)
    return text if len(text) <= max_letters else f"{text[: max_letters - 1]}…"


def _describe_unit(unit: GraphUnit) -> str:
    if unit.total == 1:
        return unit.css_class.capitalize() if unit.css_class != "dead" else "Dead letter"
    label = f"×{unit.total:,}"
    if unit.bad:
        return f"{label}, {unit.bad:,} failed"
    if unit.counts["retrying"]:
        return f"{label}, {unit.counts['retrying']:,} retrying"
    done = unit.counts["completed"]
    return label if done == unit.total else f"{label}, {done:,} done"


def _stripe_parts(unit: GraphUnit) -> list[tuple[str, float, float]]:
    """Return (css class, offset, width) of each part of the progress stripe."""
    stripes: list[tuple[str, float, float]] = []
    offset = 0.0
    for part in PARTS:
        width = BOX[0] * unit.counts[part] / max(1, unit.total)
        if width:
            stripes.append((part, offset, width))
        offset += width
    return stripes


def curve_path(points: Points) -> str:
    """Return an SVG path of Bézier curves through the points, horizontal at each."""
    (x, y), *rest = points
    x, y = round(x), round(y)
    path = f"M{x} {y}"
    for next_x, next_y in rest:
        to_x, to_y = round(next_x), round(next_y)
        half = (x + to_x) // 2
        path += f"C{half} {y} {half} {to_y} {to_x} {to_y}"
        x, y = to_x, to_y
    return path
