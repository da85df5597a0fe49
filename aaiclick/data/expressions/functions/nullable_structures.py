"""Functions of arrays, tuples and maps that may be NULL, which are stored in an array of at most one element.

A function receives the element, and its result is NULL where the array is empty.
"""

from __future__ import annotations

from dataclasses import replace

from aaiclick.data.compile import sql
from aaiclick.data.compile.sql import Expression
from aaiclick.data.expressions.functions.registry import (
    FUNCTIONS,
    Function,
    FunctionKind,
    NotDefinedError,
    Over,
    Params,
    Types,
)
from aaiclick.data.types import BOOL, INT64, DataType

NULL_CHECKS = {"is_null": "empty", "is_not_null": "notEmpty"}
STORED_VALUES = frozenset(
    {
        "first",
        "last",
        "cast",
        "collect",
        "shift",
        "_first_in_order",
        "_last_in_order",
        "_collect_in_order",
    }
)
"""Functions that return the stored value."""

EMPTY_FOR_NULL = frozenset({"_positions", "_element", "_required"})
"""Functions that treat NULL as an empty array."""

COUNTS = {"count": "countIf", "nunique": "uniqExactIf"}
BRANCHES = frozenset({"if_else", "case"})
CHOICES = frozenset({"least", "greatest", "null_if", "try_cast", "array", "hash", "to_json"})
"""Functions that do not return NULL whenever an argument is NULL."""


def result_type(name: str, types: Types, params: Params) -> DataType:
    """Return the type of a call; raise NotDefinedError if the function does not accept the types."""
    function = FUNCTIONS[name]
    if name == "cast":
        _check_cast(types[0], params[0])
    if name in BRANCHES and _has_null_structure(name, types):
        return _branch_type(name, types, params)
    if not any(dtype.is_nullable_structure for dtype in types):
        return function.result(types, params)
    if name in NULL_CHECKS:
        return BOOL
    if name in COUNTS:
        return INT64
    if name == "_null_where":
        return types[0]
    if name in STORED_VALUES:
        return function.result(types, params)
    if name == "coalesce":
        return _coalesced_type(types, params)
    if function.kind is not FunctionKind.ROW or name in CHOICES:
        raise NotDefinedError("it does not take arrays, structs or maps that may be NULL: use fill_null first")
    result = function.result(_element_types(types), params)
    return result if name in EMPTY_FOR_NULL else replace(result, nullable=True)


def build_tree(name: str, args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
    """Build the ClickHouse expression of a call."""
    function = FUNCTIONS[name]
    if name == "cast" and params[0].is_nullable_structure and not types[0].nullable:
        required = replace(params[0], nullable=False)
        return sql.call("array", function.build(args, types, (required,), over))
    if name in BRANCHES and _has_null_structure(name, types):
        return _build_branches(name, args, types, params)
    if not any(dtype.is_nullable_structure for dtype in types) or name in STORED_VALUES:
        return function.build(args, types, params, over)
    if name == "_null_where":
        return sql.call("if", args[1], sql.cast(sql.call("array"), types[0]), args[0])
    if name in COUNTS:
        present = sql.call("notEmpty", args[0].copy())
        counted = [present] if name == "count" else [args[0], present]
        return sql.cast(over(sql.call(COUNTS[name], *counted)), INT64)
    if name in NULL_CHECKS:
        return sql.call(NULL_CHECKS[name], args[0])
    if name == "coalesce":
        return _build_coalesce(args, types, params)
    elements = [
        sql.call("arrayElement", arg.copy(), sql.number(1)) if dtype.is_nullable_structure else arg
        for arg, dtype in zip(args, types, strict=True)
    ]
    tree = function.build(elements, _element_types(types), params, over)
    if name in EMPTY_FOR_NULL:
        return tree
    return _null_where_empty(function, args, types, params, tree)


def _null_where_empty(
    function: Function, args: list[Expression], types: Types, params: Params, tree: Expression
) -> Expression:
    tests = [sql.call("empty", arg) for arg, dtype in zip(args, types, strict=True) if dtype.is_nullable_structure]
    is_null = tests[0] if len(tests) == 1 else sql.call("or", *tests)
    result = function.result(_element_types(types), params)
    if not result.is_structure:
        return sql.call("if", is_null, sql.null(), tree)
    stored = tree if result.nullable else sql.call("array", tree)
    return sql.call("if", is_null, sql.call("array"), stored)


def _check_cast(source: DataType, target: DataType) -> None:
    if not source.is_nullable_structure and not target.is_nullable_structure:
        return
    if source.is_nullable_structure and not (target.is_nullable_structure and target.name == source.name):
        raise NotDefinedError("a value that may be NULL needs fill_null first")
    if source.name != target.name:
        raise NotDefinedError(f"{source} cannot become {target}")


def _coalesced_type(types: Types, params: Params) -> DataType:
    result = FUNCTIONS["coalesce"].result(_element_types(types), params)
    return replace(result, nullable=all(dtype.nullable for dtype in types))


def _build_coalesce(args: list[Expression], types: Types, params: Params) -> Expression:
    result = _coalesced_type(types, params)
    required = replace(result, nullable=False)
    trees: list[Expression] = []
    for arg, dtype in zip(args, types, strict=True):
        if not dtype.nullable:
            value = sql.cast(arg, required)
            trees.append(sql.call("array", value) if result.nullable else value)
            break
        element = sql.cast(sql.call("arrayElement", arg.copy(), sql.number(1)), required)
        stored = sql.call("array", element) if result.nullable else element
        trees += [sql.call("notEmpty", arg), stored]
    return sql.call("multiIf", *trees, *([sql.call("array")] if result.nullable else []))


def _value_positions(name: str, count: int) -> list[int]:
    """Return the positions of the values, not the conditions, among the arguments of if_else or case."""
    return [1, 2] if name == "if_else" else [*range(1, count - 1, 2), count - 1]


def _has_null_structure(name: str, types: Types) -> bool:
    """Whether if_else or case chooses between arrays, structs or maps of which one may be NULL."""
    values = [types[i] for i in _value_positions(name, len(types))]
    is_structure = any(dtype.is_structure for dtype in values)
    return is_structure and any(dtype.is_nullable_structure or dtype.is_unknown for dtype in values)


def _branch_type(name: str, types: Types, params: Params) -> DataType:
    required = tuple(replace(dtype, nullable=False) if dtype.is_unknown else dtype for dtype in _element_types(types))
    return replace(FUNCTIONS[name].result(required, params), nullable=True)


def _build_branches(name: str, args: list[Expression], types: Types, params: Params) -> Expression:
    result, values = _branch_type(name, types, params), set(_value_positions(name, len(types)))
    required = replace(result, nullable=False)

    def build_branch(arg: Expression, dtype: DataType) -> Expression:
        if dtype.is_unknown:
            return sql.cast(sql.call("array"), result)
        return sql.cast(arg, result) if dtype.is_nullable_structure else sql.call("array", sql.cast(arg, required))

    branches = [
        build_branch(arg, dtype) if i in values else arg for i, (arg, dtype) in enumerate(zip(args, types, strict=True))
    ]
    return sql.call("if" if name == "if_else" else "multiIf", *branches)


def _element_types(types: Types) -> Types:
    return tuple(replace(dtype, nullable=False) if dtype.is_nullable_structure else dtype for dtype in types)
