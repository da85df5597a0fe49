"""Aggregates and window functions. NULLs are ignored; without values all but sum and counts are NULL."""

# ruff: noqa: ARG001, ARG005  (all builders have one signature)

from __future__ import annotations

from aaiclick.data.compile import sql
from aaiclick.data.compile.sql import Expression
from aaiclick.data.expressions.functions.arithmetic import numeric_type
from aaiclick.data.expressions.functions.registry import (
    FLAT,
    NUMBER,
    TRUTH,
    BuildAggregate,
    Over,
    Params,
    Result,
    Types,
    check_types,
    define_aggregate,
    define_window,
)
from aaiclick.data.types import BOOL, FLOAT64, INT64, UINT64, DataType, array_of, decimal_type, sized_integer_type


def _sum_type(types: Types, params: Params) -> DataType:
    check_types(types, NUMBER)
    dtype = numeric_type(types[0])
    if dtype.is_decimal:
        return decimal_type(max(38, dtype.args[0]), dtype.args[1])
    if dtype.is_float or dtype.is_unknown:
        return FLOAT64
    return sized_integer_type(dtype.is_signed, max(dtype.bits, 64))


def _build_sum(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
    total = over(sql.call("sum", args[0]))
    return sql.call("ifNull", total, sql.cast(sql.number(0), _sum_type(types, params))) if types[0].nullable else total


def _extreme_type(types: Types, params: Params) -> DataType:
    check_types(types, FLAT)
    return types[0].as_nullable()


def _build_or_null(function: str) -> BuildAggregate:
    def build(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
        return over(sql.call(f"{function}OrNull", *args))

    return build


def _nullable_float_type(types: Types, params: Params) -> DataType:
    check_types(types, NUMBER, NUMBER)
    return FLOAT64.as_nullable()


def _build_mean(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
    value = sql.call("toFloat64", args[0]) if types[0].is_decimal or types[0].is_bool else args[0]
    return over(sql.call("avgOrNull", value))


def _build_deviation(function: str) -> BuildAggregate:
    """Build std or var; NULL for fewer than two values (fewer than one for the population)."""

    def build(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
        sample = params[0] == 1
        value = sql.call("toFloat64", args[0])
        name = f"{function}{'Samp' if sample else 'Pop'}Stable"
        enough = sql.binary(">", over(sql.call("count", args[0].copy())), sql.number(1 if sample else 0))
        return sql.call("if", enough, over(sql.call(name, value)), sql.null())

    return build


def _build_quantile(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
    value = sql.call("toFloat64", args[0]) if not types[0].is_float else args[0]
    return over(sql.parametric_call("quantileExactInclusiveOrNull", [params[0]], value))


def _build_pairwise(function: str) -> BuildAggregate:
    """Build corr or cov; NULL for fewer than two pairs."""

    def build(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
        present = sql.conjunction(sql.call("isNotNull", arg.copy()) for arg in args)
        enough = sql.binary(">", over(sql.call("countIf", present or sql.number(1))), sql.number(1))
        value = over(sql.call(f"{function}OrNull", *(sql.call("toFloat64", arg) for arg in args)))
        return sql.call("if", enough, value, sql.null())

    return build


def _build_count(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
    return over(sql.call("count", *args))


def _build_any(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
    return sql.call("ifNull", over(sql.call("maxOrNull", args[0])), sql.cast(sql.number(0), BOOL))


def _build_all(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
    return sql.call("ifNull", over(sql.call("minOrNull", args[0])), sql.cast(sql.number(1), BOOL))


def _build_first_or_last(function: str) -> BuildAggregate:
    """Build first or last; the value is wrapped in a tuple, since argMin and argMax skip NULLs."""

    def build(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
        value, position = args
        wrapped = over(sql.call(function, sql.call("tuple", value), position))
        element = sql.call("tupleElement", wrapped, sql.number(1))
        if types[0].is_structure:
            return element
        some = sql.binary(">", over(sql.call("count")), sql.number(0))
        return sql.call("if", some, sql.cast(element, _first_type(types, params)), sql.null())

    return build


def _first_type(types: Types, params: Params) -> DataType:
    return types[0].as_nullable()


def _build_collect(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
    value, position = args
    pairs = over(sql.call("groupArray", sql.call("tuple", position, value)))
    return sql.call("tupleElement", sql.call("arraySort", pairs), sql.number(2))


def _bool_type(types: Types, params: Params) -> DataType:
    check_types(types, TRUTH)
    return BOOL


def _count_if_type(types: Types, params: Params) -> DataType:
    check_types(types, TRUTH)
    return UINT64


define_aggregate("sum", _sum_type, _build_sum, "sum; 0 when there is nothing to add")
define_aggregate("min", _extreme_type, _build_or_null("min"), "least value; NULL when there is none")
define_aggregate("max", _extreme_type, _build_or_null("max"), "greatest value; NULL when there is none")
define_aggregate("mean", _nullable_float_type, _build_mean, "arithmetic mean")
define_aggregate("std", _nullable_float_type, _build_deviation("stddev"), "standard deviation (ddof 1 or 0)")
define_aggregate("var", _nullable_float_type, _build_deviation("var"), "variance (ddof 1 or 0)")
define_aggregate("quantile", _nullable_float_type, _build_quantile, "exact quantile, interpolated linearly")
define_aggregate("count", lambda t, p: UINT64, _build_count, "number of values that are not NULL")
define_aggregate("len", lambda t, p: UINT64, _build_count, "number of rows")
define_aggregate(
    "count_if", _count_if_type, lambda a, t, p, over: over(sql.call("countIf", *a)), "number of rows where it is true"
)
define_aggregate(
    "nunique",
    lambda t, p: UINT64,
    lambda a, t, p, over: over(sql.call("uniqExact", *a)),
    "number of different values, NULL left out",
)
define_aggregate("any", _bool_type, _build_any, "whether any is true")
define_aggregate("all", _bool_type, _build_all, "whether all are true (NULL left out)")
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
define_aggregate("first", _first_type, _build_first_or_last("argMin"), "value of the first row")
define_aggregate("last", _first_type, _build_first_or_last("argMax"), "value of the last row")
define_aggregate("collect", lambda t, p: array_of(t[0]), _build_collect, "all values as an array, in row order")
define_aggregate("corr", _nullable_float_type, _build_pairwise("corrStable"), "Pearson correlation of two columns")
define_aggregate("cov", _nullable_float_type, _build_pairwise("covarSampStable"), "sample covariance of two columns")


def _build_shift(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
    distance: int = params[0]
    value = args[0] if types[0].is_structure else sql.call("toNullable", args[0])
    return over(sql.call("lagInFrame" if distance >= 0 else "leadInFrame", value, sql.number(abs(distance))))


def _build_numbering(function: str) -> BuildAggregate:
    def build(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
        return sql.cast(over(sql.call(function)), INT64)

    return build


_SHIFT_TYPE: Result = lambda types, params: types[0].as_nullable()  # noqa: E731
define_window("shift", _SHIFT_TYPE, _build_shift, "the value a number of rows earlier, NULL before the first")
define_window("row_number", lambda t, p: INT64, _build_numbering("row_number"), "1, 2, 3, … in order")
define_window("rank", lambda t, p: INT64, _build_numbering("rank"), "rank with gaps after ties")
define_window("dense_rank", lambda t, p: INT64, _build_numbering("dense_rank"), "rank without gaps")
