"""Choosing between values, and changing their type."""

# ruff: noqa: ARG001, ARG005  (all builders have one signature)
# pyright: reportArgumentType=false, reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from functools import reduce

from aaiclick.data import sql
from aaiclick.data.functions.arithmetic import comparable
from aaiclick.data.functions.registry import (
    TRUTH,
    NotDefinedError,
    Params,
    Types,
    any_nullable,
    check,
    define,
)
from aaiclick.data.sql import Expression
from aaiclick.data.types import BOOL, NOTHING, DataType, supertype


def common(types: Types) -> DataType:
    """One type for all of these, or the error that says which two have none."""

    def join(left: DataType, right: DataType) -> DataType:
        both = supertype(left, right)
        if both is None or (both.is_structure and (left.nullable or right.nullable)):
            raise NotDefinedError(f"{left} and {right} have no type in common")
        return both

    return reduce(join, types)


def _if_else(types: Types, params: Params) -> DataType:
    check(types, TRUTH)
    return common(types[1:])


def _build_if_else(args: list[Expression], types: Types, params: Params) -> Expression:
    kind = _if_else(types, params)
    return sql.call("if", args[0], sql.cast(args[1], kind), sql.cast(args[2], kind))


def _case(types: Types, params: Params) -> DataType:
    """Arguments: condition, value, condition, value, …, otherwise."""
    check(types[:-1:2], *(TRUTH for _ in types[:-1:2]))
    return common((*types[1:-1:2], types[-1]))


def _build_case(args: list[Expression], types: Types, params: Params) -> Expression:
    kind = _case(types, params)
    last = len(args) - 1
    return sql.call("multiIf", *(sql.cast(a, kind) if i % 2 or i == last else a for i, a in enumerate(args)))


def _coalesce(types: Types, params: Params) -> DataType:
    kind = common(types)
    return kind.as_nullable(all(each.nullable for each in types))


def _build_coalesce(args: list[Expression], types: Types, params: Params) -> Expression:
    kind = _coalesce(types, params)
    wide = kind.as_nullable()
    return sql.cast(sql.call("coalesce", *(sql.cast(arg, wide) for arg in args)), kind)


def _null_if(types: Types, params: Params) -> DataType:
    if not comparable(*types):
        raise NotDefinedError("they do not compare")
    return types[0].as_nullable()


def _extreme(types: Types, params: Params) -> DataType:
    return common(types)


def _build_extreme(name: str) -> None:
    def build(args: list[Expression], types: Types, params: Params) -> Expression:
        kind = _extreme(types, params)
        found = sql.cast(sql.call(name, *(sql.cast(arg, kind) for arg in args)), kind)
        missing = [sql.call("isNull", arg.copy()) for arg, each in zip(args, types, strict=True) if each.nullable]
        if not missing:
            return found
        # Newer servers leave NULLs out and older ones do not: say what is meant.
        return sql.call("if", sql.call("or", *missing, sql.number(0)), sql.null(), found)

    define(name, _extreme, build, f"the {name} of several values in a row; NULL if one of them is")


def _cast(types: Types, params: Params) -> DataType:
    """NULL stays NULL: the target becomes nullable when the source is."""
    target: DataType = params[0]
    return target.as_nullable(target.nullable or any_nullable(types))


def _build_cast(args: list[Expression], types: Types, params: Params) -> Expression:
    target = _cast(types, params)
    if types[0].is_float and target.required().is_integer:
        # CAST of 1e300 or NaN to an integer gives some number; accurateCast refuses instead.
        truncated = sql.call("trunc", args[0])
        return sql.call("accurateCast", truncated, sql.type_name(target))
    if types[0].required().is_integer and target.required().is_integer:
        return sql.call("accurateCast", args[0], sql.type_name(target))
    if target.required() == BOOL and types[0].is_numeric:
        return sql.cast(sql.binary("!=", args[0], sql.number(0)), target)
    return sql.cast(args[0], target)


def _try_cast(types: Types, params: Params) -> DataType:
    return params[0].as_nullable()


def _build_try_cast(args: list[Expression], types: Types, params: Params) -> Expression:
    return sql.call("accurateCastOrNull", args[0], sql.type_name(params[0].required()))


define("if_else", _if_else, _build_if_else, "one value where the condition holds, the other where not (or NULL)")
define("case", _case, _build_case, "the value of the first condition that holds")
define("coalesce", _coalesce, _build_coalesce, "the first value that is not NULL")
define(
    "null_if",
    _null_if,
    lambda args, types, params: sql.call("nullIf", *args),
    "NULL where the value equals the other",
)
_build_extreme("least")
_build_extreme("greatest")
define("cast", _cast, _build_cast, "the value as another type; a number that does not fit is an error")
define("try_cast", _try_cast, _build_try_cast, "the value as another type, NULL where that fails")
define("null", lambda types, params: NOTHING, lambda args, types, params: sql.null(), "NULL")
