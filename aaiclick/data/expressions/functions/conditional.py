"""Conditional functions and casts."""

# ruff: noqa: ARG001, ARG005  (all builders have one signature)

from __future__ import annotations

from functools import reduce

from aaiclick.data.compile import sql
from aaiclick.data.compile.sql import Expression
from aaiclick.data.expressions.functions.arithmetic import are_comparable
from aaiclick.data.expressions.functions.registry import (
    TRUTH,
    NotDefinedError,
    Params,
    Types,
    any_nullable,
    check_types,
    define_function,
)
from aaiclick.data.types import BOOL, NOTHING, DataType, supertype


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
    return sql.call("if", args[0], sql.cast(args[1], dtype), sql.cast(args[2], dtype))


def _case_type(types: Types, params: Params) -> DataType:
    """Type of case(condition, value, condition, value, …, otherwise)."""
    check_types(types[:-1:2], *(TRUTH for _ in types[:-1:2]))
    return common_supertype((*types[1:-1:2], types[-1]))


def _build_case(args: list[Expression], types: Types, params: Params) -> Expression:
    dtype = _case_type(types, params)
    last = len(args) - 1
    return sql.call("multiIf", *(sql.cast(a, dtype) if i % 2 or i == last else a for i, a in enumerate(args)))


def _coalesce_type(types: Types, params: Params) -> DataType:
    dtype = common_supertype(types)
    return dtype.as_nullable(all(value_type.nullable for value_type in types))


def _build_coalesce(args: list[Expression], types: Types, params: Params) -> Expression:
    dtype = _coalesce_type(types, params)
    wide = dtype.as_nullable()
    return sql.cast(sql.call("coalesce", *(sql.cast(arg, wide) for arg in args)), dtype)


def _null_if_type(types: Types, params: Params) -> DataType:
    if not are_comparable(*types):
        raise NotDefinedError("they cannot be compared")
    return types[0].as_nullable()


def _extreme_type(types: Types, params: Params) -> DataType:
    return common_supertype(types)


def _define_extreme(name: str) -> None:
    def build(args: list[Expression], types: Types, params: Params) -> Expression:
        dtype = _extreme_type(types, params)
        extreme = sql.cast(sql.call(name, *(sql.cast(arg, dtype) for arg in args)), dtype)
        missing = [
            sql.call("isNull", arg.copy()) for arg, arg_type in zip(args, types, strict=True) if arg_type.nullable
        ]
        if not missing:
            return extreme
        # Newer servers skip NULLs, older ones return NULL: make NULL explicit.
        return sql.call("if", sql.call("or", *missing, sql.number(0)), sql.null(), extreme)

    define_function(name, _extreme_type, build, f"the {name} of several values in a row; NULL if one of them is")


def _cast_type(types: Types, params: Params) -> DataType:
    """Type of a cast: the target type, nullable if the source is."""
    target: DataType = params[0]
    return target.as_nullable(target.nullable or any_nullable(types))


def _build_cast(args: list[Expression], types: Types, params: Params) -> Expression:
    target = _cast_type(types, params)
    if types[0].is_float and target.as_required().is_integer:
        # CAST of 1e300 or NaN to an integer returns an arbitrary number; accurateCast raises an error.
        truncated = sql.call("trunc", args[0])
        return sql.call("accurateCast", truncated, sql.type_name(target))
    if types[0].as_required().is_integer and target.as_required().is_integer:
        return sql.call("accurateCast", args[0], sql.type_name(target))
    if target.as_required() == BOOL and types[0].is_numeric:
        return sql.cast(sql.binary("!=", args[0], sql.number(0)), target)
    return sql.cast(args[0], target)


def _try_cast_type(types: Types, params: Params) -> DataType:
    return params[0].as_nullable()


def _build_try_cast(args: list[Expression], types: Types, params: Params) -> Expression:
    return sql.call("accurateCastOrNull", args[0], sql.type_name(params[0].as_required()))


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
define_function("cast", _cast_type, _build_cast, "the value as another type; a number that does not fit is an error")
define_function("try_cast", _try_cast_type, _build_try_cast, "the value as another type, NULL where that fails")
define_function("null", lambda types, params: NOTHING, lambda args, types, params: sql.null(), "NULL")
