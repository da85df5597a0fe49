"""Relation nodes: sets of rows with named columns, in an order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from aaiclick.data.nodes import Node, Scalar, SortKey, walk
from aaiclick.data.types import DataType, supertype

if TYPE_CHECKING:
    from aaiclick.data.tables import Table

Columns = tuple[tuple[str, Node], ...]


@dataclass(frozen=True)
class Relation:
    """A set of rows in an order."""

    @cached_property
    def schema(self) -> dict[str, DataType]:
        raise NotImplementedError

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return ()

    @cached_property
    def depth(self) -> int:
        """How many steps lead to it."""
        return 1 + max((each.depth for each in self.inputs), default=0)

    def with_inputs(self, inputs: tuple[Relation, ...]) -> Relation:  # noqa: ARG002
        return self


@dataclass(frozen=True)
class Scan(Relation):
    """The rows of a table whose key lies in [offset, offset + limit), or, given a condition, that part of the
    matching rows.

    `start_key` is a fence: no matching row before it is wanted, and `skipped` matching rows lie before it.
    """

    table: Table
    offset: int = 0
    limit: int | None = None
    where: Node | None = None
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
    """The same rows with other columns."""

    columns: Columns

    @cached_property
    def schema(self) -> dict[str, DataType]:
        return {name: node.type for name, node in self.columns}


@dataclass(frozen=True)
class Filter(Unary):
    predicate: Node


@dataclass(frozen=True)
class Sort(Unary):
    keys: tuple[SortKey, ...]


@dataclass(frozen=True)
class Slice(Unary):
    offset: int
    limit: int | None


@dataclass(frozen=True)
class Distinct(Unary):
    """One row of each combination of `subset` values: the first in order."""

    subset: tuple[str, ...]


@dataclass(frozen=True)
class Aggregate(Unary):
    """One row per combination of keys (one row in all without keys), in the order of the keys."""

    keys: Columns
    values: Columns
    having: Node | None = None

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
            name: (kind.element.as_nullable(kind.element.nullable or self.keep_empty) if name in self.names else kind)
            for name, kind in self.input.schema.items()
        }


@dataclass(frozen=True)
class Join(Relation):
    """Rows of two relations side by side. `outputs` says where each column comes from: ("l" | "r" | "k", name)."""

    left: Relation
    right: Relation
    how: str
    on: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str, str], ...]
    asof: tuple[str, str, str] | None = None

    @cached_property
    def schema(self) -> dict[str, DataType]:
        return {name: self.kind_of(side, source) for name, side, source in self.outputs}

    def kind_of(self, side: str, source: str) -> DataType:
        """The type of an output column: NULL where a row may have no partner."""
        if side == "k":
            left, right = self.left.schema[source], self.right.schema[dict(self.on)[source]]
            if self.how == "right":
                return right
            return (supertype(left, right) or left).as_nullable() if self.how == "full" else left
        kind = (self.left if side == "l" else self.right).schema[source]
        optional = (
            self.how == "full"
            or (self.how == "right" and side == "l")
            or (self.how in ("left", "asof") and side == "r")
        )
        return kind.as_nullable(kind.nullable or optional)

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return (self.left, self.right)

    def with_inputs(self, inputs: tuple[Relation, ...]) -> Relation:
        return replace(self, left=inputs[0], right=inputs[1])


@dataclass(frozen=True)
class Zip(Relation):
    """Relations of equal length side by side, row by row. Column `x` of member 1 is named `1:x`."""

    members: tuple[Relation, ...]

    @cached_property
    def schema(self) -> dict[str, DataType]:
        return {f"{i}:{name}": kind for i, member in enumerate(self.members) for name, kind in member.schema.items()}

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return self.members

    def with_inputs(self, inputs: tuple[Relation, ...]) -> Relation:
        return replace(self, members=inputs)


@dataclass(frozen=True)
class Concat(Relation):
    """The rows of one relation after those of another; all have the same columns and types."""

    members: tuple[Relation, ...]

    @cached_property
    def schema(self) -> dict[str, DataType]:
        return self.members[0].schema

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return self.members

    def with_inputs(self, inputs: tuple[Relation, ...]) -> Relation:
        return replace(self, members=inputs)


def scans(relation: Relation) -> Iterator[Scan]:
    """Every table read, scalar subqueries included."""
    if isinstance(relation, Scan):
        yield relation
    for inner in relation.inputs:
        yield from scans(inner)
    for node in values_of(relation):
        for each in walk(node):
            if isinstance(each, Scalar):
                yield from scans(each.relation)


def values_of(relation: Relation) -> Iterator[Node]:
    """The value nodes a relation holds itself."""
    if isinstance(relation, Project):
        yield from (node for _, node in relation.columns)
    elif isinstance(relation, Filter):
        yield relation.predicate
    elif isinstance(relation, Sort):
        yield from (key.node for key in relation.keys)
    elif isinstance(relation, Aggregate):
        yield from (node for _, node in (*relation.keys, *relation.values))
        if relation.having is not None:
            yield relation.having
