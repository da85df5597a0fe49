"""Relation nodes: ordered sets of rows with named columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from aaiclick.data.expressions.nodes import ExpressionNode, Membership, Scalar, SortKey, walk_nodes
from aaiclick.data.types import DataType, supertype

if TYPE_CHECKING:
    from aaiclick.data.runtime.tables import Table

Columns = tuple[tuple[str, ExpressionNode], ...]


@dataclass(frozen=True)
class Relation:
    """Base class of relation nodes."""

    @cached_property
    def schema(self) -> dict[str, DataType]:
        raise NotImplementedError

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return ()

    @cached_property
    def depth(self) -> int:
        """Height of the relation tree."""
        return 1 + max((relation.depth for relation in self.inputs), default=0)

    def with_inputs(self, inputs: tuple[Relation, ...]) -> Relation:  # noqa: ARG002
        return self


@dataclass(frozen=True)
class Scan(Relation):
    """The rows of a table with keys in [offset, offset + limit), or that range of the rows that match a condition.

    `start_key` comes from the chunk index: the scan starts there, and `skipped` matching rows precede it.
    """

    table: Table
    offset: int = 0
    limit: int | None = None
    where: ExpressionNode | None = None
    start_key: int = 0
    skipped: int = 0

    @cached_property
    def schema(self) -> dict[str, DataType]:
        return dict(self.table.columns)


@dataclass(frozen=True)
class Unary(Relation):
    input: Relation

    @cached_property
    def schema(self) -> dict[str, DataType]:
        return self.input.schema

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return (self.input,)

    def with_inputs(self, inputs: tuple[Relation, ...]) -> Relation:
        return replace(self, input=inputs[0])


@dataclass(frozen=True)
class Project(Unary):
    """The same rows with computed columns."""

    columns: Columns

    @cached_property
    def schema(self) -> dict[str, DataType]:
        return {name: node.type for name, node in self.columns}


@dataclass(frozen=True)
class Filter(Unary):
    predicate: ExpressionNode


@dataclass(frozen=True)
class Sort(Unary):
    keys: tuple[SortKey, ...]


@dataclass(frozen=True)
class Slice(Unary):
    """`limit` rows after `offset` others, counted from the last row if `from_end`; the order of rows is kept."""

    offset: int
    limit: int | None
    from_end: bool = False


@dataclass(frozen=True)
class LimitBy(Unary):
    """The first rows of each combination of keys, or the last ones; the order of rows is kept."""

    keys: Columns
    limit: int
    from_end: bool = False


@dataclass(frozen=True)
class Distinct(Unary):
    """The first row of each combination of `subset` values."""

    subset: tuple[str, ...]


@dataclass(frozen=True)
class Aggregate(Unary):
    """One row per combination of keys (a single row without keys), sorted by the keys."""

    keys: Columns
    values: Columns
    having: ExpressionNode | None = None

    @cached_property
    def schema(self) -> dict[str, DataType]:
        return {name: node.type for name, node in (*self.keys, *self.values)}


@dataclass(frozen=True)
class Explode(Unary):
    """A row per element of the arrays in these columns, which are of equal length in each row."""

    names: tuple[str, ...]
    keep_empty: bool

    @cached_property
    def schema(self) -> dict[str, DataType]:
        return {
            name: (
                dtype.element.as_nullable(dtype.element.nullable or self.keep_empty) if name in self.names else dtype
            )
            for name, dtype in self.input.schema.items()
        }


@dataclass(frozen=True)
class Join(Relation):
    """Join of two relations. `outputs` holds (name, side, source column); the side is "l", "r" or "k" (merged key)."""

    left: Relation
    right: Relation
    how: str
    on: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str, str], ...]
    asof: tuple[str, str, str] | None = None
    equal_nulls: bool = False
    """Whether a NULL key equals another."""

    @cached_property
    def schema(self) -> dict[str, DataType]:
        return {name: self.output_type(side, source) for name, side, source in self.outputs}

    def output_type(self, side: str, source: str) -> DataType:
        """Return the type of an output column, nullable where a row may be unmatched."""
        if side == "k":
            left, right = self.left.schema[source], self.right.schema[dict(self.on)[source]]
            if self.how == "right":
                return right
            return (supertype(left, right) or left).as_nullable() if self.how == "full" else left
        dtype = (self.left if side == "l" else self.right).schema[source]
        optional = (
            self.how == "full"
            or (self.how == "right" and side == "l")
            or (self.how in ("left", "asof") and side == "r")
        )
        return dtype.as_nullable(dtype.nullable or optional)

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return (self.left, self.right)

    def with_inputs(self, inputs: tuple[Relation, ...]) -> Relation:
        return replace(self, left=inputs[0], right=inputs[1])


@dataclass(frozen=True)
class Zip(Relation):
    """Relations of equal length combined row by row. Column `x` of member 1 is named `1:x`."""

    members: tuple[Relation, ...]

    @cached_property
    def schema(self) -> dict[str, DataType]:
        return {f"{i}:{name}": dtype for i, member in enumerate(self.members) for name, dtype in member.schema.items()}

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return self.members

    def with_inputs(self, inputs: tuple[Relation, ...]) -> Relation:
        return replace(self, members=inputs)


@dataclass(frozen=True)
class Concat(Relation):
    """The rows of several relations one after another; all have the same columns and types."""

    members: tuple[Relation, ...]

    @cached_property
    def schema(self) -> dict[str, DataType]:
        return self.members[0].schema

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return self.members

    def with_inputs(self, inputs: tuple[Relation, ...]) -> Relation:
        return replace(self, members=inputs)


def iter_scans(relation: Relation) -> Iterator[Scan]:
    """Iterate over all table scans, including those of scalar subqueries."""
    if isinstance(relation, Scan):
        yield relation
    for inner in relation.inputs:
        yield from iter_scans(inner)
    for node in iter_value_nodes(relation):
        for descendant in walk_nodes(node):
            if isinstance(descendant, Scalar | Membership):
                yield from iter_scans(descendant.relation)


def iter_value_nodes(relation: Relation) -> Iterator[ExpressionNode]:
    """Iterate over the expression nodes of a relation, without those of its inputs."""
    if isinstance(relation, Project):
        yield from (node for _, node in relation.columns)
    elif isinstance(relation, Filter):
        yield relation.predicate
    elif isinstance(relation, Sort):
        yield from (key.node for key in relation.keys)
    elif isinstance(relation, LimitBy):
        yield from (node for _, node in relation.keys)
    elif isinstance(relation, Aggregate):
        yield from (node for _, node in (*relation.keys, *relation.values))
        if relation.having is not None:
            yield relation.having
