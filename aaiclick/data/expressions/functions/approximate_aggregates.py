"""The most frequent value, and aggregates that are approximate and need constant memory."""

# ruff: noqa: ARG001, ARG005  (all builders have one signature)

from __future__ import annotations

from aaiclick.data.compile import sql
from aaiclick.data.compile.sql import Expression
from aaiclick.data.expressions.functions.arithmetic import canonical_float
from aaiclick.data.expressions.functions.registry import (
    FLAT,
    NUMBER,
    Over,
    Params,
    Types,
    check_types,
    define_aggregate,
)
from aaiclick.data.types import FLOAT64, INT64, DataType


def _mode_type(types: Types, params: Params) -> DataType:
    check_types(types, FLAT)
    return types[0].as_nullable()


def _build_mode(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
    """Build the key of the greatest count in a map of counts with sorted keys."""
    value = canonical_float(args[0], types[0]) if types[0].is_float else args[0]
    plain = sql.call("assumeNotNull", value) if types[0].nullable else value
    one = sql.call("array", sql.call("toUInt64", sql.number(1)))
    counts = over(sql.call("sumMapIf", sql.call("array", plain), one, sql.call("isNotNull", args[0].copy())))
    keys = sql.call("tupleElement", counts, sql.number(1))
    totals = sql.call("tupleElement", counts.copy(), sql.number(2))
    position = sql.call("indexOf", totals, sql.call("arrayMax", totals.copy()))
    chosen = sql.cast(sql.call("arrayElement", keys, position), _mode_type(types, params))
    return sql.call("if", sql.call("empty", totals.copy()), sql.null(), chosen)


def _build_approx_nunique(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
    value = canonical_float(args[0], types[0]) if types[0].is_float else args[0]
    return sql.cast(sql.call("ifNull", over(sql.call("uniqCombined64", value)), sql.number(0)), INT64)


def _approx_quantile_type(types: Types, params: Params) -> DataType:
    check_types(types, NUMBER)
    return FLOAT64.as_nullable()


def _build_approx_quantile(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
    level = over(sql.parametric_call("quantileTDigestOrNull", [params[0]], sql.call("toFloat64", args[0])))
    return sql.cast(level, FLOAT64.as_nullable())


define_aggregate("mode", _mode_type, _build_mode, "most frequent value, of several the least")
define_aggregate("approx_nunique", lambda t, p: INT64, _build_approx_nunique, "approximate number of different values")
define_aggregate("approx_quantile", _approx_quantile_type, _build_approx_quantile, "approximate quantile")
