"""Graphs of a DAG's definitions and of a dataset's lineage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aaiclick.server.ui.svg.graph_layout import compute_layout
from aaiclick.server.ui.svg.job_graph import BOX, curve_path, shorten_text


@dataclass(frozen=True)
class DagNode:
    """One box with its texts, CSS class and link."""

    name: str
    sub: str
    css_class: str
    href: str = ""
    marked: bool = False


@dataclass
class DagDrawing:
    width: float
    height: float
    boxes: list[tuple[float, float, DagNode]]
    paths: list[str]


def draw_dag(nodes: Mapping[str, DagNode], edges: Iterable[tuple[str, str]]) -> DagDrawing:
    """Lay out nodes and edges given by key."""
    numbers = {key: number for number, key in enumerate(nodes)}
    numbered_edges = [(numbers[a], numbers[b]) for a, b in edges if a in numbers and b in numbers]
    layout = compute_layout(dict.fromkeys(numbers.values(), BOX), numbered_edges)
    boxes = [
        (
            *layout.nodes[numbers[key]],
            DagNode(shorten_text(node.name), shorten_text(node.sub, 22), node.css_class, node.href, node.marked),
        )
        for key, node in nodes.items()
    ]
    return DagDrawing(layout.width, layout.height, boxes, [curve_path(points) for points in layout.edges.values()])
