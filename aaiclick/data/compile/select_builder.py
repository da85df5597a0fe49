"""SelectBuilder: the clauses of a SELECT under construction.

Relations are merged into one SELECT as long as SQL's evaluation order (FROM, WHERE, GROUP BY, windows, ORDER BY, LIMIT)
agrees with the order of the operations; otherwise the SELECT becomes a subquery of a new one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import cast

from sqlglot import exp

from aaiclick.data.compile.sql import Expression
from aaiclick.data.expressions.functions import FunctionKind
from aaiclick.data.expressions.nodes import (
    ExpressionNode,
    FunctionCall,
    Literal,
    Over,
    Ref,
    RowIndex,
    SortKey,
    has_window,
    rewrite_node,
    walk_nodes,
)
from aaiclick.data.types import UINT64

KEY = "aai_id"
"""Row key of every table: dense numbers from 0."""

RESERVED_PREFIX = "aai_"
"""Prefix of reserved column names."""

MAX_NODES = 600
MAX_DEPTH = 40
"""Larger or deeper expressions are computed in subqueries, since inlining doubles an expression at every second use."""


@dataclass
class SelectBuilder:
    source: Expression
    columns: dict[str, ExpressionNode]
    order: list[SortKey]
    key: Ref | None = None
    """The dense key, as long as the rows are exactly those with keys from `key_start` on, in key order."""
    key_start: int = 0
    joins: list[Expression] = field(default_factory=list[Expression])
    where: list[ExpressionNode] = field(default_factory=list[ExpressionNode])
    checks: list[Expression] = field(default_factory=list[Expression])
    group: list[ExpressionNode] | None = None
    having: ExpressionNode | None = None
    limit: int | None = None
    offset: int = 0
    limit_by: tuple[int, list[ExpressionNode]] | None = None
    """The number of first rows to keep of each combination of keys."""

    @property
    def is_sliced(self) -> bool:
        return self.limit is not None or self.offset > 0 or self.limit_by is not None

    @property
    def has_window(self) -> bool:
        return any(has_window(node) for node in self.columns.values()) or any(has_window(k.node) for k in self.order)

    @property
    def is_plain(self) -> bool:
        """Whether another WHERE or GROUP BY can be added without a subquery."""
        return not self.is_sliced and self.group is None and not self.has_window

    @property
    def is_table(self) -> bool:
        """Whether this is a table with some of its columns, which a join can use without a subquery."""
        return (
            isinstance(self.source, exp.Table)
            and self.key is not None
            and self.is_plain
            and not (self.joins or self.where or self.checks)
            and all(isinstance(node, Ref) for node in self.columns.values())
        )

    def row_index(self) -> ExpressionNode | None:
        """Return the position of a row if it follows from the key."""
        if self.key is None:
            return None
        if self.key_start == 0:
            return self.key
        return FunctionCall("_since", (self.key, Literal(self.key_start, UINT64)))

    def require_row_index(self) -> ExpressionNode:
        index = self.row_index()
        if index is None:
            raise TypeError("the positions of these rows are not known")
        return index

    def apply_slice(self, offset: int, limit: int | None) -> None:
        """Keep rows [offset, offset + limit), by a range of keys if possible."""
        if self.key is not None and self.is_plain:
            start = self.key_start + offset
            if offset:
                self.where.append(FunctionCall("ge", (self.key, Literal(start, UINT64))))
            if limit is not None:
                self.where.append(FunctionCall("lt", (self.key, Literal(start + limit, UINT64))))
            self.key_start = start
            return
        if self.limit is not None:
            rest = max(0, self.limit - offset)
            limit = rest if limit is None else min(limit, rest)
        self.offset += offset
        self.limit = limit


def drop_repeated_keys(keys: list[SortKey]) -> list[SortKey]:
    """Drop sort keys with the expression of an earlier one."""
    nodes: dict[ExpressionNode, SortKey] = {}
    for key in keys:
        nodes.setdefault(key.node, key)
    return list(nodes.values())


def needs_index(nodes: list[ExpressionNode]) -> bool:
    return any(isinstance(descendant, RowIndex) for node in nodes for descendant in walk_nodes(node))


def resolve_positions(node: ExpressionNode, builder: SelectBuilder) -> ExpressionNode:
    """Replace row positions, and the natural order of windows, by the builder's key and sort order."""

    def replace_node(candidate: ExpressionNode) -> ExpressionNode | None:
        if isinstance(candidate, RowIndex):
            return builder.row_index()
        if isinstance(candidate, Over) and candidate.natural:
            resolved = cast(
                "Over",
                candidate.with_children(tuple(rewrite_node(child, replace_node) for child in candidate.children)),
            )
            order = (*resolved.order, *builder.order)
            return replace(
                resolved, order=tuple(key.reverse() for key in order) if resolved.reverse else order, natural=False
            )
        return None

    return rewrite_node(node, replace_node)


def nested_windows(nodes: list[ExpressionNode]) -> list[Over]:
    """Find the innermost windows inside a window or aggregate, which SQL does not allow."""
    windows: dict[Over, None] = {}

    def collect_windows(node: ExpressionNode, inside: bool) -> None:
        is_window = isinstance(node, Over)
        if is_window and inside and not any(has_window(child) for child in node.children):
            windows[node] = None
            return
        within = inside or is_window or (isinstance(node, FunctionCall) and node.kind is FunctionKind.AGGREGATE)
        for child in node.children:
            collect_windows(child, within)

    for node in nodes:
        collect_windows(node, False)
    return list(windows)


def is_too_large(node: ExpressionNode) -> bool:
    """Whether an expression has too many nodes or is nested too deeply to be inlined."""
    total, level = 0, [node]
    for _ in range(MAX_DEPTH):
        total += len(level)
        if total > MAX_NODES:
            return True
        level = [child for parent in level for child in parent.children]
        if not level:
            return False
    return True
