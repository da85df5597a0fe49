"""Aggregates. NULLs are ignored; without values all but sum and counts are NULL."""

# ruff: noqa: ARG001, ARG005  (all builders have one signature)

from __future__ import annotations

import math
import sys
from dataclasses import replace

from aaiclick.data.compile import sql
from aaiclick.data.compile.sql import Expression
from aaiclick.data.expressions.functions.arithmetic import canonical_float, numeric_type
from aaiclick.data.expressions.functions.casts import build_checked_cast
from aaiclick.data.expressions.functions.registry import (
    FLAT,
    NUMBER,
    TRUTH,
    BuildAggregate,
    Over,
    Params,
    Types,
    check_types,
    define_aggregate,
    define_function,
    raise_where,
)
from aaiclick.data.types import BOOL, FLOAT64, INT64, DataType, array_of, decimal_type, sized_integer_type

WIDE_OVERFLOW = "aai_wide_sum"


def sum_type(types: Types, params: Params) -> DataType:
    """Return the type of a sum: 64-bit integers, Decimals of at least 38 digits, or floats."""
    check_types(types, NUMBER)
    dtype = numeric_type(types[0])
    if dtype.is_decimal:
        return decimal_type(max(38, dtype.args[0]), dtype.args[1])
    if dtype.is_float or dtype.is_unknown:
        return FLOAT64
    return INT64 if dtype.bits < 64 else dtype


def _build_sum(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
    """Build a sum. ClickHouse wraps, so that numbers are added in twice the width and the result is checked."""
    dtype, source = sum_type(types, params), numeric_type(types[0])
    if source.is_decimal and source.args[0] > 18:
        exact = over(
            sql.call("sum", sql.cast(args[0], decimal_type(76, source.args[1]).as_nullable(types[0].nullable)))
        )
        if source.args[0] > 38:
            exact = _check_wide_sum(exact, args[0], 10.0 ** -source.args[1], over)
        total = sql.cast(exact, dtype.as_nullable(types[0].nullable))
    elif source.is_integer and source.bits == 256:
        total = _check_wide_sum(over(sql.call("sum", args[0])), args[0], 1.0 + (not source.is_signed), over)
    elif source.is_integer and source.bits >= 64:
        exact = over(sql.call("sum", sql.call("toInt128" if source.bits == 64 else "toInt256", args[0])))
        total = build_checked_cast(exact, dtype.as_nullable(types[0].nullable))
    elif source.is_integer and source.bits < 64:
        total = sql.cast(over(sql.call("sum", args[0])), dtype.as_nullable(types[0].nullable))
    else:
        total = over(sql.call("sum", args[0]))
    return sql.call("ifNull", total, sql.cast(sql.number(0), dtype)) if types[0].nullable else total


def _check_wide_sum(total: Expression, value: Expression, unit: float, over: Over) -> Expression:
    """Raise where a sum of 256 bits wrapped: it then differs from the sum of floats by a multiple of 2**256."""
    about = over(sql.call("sumKahan", sql.call("toFloat64", value.copy())))
    difference = sql.call("abs", sql.binary("-", sql.call("toFloat64", total), about))
    wrapped = raise_where(sql.binary(">", difference, sql.number(2.0**254 * unit)), WIDE_OVERFLOW)
    return sql.call("if", wrapped, total.copy(), total.copy())


def _extreme_type(types: Types, params: Params) -> DataType:
    check_types(types, FLAT)
    return types[0].as_nullable()


def _build_extreme(function: str) -> BuildAggregate:
    """Build min or max. NaN counts only if there is nothing else; servers differ in that, so it is left out here."""

    def build(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
        if types[0].is_float:
            extreme = over(sql.call(f"{function}IfOrNull", args[0], _is_no_nan(args[0])))
            return sql.call("coalesce", extreme, over(sql.call("anyOrNull", args[0].copy())))
        if types[0].nullable:
            return over(sql.call(f"{function}OrNull", args[0]))
        some = sql.binary(">", over(sql.call("count")), sql.number(0))  # faster than OrNull
        return sql.call("if", some, over(sql.call(function, args[0])), sql.null())

    return build


def _is_no_nan(value: Expression) -> Expression:
    return sql.logical_not(sql.call("isNaN", value.copy()))


def _nullable_float_type(types: Types, params: Params) -> DataType:
    check_types(types, NUMBER, NUMBER)
    return FLOAT64.as_nullable()


def _build_mean(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
    source = numeric_type(types[0])
    if source.is_integer and 64 <= source.bits < 256:  # avg wraps
        total = over(sql.call("sum", sql.cast(args[0], _wide_integer_type(source).as_nullable(types[0].nullable))))
        return _divide_by_count(total, args[0], over)
    if source.is_decimal and source.args[0] <= 18:  # exact, and the sum is shared with sum()
        return _divide_by_count(sql.call("toFloat64", over(sql.call("sum", args[0]))), args[0], over)
    is_wide = types[0].is_decimal or types[0].bits == 256
    value = sql.call("toFloat64", args[0]) if is_wide or types[0].is_bool else args[0]
    return over(sql.call("avgOrNull", value))


def _divide_by_count(total: Expression, value: Expression, over: Over) -> Expression:
    return sql.binary("/", total, sql.call("nullIf", over(sql.call("count", value.copy())), sql.number(0)))


def _wide_integer_type(dtype: DataType) -> DataType:
    return sized_integer_type(True, min(dtype.bits * 2, 256))


def _build_deviation(function: str) -> BuildAggregate:
    """Build std or var; NULL for fewer than two values (fewer than one for the population)."""

    def build(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
        sample = params[0] == 1
        name = f"{function}{'Samp' if sample else 'Pop'}Stable"
        enough = sql.binary(">", over(sql.call("count", args[0].copy())), sql.number(1 if sample else 0))
        source = numeric_type(types[0])
        if source.is_integer and source.bits == 64:
            variance = _build_exact_variance(args[0], sample, source.is_signed, over)
            return sql.call("if", enough, sql.call("sqrt", variance) if function == "stddev" else variance, sql.null())
        deviation = over(sql.call(name, sql.call("toFloat64", args[0])))
        if not sample and types[0].is_float:  # ClickHouse returns 0 for a single NaN
            finite = sql.logical_not(sql.call("isFinite", args[0].copy()))
            some = sql.binary(">", over(sql.call("countIf", finite)), sql.number(0))
            deviation = sql.call("if", some, sql.number(math.nan), deviation)
        return sql.call("if", enough, deviation, sql.null())

    return build


def _build_exact_variance(value: Expression, sample: bool, is_signed: bool, over: Over) -> Expression:
    """Build the variance from exact sums: floats do not have 64 bits, for example for nanoseconds since 1970."""
    number = sql.call("toInt128" if is_signed else "toUInt128", value)
    squares = over(sql.call("sum", sql.call("toInt256", sql.call("multiply", number, number.copy()))))
    total = sql.call("toInt256", over(sql.call("sum", sql.call("toInt128", value.copy()))))
    count = over(sql.call("count", value.copy()))
    deviations = sql.binary(
        "-", sql.call("multiply", count, squares), sql.call("multiply", total, total.copy())
    )  # times the count
    freedom = sql.binary("-", count.copy(), sql.number(1)) if sample else count.copy()
    pairs = sql.call("multiply", sql.call("toFloat64", count.copy()), sql.call("toFloat64", freedom))
    return sql.binary("/", sql.call("toFloat64", deviations), pairs)


def _build_quantile(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
    """Build a quantile in which NaN is greater than every number; ClickHouse leaves NaN out."""
    if not types[0].is_float:
        return over(sql.parametric_call("quantileExactInclusiveOrNull", [params[0]], sql.call("toFloat64", args[0])))
    return _build_float_quantile(args[0], params[0], over)


def _build_float_quantile(value: Expression, level: float, over: Over) -> Expression:
    """Interpolate between finite values only; which of the others the rank reaches is counted."""

    def count_where(condition: Expression) -> Expression:
        return over(sql.call("countIf", condition))

    largest = sql.number(sys.float_info.max)
    is_greater = sql.call("or", sql.call("isNaN", value), sql.binary("=", value.copy(), sql.number(math.inf)))
    finite = sql.call("if", is_greater, largest, value.copy())
    interpolated = over(sql.parametric_call("quantileExactInclusiveOrNull", [level], finite))
    rank = sql.binary("*", sql.binary("-", over(sql.call("count", value.copy())), sql.number(1)), sql.number(level))
    upper = sql.call("ceil", rank)
    numbers = count_where(_is_no_nan(value))
    infinite = count_where(sql.binary("=", value.copy(), sql.number(math.inf)))
    below = count_where(sql.binary("=", value.copy(), sql.number(-math.inf)))
    reaches_nan = sql.binary(">=", upper, numbers)
    reaches_infinity = sql.binary(">=", upper.copy(), sql.binary("-", numbers.copy(), infinite))
    starts_below = sql.binary("<", sql.call("floor", rank.copy()), below)
    return sql.call(
        "multiIf",
        *(sql.binary("<", rank.copy(), sql.number(0)), sql.null()),
        *(reaches_nan, sql.number(math.nan)),
        *(sql.binary("AND", starts_below, reaches_infinity), sql.number(math.nan)),
        *(starts_below.copy(), sql.number(-math.inf)),
        *(reaches_infinity.copy(), sql.number(math.inf)),
        interpolated,
    )


def _build_pairwise(function: str) -> BuildAggregate:
    """Build corr or cov; NULL for fewer than two pairs."""

    def build(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
        pairs = zip(args, types, strict=True)
        present = sql.conjunction(sql.call("isNotNull", arg.copy()) for arg, dtype in pairs if dtype.nullable)
        count = sql.call("count") if present is None else sql.call("countIf", present)
        enough = sql.binary(">", over(count), sql.number(1))
        value = over(sql.call(f"{function}OrNull", *(sql.call("toFloat64", arg) for arg in args)))
        return sql.call("if", enough, value, sql.null())

    return build


def _build_count(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
    return sql.cast(over(sql.call("count", *args)), INT64)


def _build_any(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
    return sql.call("ifNull", over(sql.call("maxOrNull", args[0])), sql.cast(sql.number(0), BOOL))


def _build_all(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
    return sql.call("ifNull", over(sql.call("minOrNull", args[0])), sql.cast(sql.number(1), BOOL))


def _build_first_or_last(function: str, positions: int = 1) -> BuildAggregate:
    """Build first or last, optionally of the rows where a condition holds; a tuple keeps NULLs, which argMin skips.

    The arguments are the value, its position unless the rows of a window are in order, and the condition.
    """

    def build(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
        value, *rest = args
        condition = rest[positions:]
        suffix = "If" if condition else ""
        wrapped = over(sql.call(function + suffix, sql.call("tuple", value), *rest))
        element = sql.call("tupleElement", wrapped, sql.number(1))
        if types[0].is_nullable_structure:
            return element
        some = sql.binary(">", over(sql.call(f"count{suffix}", *(c.copy() for c in condition))), sql.number(0))
        if types[0].is_structure:
            return sql.call("if", some, sql.call("array", element), sql.call("array"))
        return sql.call("if", some, sql.cast(element, _first_type(types, params)), sql.null())

    return build


def _first_type(types: Types, params: Params) -> DataType:
    return replace(types[0], nullable=True)


def _build_collect(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
    value, position, *condition = args
    function = "groupArrayIf" if condition else "groupArray"
    pairs = over(sql.call(function, sql.call("tuple", position, value), *condition))
    return sql.call("tupleElement", sql.call("arraySort", pairs), sql.number(2))


def _build_ordered_collect(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
    value, *condition = args
    function = "groupArrayIf" if condition else "groupArray"
    return sql.call("tupleElement", over(sql.call(function, sql.call("tuple", value), *condition)), sql.number(1))


def _filtered_type(types: Types, params: Params) -> DataType:
    check_types(types, FLAT, TRUTH)
    return types[0].as_nullable()


def _bool_type(types: Types, params: Params) -> DataType:
    check_types(types, TRUTH)
    return BOOL


def _count_if_type(types: Types, params: Params) -> DataType:
    check_types(types, TRUTH)
    return INT64


def _build_unique_count(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
    value = canonical_float(args[0], types[0]) if types[0].is_float else args[0]
    return sql.cast(over(sql.call("uniqExact", value)), INT64)


def _build_position(function: str) -> BuildAggregate:
    """Build the position of the first least or greatest value; NaN counts only if there is nothing else."""

    def build(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
        value, position = args
        order = sql.call("negate", sql.call("toInt64", position)) if function == "argMax" else position
        plain = sql.call("assumeNotNull", value) if types[0].nullable else value
        key = sql.call("tuple", plain, order.copy())
        present = sql.call("isNotNull", value.copy())
        usable = sql.binary("AND", present, _is_no_nan(value)) if types[0].is_float else present
        chosen = over(sql.call(f"{function}IfOrNull", position.copy(), key, usable))
        if types[0].is_float:
            chosen = sql.call("coalesce", chosen, over(sql.call("minIfOrNull", position.copy(), present.copy())))
        return sql.cast(chosen, INT64.as_nullable())

    return build


define_aggregate("sum", sum_type, _build_sum, "sum; 0 when there is nothing to add")
define_aggregate("min", _extreme_type, _build_extreme("min"), "least value; NULL when there is none")
define_aggregate("max", _extreme_type, _build_extreme("max"), "greatest value; NULL when there is none")
define_aggregate("mean", _nullable_float_type, _build_mean, "arithmetic mean")
define_aggregate("std", _nullable_float_type, _build_deviation("stddev"), "standard deviation (ddof 1 or 0)")
define_aggregate("var", _nullable_float_type, _build_deviation("var"), "variance (ddof 1 or 0)")
define_aggregate("quantile", _nullable_float_type, _build_quantile, "exact quantile, interpolated linearly")
define_aggregate("count", lambda t, p: INT64, _build_count, "number of values that are not NULL")
define_aggregate("len", lambda t, p: INT64, _build_count, "number of rows")
define_aggregate(
    "count_if",
    _count_if_type,
    lambda a, t, p, over: sql.cast(over(sql.call("countIf", *a)), INT64),
    "number of rows where it is true",
)
define_aggregate(
    "nunique",
    lambda t, p: INT64,
    _build_unique_count,
    "number of different values, NULL left out",
)
define_aggregate("any", _bool_type, _build_any, "whether any is true")
define_aggregate("all", _bool_type, _build_all, "whether all are true (NULL left out)")
define_aggregate(
    "arg_min",
    lambda t, p: INT64.as_nullable(),
    _build_position("argMin"),
    "position of the least value",
)
define_aggregate(
    "arg_max",
    lambda t, p: INT64.as_nullable(),
    _build_position("argMax"),
    "position of the greatest value",
)
define_aggregate("first", _first_type, _build_first_or_last("argMin"), "value of the first row")
define_aggregate("last", _first_type, _build_first_or_last("argMax"), "value of the last row")
# In a window with order_by, these are the first and the last row in its order.
define_aggregate("_first_in_order", _first_type, _build_first_or_last("any", positions=0), "")
define_aggregate("_last_in_order", _first_type, _build_first_or_last("anyLast", positions=0), "")
define_aggregate("_collect_in_order", lambda t, p: array_of(t[0]), _build_ordered_collect, "")
define_function(
    "_filtered",
    _filtered_type,
    lambda a, t, p: sql.call("if", a[1], sql.call("toNullable", a[0]), sql.null()),
    "",
)
define_aggregate("collect", lambda t, p: array_of(t[0]), _build_collect, "all values as an array, in row order")
define_aggregate("corr", _nullable_float_type, _build_pairwise("corrStable"), "Pearson correlation of two columns")
define_aggregate("cov", _nullable_float_type, _build_pairwise("covarSampStable"), "sample covariance of two columns")
