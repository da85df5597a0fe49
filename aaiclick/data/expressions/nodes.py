"""Expression nodes: immutable trees that compute one value per row or per group.

Every node knows its type, so that an invalid expression raises where it is written and not in the database. Nodes for
sets of rows are in `aaiclick.data.compile.relation_nodes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from aaiclick.data.errors import DataTypeError, column_not_found
from aaiclick.data.expressions.functions import FUNCTIONS, FunctionKind, NotDefinedError, unsupported_types_error
from aaiclick.data.expressions.functions.comparisons import are_comparable
from aaiclick.data.expressions.functions.nullable_structures import result_type
from aaiclick.data.types import BOOL, NOTHING, UINT64, DataType, array_of

if TYPE_CHECKING:
    from aaiclick.data.compile.relation_nodes import Relation

Schema = Mapping[str, DataType]


@dataclass(frozen=True)
class ExpressionNode:
    """Base class of expression nodes."""

    @cached_property
    def type(self) -> DataType:
        raise NotImplementedError

    @property
    def children(self) -> tuple[ExpressionNode, ...]:
        return ()

    def with_children(self, children: tuple[ExpressionNode, ...]) -> ExpressionNode:  # noqa: ARG002
        return self


@dataclass(frozen=True)
class Ref(ExpressionNode):
    """Reference to a column by name; has no type until `bind_columns` sets it."""

    name: str
    dtype: DataType | None = None
    alias: str = ""
    """Alias of the FROM item, set by the compiler."""

    @cached_property
    def type(self) -> DataType:
        return self.dtype or NOTHING


@dataclass(frozen=True)
class Literal(ExpressionNode):
    """A Python value, sent as a bound parameter."""

    value: Any
    dtype: DataType

    @cached_property
    def type(self) -> DataType:
        return self.dtype

    def __hash__(self) -> int:
        return hash((repr(self.value), self.dtype))

    def __eq__(self, other: object) -> bool:
        """Compare by representation: NaN equals NaN, and 1 differs from 1.0 and True."""
        return isinstance(other, Literal) and self.dtype == other.dtype and repr(self.value) == repr(other.value)


@dataclass(frozen=True)
class RowIndex(ExpressionNode):
    """Position of the row in its Object, from 0."""

    @cached_property
    def type(self) -> DataType:
        return UINT64


@dataclass(frozen=True)
class FunctionCall(ExpressionNode):
    """Call of a registered function."""

    function: str
    args: tuple[ExpressionNode, ...] = ()
    params: tuple[Any, ...] = ()

    @cached_property
    def type(self) -> DataType:
        types = tuple(arg.type for arg in self.args)
        try:
            return result_type(self.function, types, self.params)
        except NotDefinedError as why:
            raise unsupported_types_error(
                self.function, [describe_node(arg) for arg in self.args], types, str(why)
            ) from None

    @property
    def kind(self) -> FunctionKind:
        return FUNCTIONS[self.function].kind

    @property
    def children(self) -> tuple[ExpressionNode, ...]:
        return self.args

    def with_children(self, children: tuple[ExpressionNode, ...]) -> ExpressionNode:
        return replace(self, args=children)


@dataclass(frozen=True)
class SortKey:
    node: ExpressionNode
    descending: bool = False
    nulls_first: bool = False

    def reverse(self) -> SortKey:
        return SortKey(self.node, not self.descending, not self.nulls_first)


@dataclass(frozen=True)
class Over(ExpressionNode):
    """An aggregate or window function over a window of rows.

    `natural` orders the window by the row order of the Object, backwards if `reverse`; `frame` is a pair of bounds in
    `unit` (ROWS or RANGE), None for the whole partition.
    """

    call: FunctionCall
    partition: tuple[ExpressionNode, ...] = ()
    order: tuple[SortKey, ...] = ()
    natural: bool = False
    frame: tuple[str, str] | None = None
    reverse: bool = False
    unit: str = "ROWS"

    @cached_property
    def type(self) -> DataType:
        return self.call.type

    @property
    def children(self) -> tuple[ExpressionNode, ...]:
        return (*self.call.args, *self.partition, *(key.node for key in self.order))

    def with_children(self, children: tuple[ExpressionNode, ...]) -> ExpressionNode:
        args, rest = children[: len(self.call.args)], children[len(self.call.args) :]
        partition, order = rest[: len(self.partition)], rest[len(self.partition) :]
        keys = tuple(replace(key, node=node) for key, node in zip(self.order, order, strict=True))
        return replace(self, call=replace(self.call, args=args), partition=partition, order=keys)


@dataclass(frozen=True)
class Scalar(ExpressionNode):
    """Scalar subquery: the value of a relation with one row and one column."""

    relation: Relation

    @cached_property
    def type(self) -> DataType:
        (dtype,) = self.relation.schema.values()
        return dtype.as_nullable()


@dataclass(frozen=True)
class Membership(ExpressionNode):
    """Whether a value is among the rows of a relation with one column; NULL for NULL."""

    value: ExpressionNode
    relation: Relation

    @cached_property
    def type(self) -> DataType:
        (dtype,) = self.relation.schema.values()
        if not are_comparable(self.value.type, dtype) or dtype.is_structure:
            raise unsupported_types_error(
                "isin", [describe_node(self.value), "the Object"], (self.value.type, dtype), "they cannot be compared"
            )
        return BOOL.as_nullable(self.value.type.nullable)

    @property
    def children(self) -> tuple[ExpressionNode, ...]:
        return (self.value,)

    def with_children(self, children: tuple[ExpressionNode, ...]) -> ExpressionNode:
        return replace(self, value=children[0])


@dataclass(frozen=True)
class Element(ExpressionNode):
    """The element of an array, inside of the body of a ListLambda with the same label."""

    label: str
    dtype: DataType | None = None

    @cached_property
    def type(self) -> DataType:
        return self.dtype or NOTHING


@dataclass(frozen=True)
class ListLambda(ExpressionNode):
    """`list_map` or `list_filter`: an expression over each element of an array."""

    function: str
    values: ExpressionNode
    body: ExpressionNode
    label: str

    @cached_property
    def type(self) -> DataType:
        values = self.values.type
        if values.name != "Array":
            raise unsupported_types_error(self.function, [describe_node(self.values)], (values,), "it takes an array")
        if has_aggregate(self.body) or has_window(self.body):
            raise DataTypeError(
                f"{self.function} computes each element alone.", remedy="Leave out aggregates and windows."
            )
        if self.function == "list_map":
            return replace(array_of(self.body.type), nullable=values.nullable)
        if not self.body.type.is_bool:
            raise DataTypeError(
                f"A condition must be a boolean, not {self.body.type}.", remedy="Compare it with a value."
            )
        return values

    @property
    def children(self) -> tuple[ExpressionNode, ...]:
        return (self.values, self.body)

    def with_children(self, children: tuple[ExpressionNode, ...]) -> ExpressionNode:
        """Return the node with the type of its elements set in the body."""
        values, body = children
        element = Element(self.label, values.type.element)
        typed = rewrite_node(body, lambda n: element if isinstance(n, Element) and n.label == self.label else None)
        return replace(self, values=values, body=typed)


def describe_node(node: ExpressionNode) -> str:
    """Describe a node for an error message."""
    if isinstance(node, Ref):
        return f"column {node.name!r}"
    if isinstance(node, Literal):
        text = repr(node.value)
        return text if len(text) <= 40 else text[:37] + "…"
    if isinstance(node, FunctionCall):
        return f"{node.function}({', '.join(describe_node(arg) for arg in node.args)})"
    return "a window" if isinstance(node, Over) else "a value"


def walk_nodes(node: ExpressionNode) -> Iterator[ExpressionNode]:
    yield node
    for child in node.children:
        yield from walk_nodes(child)


def rewrite_node(node: ExpressionNode, change: Callable[[ExpressionNode], ExpressionNode | None]) -> ExpressionNode:
    """Replace nodes top-down: a node returned by `change` is used as it is, otherwise the children are rewritten."""
    changed = change(node)
    if changed is not None:
        return changed
    children = node.children
    if not children:
        return node
    rewritten = tuple(rewrite_node(child, change) for child in children)
    if all(new is old for new, old in zip(rewritten, children, strict=True)):
        return node
    return node.with_children(rewritten)


def substitute_columns(node: ExpressionNode, columns: Mapping[str, ExpressionNode]) -> ExpressionNode:
    """Replace column references by expressions."""
    return rewrite_node(
        node, lambda candidate: columns[candidate.name] if isinstance(candidate, Ref) and not candidate.alias else None
    )


def bind_columns(node: ExpressionNode, schema: Schema) -> ExpressionNode:
    """Set the type of every column reference; raise if a name or a type of the expression is invalid."""

    def bind_column(candidate: ExpressionNode) -> ExpressionNode | None:
        if not isinstance(candidate, Ref) or candidate.alias:
            return None
        if candidate.name not in schema:
            raise column_not_found(candidate.name, schema)
        return Ref(candidate.name, schema[candidate.name])

    result = rewrite_node(node, bind_column)
    _ = result.type
    _check_filters(result, inside_aggregate=False)
    return result


def _check_filters(node: ExpressionNode, *, inside_aggregate: bool) -> None:
    """Raise if filter(…) of an expression is not directly inside of an aggregate."""
    is_call = isinstance(node, FunctionCall)
    if is_call and node.function == "_filtered" and not inside_aggregate:
        raise DataTypeError(
            "filter(…) of a column needs an aggregate.", remedy='For example col("x").filter(col("y") > 0).sum().'
        )
    is_aggregate = is_call and node.kind is FunctionKind.AGGREGATE
    if isinstance(node, FunctionCall) and is_aggregate and any(map(has_aggregate, node.children)):
        raise DataTypeError(
            f"An aggregate is inside of {node.function}(…).",
            remedy="Aggregate twice: group_by(…).agg(…), then select(…); or use .over(…) for the inner one.",
        )
    for child in node.children:
        _check_filters(child, inside_aggregate=is_aggregate or isinstance(node, Over))


def has_aggregate(node: ExpressionNode) -> bool:
    """Whether the node contains an aggregate outside of a window."""
    if isinstance(node, Over):
        return any(has_aggregate(child) for child in node.children)
    if isinstance(node, FunctionCall) and node.kind is FunctionKind.AGGREGATE:
        return True
    return any(has_aggregate(child) for child in node.children)


def has_window(node: ExpressionNode) -> bool:
    return any(isinstance(descendant, Over) for descendant in walk_nodes(node))


def is_aggregated(node: ExpressionNode) -> bool:
    """Whether the node has one value per group, that is, every column is inside an aggregate."""
    if isinstance(node, Ref | Over | RowIndex):
        return False
    if isinstance(node, FunctionCall) and node.kind is FunctionKind.AGGREGATE:
        return True
    return all(is_aggregated(child) for child in node.children)


def broadcast_aggregates(node: ExpressionNode) -> ExpressionNode:
    """Turn aggregates into windows over all rows, so that they have a value for every row."""

    def to_window(candidate: ExpressionNode) -> ExpressionNode | None:
        if isinstance(candidate, Over):
            return candidate
        if isinstance(candidate, FunctionCall) and candidate.kind is FunctionKind.AGGREGATE:
            return Over(candidate)
        return None

    return rewrite_node(node, to_window)
