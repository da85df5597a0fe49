"""Drawings of what flows into what: definitions of a DAG, datasets and what makes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aaiclick.server.ui.svg.graph import BOX, curve, shortened
from aaiclick.server.ui.svg.layers import place


@dataclass(frozen=True)
class Node:
    """One box: its words, its look, and where it leads."""

    name: str
    sub: str
    look: str
    href: str = ""
    marked: bool = False


@dataclass
class Flow:
    width: float
    height: float
    boxes: list[tuple[float, float, Node]]
    paths: list[str]


def draw_flow(nodes: Mapping[str, Node], edges: Iterable[tuple[str, str]]) -> Flow:
    """Nodes and edges by whatever keys they have."""
    numbers = {key: number for number, key in enumerate(nodes)}
    wanted = [(numbers[a], numbers[b]) for a, b in edges if a in numbers and b in numbers]
    placed = place(dict.fromkeys(numbers.values(), BOX), wanted)
    boxes = [
        (
            *placed.nodes[numbers[key]],
            Node(shortened(node.name), shortened(node.sub, 22), node.look, node.href, node.marked),
        )
        for key, node in nodes.items()
    ]
    return Flow(placed.width, placed.height, boxes, [curve(points) for points in placed.edges.values()])
