"""A SELECT that is still being built.

Relations are fused into one Frame as long as SQL's own order of work (FROM, WHERE, GROUP BY, windows, ORDER BY, LIMIT)
agrees with the order the user wrote; where it does not, the Frame is wrapped as a subquery and a new one begins.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from aaiclick.data.functions import Kind
from aaiclick.data.nodes import Call, Literal, Node, Over, Ref, RowIndex, SortKey, has_window, rewrite, walk
from aaiclick.data.sql import Expression
from aaiclick.data.types import UINT64

KEY = "aai_id"
"""The row key of every table: a dense number from 0."""

RESERVED = "aai_"
"""Names that begin so are ours."""

MAX_NODES = 600
MAX_DEPTH = 40
"""An expression larger or deeper than this is computed in steps: inlining doubles it whenever a column is used
twice."""


@dataclass
class Frame:
    source: Expression
    columns: dict[str, Node]
    order: list[SortKey]
    key: Ref | None = None
    """The dense key, while the rows are exactly those with keys from `key_start` on, in that order."""
    key_start: int = 0
    joins: list[Expression] = field(default_factory=list[Expression])
    where: list[Node] = field(default_factory=list[Node])
    checks: list[Expression] = field(default_factory=list[Expression])
    group: list[Node] | None = None
    having: Node | None = None
    limit: int | None = None
    offset: int = 0

    @property
    def is_cut(self) -> bool:
        return self.limit is not None or self.offset > 0

    @property
    def has_window(self) -> bool:
        return any(has_window(node) for node in self.columns.values()) or any(has_window(k.node) for k in self.order)

    @property
    def is_plain(self) -> bool:
        """Rows of the source, perhaps filtered: nothing that a further WHERE or GROUP BY would disturb."""
        return not self.is_cut and self.group is None and not self.has_window

    def row_index(self) -> Node | None:
        """The position of a row, if the key tells it."""
        if self.key is None:
            return None
        if self.key_start == 0:
            return self.key
        return Call("_since", (self.key, Literal(self.key_start, UINT64)))

    def known_index(self) -> Node:
        index = self.row_index()
        if index is None:
            raise TypeError("the rows of this frame have no known positions")
        return index

    def cut(self, offset: int, limit: int | None) -> None:
        """Keep rows [offset, offset + limit) of what is there: as a range of keys when that is the same."""
        if self.key is not None and self.is_plain:
            start = self.key_start + offset
            if offset:
                self.where.append(Call("ge", (self.key, Literal(start, UINT64))))
            if limit is not None:
                self.where.append(Call("lt", (self.key, Literal(start + limit, UINT64))))
            self.key_start = start
            return
        if self.limit is not None:
            rest = max(0, self.limit - offset)
            limit = rest if limit is None else min(limit, rest)
        self.offset += offset
        self.limit = limit


def needs_index(nodes: list[Node]) -> bool:
    return any(isinstance(each, RowIndex) for node in nodes for each in walk(node))


def resolve(node: Node, frame: Frame) -> Node:
    """Replace what only the frame knows: row positions, and the Object's own order inside windows."""

    def change(each: Node) -> Node | None:
        if isinstance(each, RowIndex):
            return frame.row_index()
        if isinstance(each, Over) and each.natural:
            resolved = cast("Over", each.with_children(tuple(rewrite(child, change) for child in each.children)))
            return Over(resolved.call, resolved.partition, (*resolved.order, *frame.order), False, resolved.frame)
        return None

    return rewrite(node, change)


def buried_windows(nodes: list[Node]) -> list[Over]:
    """Windows inside a window or an aggregate, which SQL does not allow; innermost ones only."""
    found: dict[Over, None] = {}

    def look(node: Node, inside: bool) -> None:
        is_window = isinstance(node, Over)
        if is_window and inside and not any(has_window(child) for child in node.children):
            found[node] = None
            return
        within = inside or is_window or (isinstance(node, Call) and node.kind is Kind.AGGREGATE)
        for child in node.children:
            look(child, within)

    for node in nodes:
        look(node, False)
    return list(found)


def is_large(node: Node) -> bool:
    """Whether an expression is better computed in steps: too many nodes, or nested too deeply for any parser."""
    total, level = 0, [node]
    for _ in range(MAX_DEPTH):
        total += len(level)
        if total > MAX_NODES:
            return True
        level = [child for each in level for child in each.children]
        if not level:
            return False
    return True
