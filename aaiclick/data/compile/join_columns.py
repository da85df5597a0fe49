"""Columns of joins, concatenations and inserts: matching keys, output columns and common types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aaiclick.data.compile.relation_nodes import Project, Relation
from aaiclick.data.errors import DataTypeError, column_not_found
from aaiclick.data.expressions.column import column_node
from aaiclick.data.expressions.functions.comparisons import are_comparable
from aaiclick.data.expressions.nodes import ExpressionNode, FunctionCall, Ref
from aaiclick.data.expressions.selectors import flatten_lists
from aaiclick.data.io.lossy_cast_checks import find_lossy_cast
from aaiclick.data.io.nested_arrays import inner_types
from aaiclick.data.runtime.tables import check_column_names
from aaiclick.data.types import DataType, supertype


def check_columns_exist(names: Any, schema: Mapping[str, DataType]) -> None:
    for name in names:
        if not isinstance(name, str):
            raise DataTypeError(f"{name!r:.60} was passed where the name of a column is needed.")
        if name not in schema:
            raise column_not_found(name, schema)


def join_pairs(on: object, left_on: object, right_on: object) -> tuple[tuple[Any, Any], ...]:
    def as_list(value: object) -> list[Any]:
        keys = [] if value is None else flatten_lists([value])
        for key in keys:
            column_node(key)
        return keys

    if on is not None and (left_on is not None or right_on is not None):
        raise DataTypeError("Pass either on=, or left_on= and right_on=.")
    left, right = (as_list(on), as_list(on)) if on is not None else (as_list(left_on), as_list(right_on))
    if len(left) != len(right):
        raise DataTypeError(f"There are {len(left)} left keys and {len(right)} right keys.")
    return tuple(zip(left, right, strict=True))


def check_join_keys(pairs: Sequence[tuple[str, str]], left: Relation, right: Relation) -> None:
    for left_name, right_name in pairs:
        check_columns_exist([left_name], left.schema)
        check_columns_exist([right_name], right.schema)
        left_type, right_type = left.schema[left_name], right.schema[right_name]
        if not are_comparable(left_type, right_type):
            raise DataTypeError(
                f"Keys {left_name!r} ({left_type}) and {right_name!r} ({right_type}) cannot be compared.",
                remedy="Cast one.",
            )
        has_null = left_type.is_nullable_structure or right_type.is_nullable_structure
        if has_null and not _have_equal_texts(left_type, right_type):
            raise DataTypeError(
                f"Keys {left_name!r} ({left_type}) and {right_name!r} ({right_type}) are of different types.",
                remedy="Cast one.",
            )


def _have_equal_texts(left: DataType, right: DataType) -> bool:
    """Whether equal values of two nested types have the same text: they differ in NULLs or widths of integers only."""
    if left.is_structure and right.is_structure:
        parts = [inner_types(dtype) for dtype in (left, right)]
        pairs = zip(*parts, strict=False)
        return left.name == right.name and len(parts[0]) == len(parts[1]) and all(_have_equal_texts(*p) for p in pairs)
    return left.as_required() == right.as_required() or (left.is_integer and right.is_integer)


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


def column_of(relation: Relation, name: str) -> ExpressionNode:
    schema = relation.schema
    source = name if name in schema else next(iter(schema))
    return Ref(source, schema[source])


def common_type(name: str, dtypes: list[DataType]) -> DataType:
    result = dtypes[0]
    for dtype in dtypes[1:]:
        common = supertype(result, dtype)
        if common is None:
            raise DataTypeError(
                f"Column {name!r} is {result} in one Object and {dtype} in another.", remedy="Cast one."
            )
        result = common
    return result


def cast_for_insert(relation: Relation, columns: Iterable[tuple[str, DataType]]) -> Relation:
    """Cast rows to the columns of an existing table; raise DataTypeError if a cast would change values."""
    dtypes = dict(columns)
    for name, dtype in dtypes.items():
        source_type = column_of(relation, name).type
        change = find_lossy_cast(source_type, dtype)
        if change is not None:
            raise DataTypeError(
                f"Column {name!r} is {dtype} and cannot store {source_type} ({change}).", remedy="Cast it first."
            )
    return cast_to_types(relation, dtypes)


def cast_to_types(relation: Relation, dtypes: Mapping[str, DataType]) -> Relation:
    nodes: list[tuple[str, ExpressionNode]] = []
    for name, dtype in dtypes.items():
        node = column_of(relation, name)
        nodes.append((name, node if node.type == dtype else FunctionCall("cast", (node,), (dtype,))))
    return Project(relation, tuple(nodes))


def hidden_name(label: str, *schemas: Iterable[str]) -> str:
    """Return a name for a column of an intermediate result that no user column has; such results may be stored."""
    name = f"_{label}"
    while any(name in schema for schema in schemas):
        name = f"_{name}"
    return name
