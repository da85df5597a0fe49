"""Window functions."""

# ruff: noqa: ARG001, ARG005  (all builders have one signature)

from __future__ import annotations

from dataclasses import replace

from aaiclick.data.compile import sql
from aaiclick.data.compile.sql import Expression
from aaiclick.data.expressions.functions.dates_and_times import epoch_micros
from aaiclick.data.expressions.functions.registry import (
    NUMBER,
    BuildAggregate,
    NotDefinedError,
    Over,
    Params,
    Result,
    Types,
    any_nullable,
    check_types,
    define_function,
    define_window,
    fixed_type,
    raise_where,
)
from aaiclick.data.types import FLOAT64, INT64, DataType

RANGE_TOO_FINE = "aai_fine"
"""Message of `throwIf` for times that are more precise than a long window allows."""


def _build_shift(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
    distance: int = params[0]
    if types[0].is_structure:  # an empty array is NULL
        value = args[0] if types[0].nullable else sql.call("array", args[0])
    else:
        value = sql.call("toNullable", args[0])
    return over(sql.call("lagInFrame" if distance >= 0 else "leadInFrame", value, sql.number(abs(distance))))


def _build_numbering(function: str) -> BuildAggregate:
    """Build row_number, or a rank, which is NULL for a NULL."""

    def build(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
        number = sql.cast(over(sql.call(function)), INT64)
        return sql.call("if", sql.call("isNull", args[0]), sql.null(), number) if any_nullable(types) else number

    return build


_SHIFT_TYPE: Result = lambda types, params: replace(types[0], nullable=True)  # noqa: E731
define_window("shift", _SHIFT_TYPE, _build_shift, "the value a number of rows earlier, NULL before the first")
define_window("row_number", lambda t, p: INT64, _build_numbering("row_number"), "1, 2, 3, … in order")
define_window("rank", fixed_type(INT64), _build_numbering("rank"), "rank with gaps after ties; NULL for NULL")
define_window("dense_rank", fixed_type(INT64), _build_numbering("dense_rank"), "rank without gaps; NULL for NULL")


def _build_fill(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
    return over(sql.call("anyLast", args[0])) if types[0].nullable else args[0]


def _build_ntile(args: list[Expression], types: Types, params: Params) -> Expression:
    """Build the group of a position among `count` values; the first groups are larger by one."""
    value, position, count = args
    groups: int = params[0]
    size = sql.call("intDiv", count, sql.number(groups))
    larger = sql.call("modulo", count.copy(), sql.number(groups))
    index = sql.binary("-", position, sql.number(1))
    rows_in_larger = sql.call("multiply", larger.copy(), sql.binary("+", size.copy(), sql.number(1)))
    in_larger = sql.call("intDiv", index, sql.binary("+", size.copy(), sql.number(1)))
    rest = sql.binary("-", index.copy(), rows_in_larger.copy())
    in_smaller = sql.binary("+", larger, sql.call("intDiv", rest, sql.call("greatest", size, sql.number(1))))
    is_in_larger = sql.binary("<", index.copy(), rows_in_larger)
    group = sql.cast(sql.binary("+", sql.call("if", is_in_larger, in_larger, in_smaller), sql.number(1)), INT64)
    return sql.call("if", sql.call("isNull", value), sql.null(), group) if types[0].nullable else group


def _interpolated_type(types: Types, params: Params) -> DataType:
    check_types(types, NUMBER)
    return FLOAT64.as_nullable(types[0].nullable)


def _build_interpolated(args: list[Expression], types: Types, params: Params) -> Expression:
    value, number, before, after, start, end = args
    if not types[0].nullable:
        return sql.call("toFloat64", value)
    before, after = sql.call("toFloat64", before), sql.call("toFloat64", after)
    share = sql.binary("/", sql.binary("-", number, start), sql.binary("-", end, start.copy()))
    line = sql.binary("+", before, sql.call("multiply", sql.binary("-", after, before.copy()), share))
    return sql.call("if", sql.call("isNull", value), line, sql.call("toFloat64", value.copy()))


def _range_key_type(types: Types, params: Params) -> DataType:
    if not (types[0].is_temporal or types[0].is_integer or types[0].is_duration):
        raise NotDefinedError(f"a range is of dates, datetimes, durations or integers, not of {types[0]}")
    return INT64


def _build_range_key(args: list[Expression], types: Types, params: Params) -> Expression:
    """Build a number by which ranges are measured, in units that ClickHouse's limit of 32 bits for ranges allows.

    Rows where it is NULL are in a partition of their own.
    """
    number, unit = epoch_micros(args[0], types[0]) if types[0].is_temporal else sql.call("toInt64", args[0]), params[0]
    if unit > 1:
        is_between = sql.binary("!=", sql.call("modulo", number, sql.number(unit)), sql.number(0))
        scaled = sql.call("intDiv", number.copy(), sql.number(unit))
        number = sql.call("if", raise_where(is_between, RANGE_TOO_FINE), scaled.copy(), scaled)
    return sql.call("ifNull", number, sql.number(0)) if types[0].nullable else number


define_window("fill", lambda t, p: t[0], _build_fill, "the last value that is not NULL")
define_function("_ntile", lambda t, p: INT64.as_nullable(t[0].nullable), _build_ntile, "")
define_function(
    "_where_present",
    lambda t, p: INT64.as_nullable(t[0].nullable),
    lambda a, t, p: sql.call("if", sql.call("isNull", a[0]), sql.null(), a[1]) if t[0].nullable else a[1],
    "",
)
define_function(
    "interpolate",
    _interpolated_type,
    _build_interpolated,
    "a number on the line between its neighbours",
)
define_function("_range_key", _range_key_type, _build_range_key, "")
define_function(
    "_null_where",
    lambda t, p: t[0].as_nullable(),
    lambda a, t, p: sql.call("if", a[1], sql.null(), a[0]),
    "",
)
