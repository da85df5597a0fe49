"""Layered graph layout (Sugiyama), left to right: longest paths give the columns, barycenters the order within them.

An edge that spans several columns gets a dummy point in each, which takes part in the ordering and keeps long edges
away from nodes. A group that was laid out separately is a node with its size.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

GAP_X = 54.0
GAP_Y = 14.0
POINT_HEIGHT = 8.0
"""Height of an edge's dummy point in a column."""

SWEEPS = 4
MAX_POINTS = 6_000
"""Above this number, long edges are drawn straight: ordering so many does not help."""

Edge = tuple[int, int]
NeighbourLists = list[list[int]]
"""Neighbours of each node and point, by number."""


@dataclass
class GraphLayout:
    """Positions (left, top) of nodes, and the points of each edge from its source's right to its target's left."""

    width: float = 0.0
    height: float = 0.0
    nodes: dict[int, tuple[float, float]] = field(default_factory=dict[int, tuple[float, float]])
    edges: dict[Edge, list[tuple[float, float]]] = field(default_factory=dict[Edge, list[tuple[float, float]]])


def compute_layout(sizes: Mapping[int, tuple[float, float]], edges: Iterable[Edge]) -> GraphLayout:
    """Lay out nodes of the given sizes; edges that close a cycle are drawn but ignored for the columns."""
    if not sizes:
        return GraphLayout()
    unique_edges = sorted({(a, b) for a, b in edges if a != b and a in sizes and b in sizes})
    # From here on, nodes and the dummy points of long edges are numbers that index lists.
    number = {node: index for index, node in enumerate(sizes)}
    numbered = [(number[a], number[b]) for a, b in unique_edges]
    column_of = _assign_columns(len(sizes), numbered)
    columns, chains, points = _add_edge_points(numbered, column_of)
    predecessors, successors = _find_neighbours(chains, len(sizes) + points)
    _order_columns(columns, predecessors, successors)
    heights = [*(size[1] for size in sizes.values()), *[POINT_HEIGHT] * points]
    centers = _compute_centers(columns, [a + b for a, b in zip(predecessors, successors, strict=True)], heights)
    return _build_layout(columns, centers, heights, sizes, dict(zip(unique_edges, chains, strict=True)))


def _assign_columns(count: int, edges: Sequence[Edge]) -> list[int]:
    """Assign each node the column after its last predecessor; nodes on a cycle are taken in input order."""
    successors: NeighbourLists = [[] for _ in range(count)]
    in_degree = [0] * count
    for a, b in edges:
        successors[a].append(b)
        in_degree[b] += 1
    column = [0] * count
    ready = [node for node, degree in enumerate(in_degree) if not degree]
    remaining = dict.fromkeys(node for node, degree in enumerate(in_degree) if degree)
    while ready or remaining:
        if not ready:
            ready.append(next(iter(remaining)))
            del remaining[ready[0]]
        node = ready.pop()
        for successor in successors[node]:
            if successor in remaining:
                column[successor] = max(column[successor], column[node] + 1)
                in_degree[successor] -= 1
                if not in_degree[successor]:
                    del remaining[successor]
                    ready.append(successor)
    return column


def _add_edge_points(edges: Sequence[Edge], column_of: Sequence[int]) -> tuple[list[list[int]], list[list[int]], int]:
    """Add dummy points for long edges; return the columns, the chain of each edge, and the number of points."""
    columns: list[list[int]] = [[] for _ in range(max(column_of) + 1)]
    for node, column in enumerate(column_of):
        columns[column].append(node)
    spans = sum(max(0, column_of[b] - column_of[a] - 1) for a, b in edges)
    chains: list[list[int]] = []
    number = first = len(column_of)
    for a, b in edges:
        chain = [a]
        if spans <= MAX_POINTS:
            for column in range(column_of[a] + 1, column_of[b]):
                columns[column].append(number)
                chain.append(number)
                number += 1
        chain.append(b)
        chains.append(chain)
    return columns, chains, number - first


def _find_neighbours(chains: Sequence[Sequence[int]], count: int) -> tuple[NeighbourLists, NeighbourLists]:
    predecessors: NeighbourLists = [[] for _ in range(count)]
    successors: NeighbourLists = [[] for _ in range(count)]
    for chain in chains:
        for a, b in pairwise(chain):
            predecessors[b].append(a)
            successors[a].append(b)
    return predecessors, successors


def _order_columns(columns: list[list[int]], predecessors: NeighbourLists, successors: NeighbourLists) -> None:
    """Sort each column by the mean position of its neighbours, sweeping right and left."""
    positions = [0.0] * len(predecessors)
    for column in columns:
        for index, node in enumerate(column):
            positions[node] = float(index)
    for sweep in range(SWEEPS):
        rightwards = sweep % 2 == 0
        neighbours = predecessors if rightwards else successors
        for column in columns[1:] if rightwards else reversed(columns[:-1]):
            means = {
                node: _mean_position(positions, neighbours[node]) if neighbours[node] else positions[node]
                for node in column
            }
            column.sort(key=means.__getitem__)
            for index, node in enumerate(column):
                positions[node] = float(index)


def _mean_position(values: Sequence[float], indexes: Sequence[int]) -> float:
    """Mean of some values, with fast paths for the common one or two neighbours."""
    match len(indexes):
        case 1:
            return values[indexes[0]]
        case 2:
            return (values[indexes[0]] + values[indexes[1]]) / 2
        case count:
            return sum([values[index] for index in indexes]) / count


def _compute_centers(
    columns: Sequence[Sequence[int]], neighbours: NeighbourLists, heights: Sequence[float]
) -> list[float]:
    """Move nodes towards the mean height of their neighbours, keeping order and distance within a column."""
    centers = [0.0] * len(heights)
    distances: list[list[float]] = []
    for column in columns:
        top = -(sum([heights[node] for node in column]) + GAP_Y * max(0, len(column) - 1)) / 2
        for node in column:
            centers[node] = top + heights[node] / 2
            top += heights[node] + GAP_Y
        distances.append([centers[node] - centers[column[0]] for node in column])
    with_distances = list(zip(columns, distances, strict=True))
    for sweep in range(SWEEPS):
        for column, offsets in with_distances if sweep % 2 == 0 else reversed(with_distances):
            preferred = [
                _mean_position(centers, neighbours[node]) if neighbours[node] else centers[node] for node in column
            ]
            for node, center in zip(column, _separate_nodes(preferred, offsets), strict=True):
                centers[node] = center
    return centers


def _separate_nodes(preferred: Sequence[float], distances: Sequence[float]) -> list[float]:
    """Return the positions closest to the preferred ones that keep the distances; colliding neighbours move as a block.

    `distances` are measured from the first node.
    """
    totals: list[float] = []  # per block: sum of the positions that its members prefer for the first node
    counts: list[int] = []
    for position, distance in zip(preferred, distances, strict=True):
        total, count = position - distance, 1
        while totals and total * counts[-1] < totals[-1] * count:
            total += totals.pop()
            count += counts.pop()
        totals.append(total)
        counts.append(count)
    positions: list[float] = []
    for total, count in zip(totals, counts, strict=True):
        first, begin = total / count, len(positions)
        positions += [first + distance for distance in distances[begin : begin + count]]
    return positions


def _build_layout(
    columns: Sequence[Sequence[int]],
    centers: Sequence[float],
    heights: Sequence[float],
    sizes: Mapping[int, tuple[float, float]],
    chains: Mapping[Edge, Sequence[int]],
) -> GraphLayout:
    nodes = list(sizes)
    widths = [size[0] for size in sizes.values()]
    lowest = min(at - height / 2 for at, height in zip(centers, heights, strict=True))
    highest = max(at + height / 2 for at, height in zip(centers, heights, strict=True))
    layout, left = GraphLayout(height=highest - lowest), 0.0
    lefts = [0.0] * len(heights)
    for column in columns:
        column_width = max((widths[node] for node in column if node < len(nodes)), default=0.0)
        for node in column:
            if node < len(nodes):
                lefts[node] = left + (column_width - widths[node]) / 2
                layout.nodes[nodes[node]] = (lefts[node], centers[node] - heights[node] / 2 - lowest)
            else:
                lefts[node] = left + column_width / 2
        left += column_width + GAP_X
    layout.width = left - GAP_X
    for edge, (a, *points, b) in chains.items():
        layout.edges[edge] = [
            (lefts[a] + widths[a], centers[a] - lowest),
            *[(lefts[point], centers[point] - lowest) for point in points],
            (lefts[b], centers[b] - lowest),
        ]
    return layout
