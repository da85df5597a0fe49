"""Intervals of time that contain a date or datetime, and series of them.

Intervals start at 1970-01-01, in local time if there is a time zone; weeks start on Monday. ClickHouse's own functions,
depending on the version, return types without dates before 1970, reject Date32, or overflow.
"""

# ruff: noqa: ARG001, ARG005  (all builders have one signature)

from __future__ import annotations

from typing import Any

from sqlglot import exp

from aaiclick.data.compile import sql
from aaiclick.data.compile.sql import Expression
from aaiclick.data.expressions.functions.casts import FIRST_DAY, drop_digits
from aaiclick.data.expressions.functions.dates_and_times import (
    FIRST_MONTH,
    MICROS,
    MICROS_PER_DAY,
    OUT_OF_RANGE,
    epoch_micros,
)
from aaiclick.data.expressions.functions.registry import (
    TEMPORAL,
    NotDefinedError,
    Params,
    Types,
    check_types,
    define_function,
    raise_where,
)
from aaiclick.data.types import DATE, DataType, array_of, datetime_type, precision_of, zone_of

EPOCH_MONTH = 1970 * 12
FIRST_MONDAY = 4
"""Day number of the first Monday after the epoch, 1970-01-05."""


def _truncate_type(types: Types, params: Params) -> DataType:
    check_types(types, TEMPORAL)
    dtype, interval = types[0], params[0]
    if dtype.is_date:
        if interval.micros % MICROS_PER_DAY:
            raise NotDefinedError("a date has no parts of a day")
        return DATE.as_nullable(dtype.nullable)
    if interval.micros > MICROS_PER_DAY and interval.micros % MICROS_PER_DAY:
        raise NotDefinedError("an interval of more than a day consists of whole days")
    if (
        zone_of(dtype) not in ("", "UTC")
        and interval.micros
        and MICROS_PER_DAY % interval.micros
        and interval.micros % MICROS_PER_DAY
    ):
        raise NotDefinedError("with a time zone, an interval must divide a day or consist of whole days")
    return datetime_type(max(precision_of(dtype), 6), zone_of(dtype)).as_nullable(dtype.nullable)


def _build_truncate(args: list[Expression], types: Types, params: Params) -> Expression:
    return _start_of(args[0], types[0], params[0], _truncate_type(types, params))


def _start_of(value: Expression, source: DataType, interval: Any, dtype: DataType) -> Expression:
    if interval.months:
        return sql.cast(_start_of_months(value, interval.months), dtype)
    if interval.micros % MICROS_PER_DAY == 0:
        return sql.cast(_start_of_days(sql.call("toDate32", value), interval.micros // MICROS_PER_DAY), dtype)
    moment = drop_digits(value, source, 6, zone_of(dtype))
    if zone_of(dtype) in ("", "UTC"):
        elapsed = sql.call("positiveModulo", epoch_micros(value.copy(), source), sql.number(interval.micros))
        return sql.cast(sql.call("subtractMicroseconds", moment, elapsed), dtype)
    return _start_of_local_time(moment, interval.micros, dtype)


def _start_of_local_time(moment: Expression, size: int, dtype: DataType) -> Expression:
    if MICROS["hour"] % size == 0:
        seconds = sql.binary(
            "+", sql.call("multiply", sql.call("toMinute", moment), sql.number(60)), sql.call("toSecond", moment.copy())
        )
        fraction = sql.call("positiveModulo", sql.call("toUnixTimestamp64Micro", moment.copy()), sql.number(1_000_000))
        elapsed = sql.binary("+", sql.call("multiply", seconds, sql.number(1_000_000)), fraction)
        rest = sql.call("modulo", elapsed, sql.number(size))
        return sql.cast(sql.call("subtractMicroseconds", moment.copy(), rest), dtype)
    if size % MICROS["hour"]:
        raise NotDefinedError("with a time zone, an interval must divide an hour or consist of whole hours")
    hour = sql.call("toHour", moment)
    start = sql.binary("-", hour, sql.call("modulo", hour.copy(), sql.number(size // MICROS["hour"])))
    parts = (sql.call(part, moment.copy()) for part in ("toYear", "toMonth", "toDayOfMonth"))
    zeros = (sql.number(0) for _ in range(3))
    local_start = sql.call("makeDateTime64", *parts, start, *zeros, sql.number(6), sql.string(zone_of(dtype)))
    # Where clocks are set forward, the hour does not exist: the interval starts after the gap.
    gap = sql.binary("-", start.copy(), sql.call("toHour", local_start.copy()))
    gap = sql.call("positiveModulo", gap, sql.number(24))
    return sql.cast(sql.call("addHours", local_start, gap), dtype)


def _month_number(value: Expression) -> Expression:
    months = sql.call("multiply", sql.call("toInt32", sql.call("toYear", value)), sql.number(12))
    return sql.binary("+", months, sql.binary("-", sql.call("toMonth", value.copy()), sql.number(1)))


def _start_of_months(value: Expression, size: int) -> Expression:
    number = _month_number(value)
    elapsed = sql.call("positiveModulo", sql.binary("-", number, sql.number(EPOCH_MONTH)), sql.number(size))
    start = sql.binary("-", number.copy(), elapsed)
    year, month = sql.call("intDiv", start, sql.number(12)), sql.call("modulo", start.copy(), sql.number(12))
    day = sql.call("makeDate32", year, sql.binary("+", month, sql.number(1)), sql.number(1))
    if 12 % size == 0:
        return day
    too_early = sql.binary("<", start.copy(), sql.number(FIRST_MONTH))
    return sql.call("if", raise_where(too_early, OUT_OF_RANGE), day.copy(), day)


def _start_of_days(day: Expression, size: int) -> Expression:
    if size == 1:
        return day
    number = sql.call("toInt32", day)
    origin = FIRST_MONDAY if size % 7 == 0 else 0
    elapsed = sql.call("positiveModulo", sql.binary("-", number, sql.number(origin)), sql.number(size))
    start = sql.call("subtractDays", day.copy(), elapsed)
    too_early = sql.binary("<", sql.binary("-", number.copy(), elapsed.copy()), sql.number(FIRST_DAY))
    return sql.call("if", raise_where(too_early, OUT_OF_RANGE), start.copy(), start)


# --- series ------------------------------------------------------------------------------------------------------


def _series_type(types: Types, params: Params) -> DataType:
    return array_of(params[1])


def _build_series(args: list[Expression], types: Types, params: Params) -> Expression:
    """Build all starts of intervals from the first to the last; empty if there is none."""
    interval, dtype = params
    first, last = (sql.call("assumeNotNull", arg) for arg in args)
    step = sql.identifier("i")
    index = exp.Column(this=step)
    if interval.months:
        distance, size, adder = (
            sql.binary("-", _month_number(last), _month_number(first.copy())),
            interval.months,
            "addMonths",
        )
    elif interval.micros % MICROS_PER_DAY == 0:
        days = [sql.call("toInt32", sql.call("toDate32", moment)) for moment in (last, first.copy())]
        distance, size, adder = sql.binary("-", *days), interval.micros // MICROS_PER_DAY, "addDays"
    else:
        micros = [epoch_micros(moment, dtype) for moment in (last, first.copy())]
        distance, size, adder = sql.binary("-", *micros), interval.micros, "addMicroseconds"
    moved = sql.cast(sql.call(adder, first.copy(), sql.call("multiply", index, sql.number(size))), dtype)
    count = sql.binary("+", sql.call("intDiv", distance, sql.number(size)), sql.number(2))
    start = _start_of(moved, dtype, interval, dtype)
    positions = sql.call("range", sql.call("toUInt64", sql.call("greatest", count, sql.number(0))))
    starts = sql.call("arrayDistinct", sql.call("arrayMap", exp.Lambda(this=start, expressions=[step]), positions))
    element = exp.Column(this=sql.identifier("x"))
    inside = exp.Lambda(this=sql.binary("<=", element, last.copy()), expressions=[sql.identifier("x")])
    missing = sql.call("or", *(sql.call("isNull", arg.copy()) for arg in args))
    return sql.call(
        "if", missing, sql.cast(sql.call("array"), array_of(dtype)), sql.call("arrayFilter", inside, starts)
    )


define_function("truncate", _truncate_type, _build_truncate, "start of the interval (`hour`, `15m`, …) it lies in")
define_function("_time_range", _series_type, _build_series, "")
define_function(
    "_required",
    lambda types, params: types[0].as_required(),
    lambda args, types, params: sql.call("assumeNotNull", args[0]),
    "",
)
