"""Conditional functions."""

# ruff: noqa: ARG001, ARG005  (all builders have one signature)

from __future__ import annotations

import math
from functools import reduce

from aaiclick.data.compile import sql
from aaiclick.data.compile.sql import Expression
from aaiclick.data.expressions.functions.casts import build_cast
from aaiclick.data.expressions.functions.comparisons import are_comparable
from aaiclick.data.expressions.functions.registry import (
    TRUTH,
    NotDefinedError,
    Params,
    Types,
    check_types,
    define_function,
)
from aaiclick.data.types import NOTHING, DataType, supertype


def common_supertype(types: Types) -> DataType:
    """Return the common supertype; raise NotDefinedError if two types have none."""

    def merge_types(left: DataType, right: DataType) -> DataType:
        common = supertype(left, right)
        if common is None or (common.is_structure and (left.nullable or right.nullable)):
            raise NotDefinedError(f"{left} and {right} have no common supertype")
        return common

    return reduce(merge_types, types)


def _if_else_type(types: Types, params: Params) -> DataType:
    check_types(types, TRUTH)
    return common_supertype(types[1:])


def _build_if_else(args: list[Expression], types: Types, params: Params) -> Expression:
    dtype = _if_else_type(types, params)
    return sql.call("if", args[0], build_cast(args[1], types[1], dtype), build_cast(args[2], types[2], dtype))


def _case_type(types: Types, params: Params) -> DataType:
    """Type of case(condition, value, condition, value, …, otherwise)."""
    check_types(types[:-1:2], *(TRUTH for _ in types[:-1:2]))
    return common_supertype((*types[1:-1:2], types[-1]))


def _build_case(args: list[Expression], types: Types, params: Params) -> Expression:
    dtype = _case_type(types, params)
    last = len(args) - 1
    return sql.call(
        "multiIf",
        *(build_cast(a, types[i], dtype) if i % 2 or i == last else a for i, a in enumerate(args)),
    )


def _coalesce_type(types: Types, params: Params) -> DataType:
    dtype = common_supertype(types)
    return dtype.as_nullable(all(value_type.nullable for value_type in types))


def _build_coalesce(args: list[Expression], types: Types, params: Params) -> Expression:
    dtype = _coalesce_type(types, params)
    wide = dtype.as_nullable()
    return sql.cast(
        sql.call("coalesce", *(build_cast(arg, t, wide) for arg, t in zip(args, types, strict=True))), dtype
    )


def _null_if_type(types: Types, params: Params) -> DataType:
    if not are_comparable(*types):
        raise NotDefinedError("they cannot be compared")
    if types[0].is_structure:
        raise NotDefinedError("it takes plain values: use case((condition, None), otherwise=…) for arrays and structs")
    return types[0].as_nullable()


def _extreme_type(types: Types, params: Params) -> DataType:
    return common_supertype(types)


def _define_extreme(name: str) -> None:
    def build(args: list[Expression], types: Types, params: Params) -> Expression:
        dtype = _extreme_type(types, params)
        values = [build_cast(arg, arg_type, dtype) for arg, arg_type in zip(args, types, strict=True)]
        extreme = sql.cast(sql.call(name, *values), dtype)
        # Servers differ for NULL and NaN: make both explicit.
        if nans := [sql.call("isNaN", arg.copy()) for arg, t in zip(args, types, strict=True) if t.is_float]:
            extreme = sql.call("if", sql.call("or", *nans, sql.number(0)), sql.number(math.nan), extreme)
        missing = [
            sql.call("isNull", arg.copy()) for arg, arg_type in zip(args, types, strict=True) if arg_type.nullable
        ]
        return sql.call("if", sql.call("or", *missing, sql.number(0)), sql.null(), extreme) if missing else extreme

    define_function(name, _extreme_type, build, f"the {name} of several values in a row; NULL or NaN if one of them is")


define_function(
    "if_else", _if_else_type, _build_if_else, "one value where the condition holds, the other where not (or NULL)"
)
define_function("case", _case_type, _build_case, "the value of the first condition that holds")
define_function("coalesce", _coalesce_type, _build_coalesce, "the first value that is not NULL")
define_function(
    "null_if",
    _null_if_type,
    lambda args, types, params: sql.call("nullIf", *args),
    "NULL where the value equals the other",
)
_define_extreme("least")
_define_extreme("greatest")
define_function("null", lambda types, params: NOTHING, lambda args, types, params: sql.null(), "NULL")


def _replace_type(types: Types, params: Params) -> DataType:
    value, keys, values, default = types
    if not are_comparable(value, keys.element):
        raise NotDefinedError(f"{value} cannot be compared with {keys.element}")
    return common_supertype((values.element, default.as_nullable(default.nullable or value.nullable)))


def _build_replace(args: list[Expression], types: Types, params: Params) -> Expression:
    value, keys, values, default = args
    dtype = _replace_type(types, params)
    position = sql.call("indexOf", keys, value)
    chosen = build_cast(sql.call("arrayElement", values, position.copy()), types[2].element, dtype)
    default_value = build_cast(default, types[3], dtype)
    missing = sql.binary("=", position, sql.number(0))
    replaced = sql.call("if", missing, default_value, chosen)
    return sql.call("if", sql.call("isNull", value.copy()), sql.null(), replaced) if types[0].nullable else replaced


define_function("replace_values", _replace_type, _build_replace, "values replaced by those of a list")
define_function(
    "_missing",
    lambda types, params: params[0],
    lambda args, types, params: sql.cast(sql.call("array") if params[0].is_structure else sql.null(), params[0]),
    "",
)
