"""Bringing two relations together: which columns match, and what comes out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aaiclick.data.errors import DataTypeError, column_not_found
from aaiclick.data.families import altered
from aaiclick.data.functions.arithmetic import comparable
from aaiclick.data.nodes import Call, Node, Ref
from aaiclick.data.relations import Project, Relation
from aaiclick.data.tables import check_column_names
from aaiclick.data.types import DataType, supertype


def known(names: Any, schema: Mapping[str, DataType]) -> None:
    for name in names:
        if name not in schema:
            raise column_not_found(name, schema)


def join_pairs(on: Any, left_on: Any, right_on: Any) -> tuple[tuple[str, str], ...]:
    def listed(value: Any) -> list[str]:
        return [] if value is None else [value] if isinstance(value, str) else list(value)

    if on is not None and (left_on is not None or right_on is not None):
        raise DataTypeError("Give either on=, or left_on= and right_on=.")
    left, right = (listed(on), listed(on)) if on is not None else (listed(left_on), listed(right_on))
    if len(left) != len(right):
        raise DataTypeError(f"There are {len(left)} left keys and {len(right)} right keys.")
    return tuple(zip(left, right, strict=True))


def check_pairs(pairs: Sequence[tuple[str, str]], left: Relation, right: Relation) -> None:
    for a, b in pairs:
        known([a], left.schema)
        known([b], right.schema)
        if not comparable(left.schema[a], right.schema[b]):
            raise DataTypeError(
                f"Keys {a!r} ({left.schema[a]}) and {b!r} ({right.schema[b]}) do not compare.", remedy="Cast one."
            )


def join_outputs(
    left: Relation, right: Relation, pairs: Sequence[tuple[str, str]], how: str, suffix: str
) -> tuple[tuple[str, str, str], ...]:
    merged = {a for a, _ in pairs}
    dropped = {b for _, b in pairs}
    result = [(name, "k" if name in merged else "l", name) for name in left.schema]
    if how in ("semi", "anti"):
        return tuple((name, "l", source) for name, _, source in result)
    taken = set(left.schema)
    for name in right.schema:
        if name in dropped:
            continue
        output = name + suffix if name in taken else name
        result.append((output, "r", name))
    check_column_names(name for name, _, _ in result)
    return tuple(result)


def column_of(relation: Relation, name: str) -> Node:
    schema = relation.schema
    source = name if name in schema else next(iter(schema))
    return Ref(source, schema[source])


def common_type(name: str, kinds: list[DataType]) -> DataType:
    result = kinds[0]
    for kind in kinds[1:]:
        both = supertype(result, kind)
        if both is None:
            raise DataTypeError(f"Column {name!r} is {result} in one Object and {kind} in another.", remedy="Cast one.")
        result = both
    return result


def taken_as(relation: Relation, columns: Iterable[tuple[str, DataType]]) -> Relation:
    """Rows on their way into columns that are there; what would become another value is refused."""
    kinds = dict(columns)
    for name, kind in kinds.items():
        own = column_of(relation, name).type
        said = altered(own, kind)
        if said is not None:
            raise DataTypeError(f"Column {name!r} is {kind}, and is given {own} ({said}).", remedy="Cast it first.")
    return shaped(relation, kinds)


def shaped(relation: Relation, kinds: Mapping[str, DataType]) -> Relation:
    nodes: list[tuple[str, Node]] = []
    for name, kind in kinds.items():
        node = column_of(relation, name)
        nodes.append((name, node if node.type == kind else Call("cast", (node,), (kind,))))
    return Project(relation, tuple(nodes))
