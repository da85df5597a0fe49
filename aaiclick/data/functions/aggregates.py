"""Aggregates and window functions. NULLs are left out; an empty column has no minimum: NULL, not 0."""

# ruff: noqa: ARG001, ARG005  (all builders have one signature)
# pyright: reportArgumentType=false, reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from aaiclick.data import sql
from aaiclick.data.functions.arithmetic import as_number
from aaiclick.data.functions.registry import (
    FLAT,
    NUMBER,
    TRUTH,
    Over,
    Params,
    Result,
    Types,
    check,
    define_aggregate,
    define_window,
)
from aaiclick.data.sql import Expression
from aaiclick.data.types import BOOL, FLOAT64, INT64, UINT64, DataType, array_of, decimal_type, integer


def _sum(types: Types, params: Params) -> DataType:
    check(types, NUMBER)
    kind = as_number(types[0])
    if kind.is_decimal:
        return decimal_type(max(38, kind.args[0]), kind.args[1])
    if kind.is_float or kind.is_unknown:
        return FLOAT64
    return integer(kind.is_signed, max(kind.bits, 64))


def _build_sum(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
    total = over(sql.call("sum", args[0]))
    return sql.call("ifNull", total, sql.cast(sql.number(0), _sum(types, params))) if types[0].nullable else total


def _extreme(types: Types, params: Params) -> DataType:
    check(types, FLAT)
    return types[0].as_nullable()


def _or_null(function: str) -> object:
    def build(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
        return over(sql.call(f"{function}OrNull", *args))

    return build


def _number_to_float(types: Types, params: Params) -> DataType:
    check(types, NUMBER, NUMBER)
    return FLOAT64.as_nullable()


def _mean(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
    value = sql.call("toFloat64", args[0]) if types[0].is_decimal or types[0].is_bool else args[0]
    return over(sql.call("avgOrNull", value))


def _spread(function: str) -> object:
    """NULL for fewer than two values (one, for the population): there is no spread to speak of."""

    def build(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
        sample = params[0] == 1
        value = sql.call("toFloat64", args[0])
        name = f"{function}{'Samp' if sample else 'Pop'}Stable"
        enough = sql.binary(">", over(sql.call("count", args[0].copy())), sql.number(1 if sample else 0))
        return sql.call("if", enough, over(sql.call(name, value)), sql.null())

    return build


def _quantile(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
    value = sql.call("toFloat64", args[0]) if not types[0].is_float else args[0]
    return over(sql.parametric("quantileExactInclusiveOrNull", [params[0]], value))


def _pair(function: str) -> object:
    """NULL for fewer than two pairs, as a spread is."""

    def build(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
        present = sql.all_of(sql.call("isNotNull", arg.copy()) for arg in args)
        enough = sql.binary(">", over(sql.call("countIf", present or sql.number(1))), sql.number(1))
        value = over(sql.call(f"{function}OrNull", *(sql.call("toFloat64", arg) for arg in args)))
        return sql.call("if", enough, value, sql.null())

    return build


def _count(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
    return over(sql.call("count", *args))


def _any(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
    return sql.call("ifNull", over(sql.call("maxOrNull", args[0])), sql.cast(sql.number(0), BOOL))


def _all(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
    return sql.call("ifNull", over(sql.call("minOrNull", args[0])), sql.cast(sql.number(1), BOOL))


def _edge(function: str) -> object:
    """argMin leaves out rows whose value is NULL: wrapped in a tuple, the first row counts whatever it holds."""

    def build(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
        value, position = args
        kept = over(sql.call(function, sql.call("tuple", value), position))
        element = sql.call("tupleElement", kept, sql.number(1))
        if types[0].is_structure:
            return element
        some = sql.binary(">", over(sql.call("count")), sql.number(0))
        return sql.call("if", some, sql.cast(element, _first(types, params)), sql.null())

    return build


def _first(types: Types, params: Params) -> DataType:
    return types[0].as_nullable()


def _collect(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
    value, position = args
    pairs = over(sql.call("groupArray", sql.call("tuple", position, value)))
    return sql.call("tupleElement", sql.call("arraySort", pairs), sql.number(2))


def _truth(types: Types, params: Params) -> DataType:
    check(types, TRUTH)
    return BOOL


def _count_if(types: Types, params: Params) -> DataType:
    check(types, TRUTH)
    return UINT64


define_aggregate("sum", _sum, _build_sum, "sum; 0 when there is nothing to add")
define_aggregate("min", _extreme, _or_null("min"), "least value; NULL when there is none")
define_aggregate("max", _extreme, _or_null("max"), "greatest value; NULL when there is none")
define_aggregate("mean", _number_to_float, _mean, "arithmetic mean")
define_aggregate("std", _number_to_float, _spread("stddev"), "standard deviation (ddof 1 or 0)")
define_aggregate("var", _number_to_float, _spread("var"), "variance (ddof 1 or 0)")
define_aggregate("quantile", _number_to_float, _quantile, "exact quantile, interpolated linearly")
define_aggregate("count", lambda t, p: UINT64, _count, "number of values that are not NULL")
define_aggregate("len", lambda t, p: UINT64, _count, "number of rows")
define_aggregate(
    "count_if", _count_if, lambda a, t, p, over: over(sql.call("countIf", *a)), "number of rows where it is true"
)
define_aggregate(
    "nunique",
    lambda t, p: UINT64,
    lambda a, t, p, over: over(sql.call("uniqExact", *a)),
    "number of different values, NULL left out",
)
define_aggregate("any", _truth, _any, "whether any is true")
define_aggregate("all", _truth, _all, "whether all are true (NULL left out)")
define_aggregate(
    "arg_min",
    lambda t, p: INT64.as_nullable(),
    lambda a, t, p, over: sql.cast(over(sql.call("argMinOrNull", a[1], a[0])), INT64.as_nullable()),
    "position of the least value",
)
define_aggregate(
    "arg_max",
    lambda t, p: INT64.as_nullable(),
    lambda a, t, p, over: sql.cast(over(sql.call("argMaxOrNull", a[1], a[0])), INT64.as_nullable()),
    "position of the greatest value",
)
define_aggregate("first", _first, _edge("argMin"), "value of the first row")
define_aggregate("last", _first, _edge("argMax"), "value of the last row")
define_aggregate("collect", lambda t, p: array_of(t[0]), _collect, "all values as an array, in row order")
define_aggregate("corr", _number_to_float, _pair("corrStable"), "Pearson correlation of two columns")
define_aggregate("cov", _number_to_float, _pair("covarSampStable"), "sample covariance of two columns")


def _shift(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
    distance: int = params[0]
    value = args[0] if types[0].is_structure else sql.call("toNullable", args[0])
    return over(sql.call("lagInFrame" if distance >= 0 else "leadInFrame", value, sql.number(abs(distance))))


def _numbering(function: str) -> object:
    def build(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
        return sql.cast(over(sql.call(function)), INT64)

    return build


_SHIFTED: Result = lambda types, params: types[0].as_nullable()  # noqa: E731
define_window("shift", _SHIFTED, _shift, "the value a number of rows earlier, NULL before the first")
define_window("row_number", lambda t, p: INT64, _numbering("row_number"), "1, 2, 3, … in order")
define_window("rank", lambda t, p: INT64, _numbering("rank"), "rank with gaps after ties")
define_window("dense_rank", lambda t, p: INT64, _numbering("dense_rank"), "rank without gaps")
