"""A layered layout, left to right: longest paths give the columns, medians of neighbours the order within them.

Nodes have sizes, so a group that was laid out by itself is a node like any other. An edge that spans several columns
passes through a point in each, which takes part in the ordering: that is what keeps long edges apart from nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

GAP_X = 54.0
GAP_Y = 14.0
POINT = 8.0
"""Height that an edge takes where it passes a column."""

SWEEPS = 4
MOST_POINTS = 6_000
"""Past this, long edges go straight: there are so many that no order of them helps."""

Edge = tuple[int, int]


@dataclass
class Placed:
    """Where everything is. `edges` are the points that each passes, from its source's right to its target's left."""

    width: float = 0.0
    height: float = 0.0
    nodes: dict[int, tuple[float, float]] = field(default_factory=dict[int, tuple[float, float]])
    edges: dict[Edge, list[tuple[float, float]]] = field(default_factory=dict[Edge, list[tuple[float, float]]])


def place(sizes: Mapping[int, tuple[float, float]], edges: Iterable[Edge]) -> Placed:
    """Positions (left, top) of nodes with these sizes. Edges in circles are drawn, and do not count."""
    if not sizes:
        return Placed()
    wanted = sorted({(a, b) for a, b in edges if a != b and a in sizes and b in sizes})
    column_of = _columns(sizes, wanted)
    columns, chains, tall = _with_points(sizes, wanted, column_of)
    _order(columns, chains)
    return _coordinates(columns, chains, sizes, tall, wanted)


def _columns(nodes: Iterable[int], edges: Sequence[Edge]) -> dict[int, int]:
    """Column of each node: one past its furthest predecessor. What lies on a circle is taken in the order given."""
    after: dict[int, list[int]] = {node: [] for node in nodes}
    waits = dict.fromkeys(after, 0)
    for a, b in edges:
        after[a].append(b)
        waits[b] += 1
    column = dict.fromkeys(after, 0)
    free = [node for node, count in waits.items() if not count]
    left = dict.fromkeys(node for node, count in waits.items() if count)
    while free or left:
        if not free:
            free.append(next(iter(left)))
            del left[free[0]]
        node = free.pop()
        for following in after[node]:
            if following in left:
                column[following] = max(column[following], column[node] + 1)
                waits[following] -= 1
                if not waits[following]:
                    del left[following]
                    free.append(following)
    return column


def _with_points(
    sizes: Mapping[int, tuple[float, float]], edges: Sequence[Edge], column_of: Mapping[int, int]
) -> tuple[list[list[int]], list[tuple[int, ...]], dict[int, float]]:
    """Columns of nodes and of the points of long edges (negative numbers), and each edge as the chain through them."""
    columns: list[list[int]] = [[] for _ in range(max(column_of.values()) + 1)]
    tall = {node: size[1] for node, size in sizes.items()}
    for node in sizes:
        columns[column_of[node]].append(node)
    spans = sum(max(0, column_of[b] - column_of[a] - 1) for a, b in edges)
    chains: list[tuple[int, ...]] = []
    number = -1
    for a, b in edges:
        chain = [a]
        if spans <= MOST_POINTS:
            for column in range(column_of[a] + 1, column_of[b]):
                columns[column].append(number)
                tall[number] = POINT
                chain.append(number)
                number -= 1
        chains.append((*chain, b))
    return columns, chains, tall


def _order(columns: list[list[int]], chains: Sequence[tuple[int, ...]]) -> None:
    """Sort each column by the mean place of its neighbours, sweeping right and left."""
    before: dict[int, list[int]] = {}
    behind: dict[int, list[int]] = {}
    for chain in chains:
        for a, b in pairwise(chain):
            before.setdefault(b, []).append(a)
            behind.setdefault(a, []).append(b)
    place_of = {node: float(index) for column in columns for index, node in enumerate(column)}
    for sweep in range(SWEEPS):
        rightwards = sweep % 2 == 0
        near = before if rightwards else behind
        for column in columns[1:] if rightwards else reversed(columns[:-1]):
            means = {
                node: sum(map(place_of.__getitem__, near[node])) / len(near[node]) if node in near else place_of[node]
                for node in column
            }
            column.sort(key=means.__getitem__)
            for index, node in enumerate(column):
                place_of[node] = float(index)


def _coordinates(
    columns: Sequence[Sequence[int]],
    chains: Sequence[tuple[int, ...]],
    sizes: Mapping[int, tuple[float, float]],
    tall: Mapping[int, float],
    edges: Sequence[Edge],
) -> Placed:
    near: dict[int, list[int]] = {}
    for chain in chains:
        for a, b in pairwise(chain):
            near.setdefault(a, []).append(b)
            near.setdefault(b, []).append(a)
    middle = _middles(columns, near, tall)
    lowest = min(middle[node] - tall[node] / 2 for node in middle)
    placed, left = Placed(), 0.0
    lefts: dict[int, float] = {}
    for column in columns:
        wide = max((sizes[node][0] for node in column if node >= 0), default=0.0)
        for node in column:
            lefts[node] = left + (wide - sizes[node][0]) / 2 if node >= 0 else left + wide / 2
            if node >= 0:
                placed.nodes[node] = (lefts[node], middle[node] - tall[node] / 2 - lowest)
        left += wide + GAP_X
    placed.width = left - GAP_X
    placed.height = max(middle[node] + tall[node] / 2 for node in middle) - lowest
    for edge, chain in zip(edges, chains, strict=True):
        a, b = edge
        points = [(lefts[a] + sizes[a][0], middle[a] - lowest)]
        points += [(lefts[point], middle[point] - lowest) for point in chain[1:-1]]
        placed.edges[edge] = [*points, (lefts[b], middle[b] - lowest)]
    return placed


def _middles(
    columns: Sequence[Sequence[int]], near: Mapping[int, Sequence[int]], tall: Mapping[int, float]
) -> dict[int, float]:
    """Heights: each node wants the mean of its neighbours; a column's nodes keep their order and distance."""
    middle: dict[int, float] = {}
    for column in columns:
        total = sum(tall[node] for node in column) + GAP_Y * max(0, len(column) - 1)
        top = -total / 2
        for node in column:
            middle[node] = top + tall[node] / 2
            top += tall[node] + GAP_Y
    for sweep in range(SWEEPS):
        for column in columns if sweep % 2 == 0 else reversed(columns):
            wishes = [
                sum(map(middle.__getitem__, near[node])) / len(near[node]) if node in near else middle[node]
                for node in column
            ]
            middle.update(zip(column, _apart(column, wishes, tall), strict=True))
    return middle


def _apart(column: Sequence[int], wishes: Sequence[float], tall: Mapping[int, float]) -> list[float]:
    """The places nearest to the wishes at which nothing overlaps: neighbours that collide move as one block."""
    blocks: list[list[float]] = []  # sum of (wish - offset), count, then first index
    offsets: list[float] = []
    offset = 0.0
    for index, node in enumerate(column):
        if index:
            offset += (tall[column[index - 1]] + tall[node]) / 2 + GAP_Y
        offsets.append(offset)
        blocks.append([wishes[index] - offset, 1.0, float(index)])
        while len(blocks) > 1 and blocks[-1][0] / blocks[-1][1] < blocks[-2][0] / blocks[-2][1]:
            last = blocks.pop()
            blocks[-1][0] += last[0]
            blocks[-1][1] += last[1]
    found: list[float] = []
    for total, count, _ in blocks:
        found += [total / count + offsets[len(found) + step] for step in range(int(count))]
    return found
