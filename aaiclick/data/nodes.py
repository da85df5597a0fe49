"""The nodes that expressions are made of: small, frozen, comparable.

A node computes one value per row (or one per group). It knows its type, so that a wrong expression fails where it is
written and not in the database. Sets of rows have nodes of their own, in `relations`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from aaiclick.data.errors import column_not_found
from aaiclick.data.functions import FUNCTIONS, Kind, NotDefinedError, unsupported
from aaiclick.data.types import NOTHING, UINT64, DataType

if TYPE_CHECKING:
    from aaiclick.data.relations import Relation

Schema = Mapping[str, DataType]


@dataclass(frozen=True)
class Node:
    """A value per row."""

    @cached_property
    def type(self) -> DataType:
        raise NotImplementedError

    @property
    def children(self) -> tuple[Node, ...]:
        return ()

    def with_children(self, children: tuple[Node, ...]) -> Node:  # noqa: ARG002
        return self


@dataclass(frozen=True)
class Ref(Node):
    """A column of the relation below, by name; without a type until it is bound to one."""

    name: str
    kind: DataType | None = None
    alias: str = ""
    """Set by the compiler: which FROM item the column belongs to."""

    @cached_property
    def type(self) -> DataType:
        return self.kind or NOTHING


@dataclass(frozen=True)
class Literal(Node):
    """A Python value, sent as a bound parameter."""

    value: Any
    kind: DataType

    @cached_property
    def type(self) -> DataType:
        return self.kind

    def __hash__(self) -> int:
        return hash((repr(self.value), self.kind))

    def __eq__(self, other: object) -> bool:
        """NaN equals itself here, and 1 differs from 1.0 and True: these are texts, not numbers."""
        return isinstance(other, Literal) and self.kind == other.kind and repr(self.value) == repr(other.value)


@dataclass(frozen=True)
class RowIndex(Node):
    """The position of the row in its Object, from 0."""

    @cached_property
    def type(self) -> DataType:
        return UINT64


@dataclass(frozen=True)
class Call(Node):
    """A function of the table, applied."""

    function: str
    args: tuple[Node, ...] = ()
    params: tuple[Any, ...] = ()

    @cached_property
    def type(self) -> DataType:
        types = tuple(arg.type for arg in self.args)
        try:
            return FUNCTIONS[self.function].result(types, self.params)
        except NotDefinedError as why:
            raise unsupported(self.function, [describe(arg) for arg in self.args], types, str(why)) from None

    @property
    def kind(self) -> Kind:
        return FUNCTIONS[self.function].kind

    @property
    def children(self) -> tuple[Node, ...]:
        return self.args

    def with_children(self, children: tuple[Node, ...]) -> Node:
        return replace(self, args=children)


@dataclass(frozen=True)
class SortKey:
    node: Node
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True)
class Over(Node):
    """An aggregate or window function over a window of rows.

    `natural` orders the window by the Object's own order; `frame` is a pair of ROWS bounds, None for the whole
    partition.
    """

    call: Call
    partition: tuple[Node, ...] = ()
    order: tuple[SortKey, ...] = ()
    natural: bool = False
    frame: tuple[str, str] | None = None

    @cached_property
    def type(self) -> DataType:
        return self.call.type

    @property
    def children(self) -> tuple[Node, ...]:
        return (*self.call.args, *self.partition, *(key.node for key in self.order))

    def with_children(self, children: tuple[Node, ...]) -> Node:
        args, rest = children[: len(self.call.args)], children[len(self.call.args) :]
        partition, order = rest[: len(self.partition)], rest[len(self.partition) :]
        keys = tuple(replace(key, node=node) for key, node in zip(self.order, order, strict=True))
        return replace(self, call=replace(self.call, args=args), partition=partition, order=keys)


@dataclass(frozen=True)
class Scalar(Node):
    """The one value of a one-row, one-column relation, computed once per query."""

    relation: Relation

    @cached_property
    def type(self) -> DataType:
        (kind,) = self.relation.schema.values()
        return kind.as_nullable()


def describe(node: Node) -> str:
    """A few words for an error message."""
    if isinstance(node, Ref):
        return f"column {node.name!r}"
    if isinstance(node, Literal):
        text = repr(node.value)
        return text if len(text) <= 40 else text[:37] + "…"
    if isinstance(node, Call):
        return f"{node.function}({', '.join(describe(arg) for arg in node.args)})"
    return "a window" if isinstance(node, Over) else "a value"


def walk(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from walk(child)


def rewrite(node: Node, change: Callable[[Node], Node | None]) -> Node:
    """Replace nodes from the top: where `change` gives a node it stands, elsewhere the children are rewritten."""
    changed = change(node)
    if changed is not None:
        return changed
    children = node.children
    if not children:
        return node
    rewritten = tuple(rewrite(child, change) for child in children)
    if all(new is old for new, old in zip(rewritten, children, strict=True)):
        return node
    return node.with_children(rewritten)


def substitute(node: Node, columns: Mapping[str, Node]) -> Node:
    """Replace column names by what they stand for."""
    return rewrite(node, lambda each: columns[each.name] if isinstance(each, Ref) and not each.alias else None)


def bind(node: Node, schema: Schema) -> Node:
    """Give every column its type, and check names and types of the whole expression."""

    def typed(each: Node) -> Node | None:
        if not isinstance(each, Ref) or each.alias:
            return None
        if each.name not in schema:
            raise column_not_found(each.name, schema)
        return Ref(each.name, schema[each.name])

    result = rewrite(node, typed)
    _ = result.type
    return result


def has_aggregate(node: Node) -> bool:
    """Whether an aggregate stands outside any window."""
    if isinstance(node, Over):
        return any(has_aggregate(child) for child in node.children)
    if isinstance(node, Call) and node.kind is Kind.AGGREGATE:
        return True
    return any(has_aggregate(child) for child in node.children)


def has_window(node: Node) -> bool:
    return any(isinstance(each, Over) for each in walk(node))


def is_aggregated(node: Node) -> bool:
    """Whether the node has one value per group: every column stands inside an aggregate."""
    if isinstance(node, Ref | Over | RowIndex):
        return False
    if isinstance(node, Call) and node.kind is Kind.AGGREGATE:
        return True
    return all(is_aggregated(child) for child in node.children)


def broadcast(node: Node) -> Node:
    """Turn bare aggregates into windows over all rows, so that they can stand beside rows."""

    def widen(each: Node) -> Node | None:
        if isinstance(each, Over):
            return each
        if isinstance(each, Call) and each.kind is Kind.AGGREGATE:
            return Over(each)
        return None

    return rewrite(node, widen)
