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
Near = list[list[int]]
"""Of each node and point, those beside it."""


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
    # From here on a node is its number, and so is the point of a long edge: what belongs to one stands in a list.
    number = {node: index for index, node in enumerate(sizes)}
    numbered = [(number[a], number[b]) for a, b in wanted]
    column_of = _columns(len(sizes), numbered)
    columns, chains, points = _with_points(numbered, column_of)
    before, behind = _neighbours(chains, len(sizes) + points)
    _order(columns, before, behind)
    tall = [*(size[1] for size in sizes.values()), *[POINT] * points]
    middle = _middles(columns, [a + b for a, b in zip(before, behind, strict=True)], tall)
    return _coordinates(columns, middle, tall, sizes, dict(zip(wanted, chains, strict=True)))


def _columns(count: int, edges: Sequence[Edge]) -> list[int]:
    """Column of each node: one past its furthest predecessor. What lies on a circle is taken in the order given."""
    after: Near = [[] for _ in range(count)]
    waits = [0] * count
    for a, b in edges:
        after[a].append(b)
        waits[b] += 1
    column = [0] * count
    free = [node for node, waiting in enumerate(waits) if not waiting]
    left = dict.fromkeys(node for node, waiting in enumerate(waits) if waiting)
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


def _with_points(edges: Sequence[Edge], column_of: Sequence[int]) -> tuple[list[list[int]], list[list[int]], int]:
    """Columns of nodes and of the points of long edges, each edge as the chain through them, and how many points."""
    columns: list[list[int]] = [[] for _ in range(max(column_of) + 1)]
    for node, column in enumerate(column_of):
        columns[column].append(node)
    spans = sum(max(0, column_of[b] - column_of[a] - 1) for a, b in edges)
    chains: list[list[int]] = []
    number = first = len(column_of)
    for a, b in edges:
        chain = [a]
        if spans <= MOST_POINTS:
            for column in range(column_of[a] + 1, column_of[b]):
                columns[column].append(number)
                chain.append(number)
                number += 1
        chain.append(b)
        chains.append(chain)
    return columns, chains, number - first


def _neighbours(chains: Sequence[Sequence[int]], count: int) -> tuple[Near, Near]:
    before: Near = [[] for _ in range(count)]
    behind: Near = [[] for _ in range(count)]
    for chain in chains:
        for a, b in pairwise(chain):
            before[b].append(a)
            behind[a].append(b)
    return before, behind


def _order(columns: list[list[int]], before: Near, behind: Near) -> None:
    """Sort each column by the mean place of its neighbours, sweeping right and left."""
    place_of = [0.0] * len(before)
    for column in columns:
        for index, node in enumerate(column):
            place_of[node] = float(index)
    for sweep in range(SWEEPS):
        rightwards = sweep % 2 == 0
        near = before if rightwards else behind
        for column in columns[1:] if rightwards else reversed(columns[:-1]):
            means = {node: _mean(place_of, near[node]) if near[node] else place_of[node] for node in column}
            column.sort(key=means.__getitem__)
            for index, node in enumerate(column):
                place_of[node] = float(index)


def _mean(values: Sequence[float], of: Sequence[int]) -> float:
    """Most have one neighbour, or two."""
    match len(of):
        case 1:
            return values[of[0]]
        case 2:
            return (values[of[0]] + values[of[1]]) / 2
        case several:
            return sum([values[each] for each in of]) / several


def _middles(columns: Sequence[Sequence[int]], near: Near, tall: Sequence[float]) -> list[float]:
    """Heights: each node wants the mean of its neighbours; a column's nodes keep their order and distance."""
    middle = [0.0] * len(tall)
    distances: list[list[float]] = []
    for column in columns:
        top = -(sum([tall[node] for node in column]) + GAP_Y * max(0, len(column) - 1)) / 2
        for node in column:
            middle[node] = top + tall[node] / 2
            top += tall[node] + GAP_Y
        distances.append([middle[node] - middle[column[0]] for node in column])
    with_distances = list(zip(columns, distances, strict=True))
    for sweep in range(SWEEPS):
        for column, apart in with_distances if sweep % 2 == 0 else reversed(with_distances):
            wishes = [_mean(middle, near[node]) if near[node] else middle[node] for node in column]
            for node, found in zip(column, _apart(wishes, apart), strict=True):
                middle[node] = found
    return middle


def _apart(wishes: Sequence[float], distances: Sequence[float]) -> list[float]:
    """The places nearest to the wishes at which each keeps its distance (from the first, if all touch): neighbours that
    collide move as one block.
    """
    totals: list[float] = []  # of each block: the sum of where its members would have the first
    counts: list[int] = []
    for wish, distance in zip(wishes, distances, strict=True):
        total, count = wish - distance, 1
        while totals and total * counts[-1] < totals[-1] * count:
            total += totals.pop()
            count += counts.pop()
        totals.append(total)
        counts.append(count)
    found: list[float] = []
    for total, count in zip(totals, counts, strict=True):
        first, begin = total / count, len(found)
        found += [first + distance for distance in distances[begin : begin + count]]
    return found


def _coordinates(
    columns: Sequence[Sequence[int]],
    middle: Sequence[float],
    tall: Sequence[float],
    sizes: Mapping[int, tuple[float, float]],
    chains: Mapping[Edge, Sequence[int]],
) -> Placed:
    nodes = list(sizes)
    wides = [size[0] for size in sizes.values()]
    lowest = min(at - height / 2 for at, height in zip(middle, tall, strict=True))
    highest = max(at + height / 2 for at, height in zip(middle, tall, strict=True))
    placed, left = Placed(height=highest - lowest), 0.0
    lefts = [0.0] * len(tall)
    for column in columns:
        wide = max((wides[node] for node in column if node < len(nodes)), default=0.0)
        for node in column:
            if node < len(nodes):
                lefts[node] = left + (wide - wides[node]) / 2
                placed.nodes[nodes[node]] = (lefts[node], middle[node] - tall[node] / 2 - lowest)
            else:
                lefts[node] = left + wide / 2
        left += wide + GAP_X
    placed.width = left - GAP_X
    for edge, (a, *points, b) in chains.items():
        placed.edges[edge] = [
            (lefts[a] + wides[a], middle[a] - lowest),
            *[(lefts[point], middle[point] - lowest) for point in points],
            (lefts[b], middle[b] - lowest),
        ]
    return placed
