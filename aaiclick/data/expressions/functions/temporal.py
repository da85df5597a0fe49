"""Date and time functions."""

# ruff: noqa: ARG001, ARG005  (all builders have one signature)

from __future__ import annotations

from aaiclick.data.compile import sql
from aaiclick.data.compile.sql import Expression
from aaiclick.data.expressions.functions.registry import (
    TEMPORAL,
    Build,
    NotDefinedError,
    Params,
    Types,
    any_nullable,
    check_types,
    define_function,
    fixed_type,
)
from aaiclick.data.types import DATE, FLOAT64, INT64, DataType, datetime_type, precision_of, zone_of

PARTS = {
    "year": "toYear", "quarter": "toQuarter", "month": "toMonth", "week": "toISOWeek", "iso_year": "toISOYear",
    "day": "toDayOfMonth", "weekday": "toDayOfWeek", "ordinal_day": "toDayOfYear",
}  # fmt: skip
CLOCK = {"hour": "toHour", "minute": "toMinute", "second": "toSecond"}
UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond")
MICROS_PER_DAY = 86_400_000_000
ADDERS = {unit: f"add{unit.capitalize()}s" for unit in UNITS}


def _define_part(name: str, clickhouse: str) -> None:
    def build(args: list[Expression], types: Types, params: Params) -> Expression:
        return sql.cast(sql.call(clickhouse, args[0]), INT64.as_nullable(any_nullable(types)))

    descriptions = {"weekday": "Monday is 1, Sunday 7", "week": "ISO week, 1 to 53"}
    define_function(name, fixed_type(INT64, TEMPORAL), build, descriptions.get(name, f"the {name.replace('_', ' ')}"))


def _build_within_second(divisor: int) -> Build:
    def build(args: list[Expression], types: Types, params: Params) -> Expression:
        nullable = any_nullable(types)
        moment = sql.cast(args[0], datetime_type(6, "UTC").as_nullable(nullable))
        micros = sql.call("positiveModulo", sql.call("toUnixTimestamp64Micro", moment), sql.number(1_000_000))
        return sql.cast(sql.call("intDiv", micros, sql.number(divisor)), INT64.as_nullable(nullable))

    return build


def _truncate_type(types: Types, params: Params) -> DataType:
    check_types(types, TEMPORAL)
    dtype, unit = types[0], params[0]
    if dtype.is_date:
        if unit in ("hour", "minute", "second", "millisecond", "microsecond"):
            raise NotDefinedError(f"a date has no {unit}")
        return DATE.as_nullable(dtype.nullable)
    return datetime_type(max(precision_of(dtype), 6), zone_of(dtype)).as_nullable(dtype.nullable)


def _build_truncate(args: list[Expression], types: Types, params: Params) -> Expression:
    """Subtract the time since the start of the unit.

    ClickHouse's own functions, depending on the version, return types without dates before 1970, reject Date32, or
    overflow.
    """
    unit, dtype = params[0], _truncate_type(types, params)
    if unit in ("year", "quarter", "month", "week", "day"):
        return sql.cast(_start_of(unit, sql.call("toDate32", args[0])), dtype)
    moment = sql.cast(args[0], dtype)
    micros = sql.call("positiveModulo", sql.call("toUnixTimestamp64Micro", moment.copy()), sql.number(1_000_000))
    if unit in ("millisecond", "microsecond"):
        micros = sql.call("modulo", micros, sql.number(1_000 if unit == "millisecond" else 1))
    for part, size in (("toSecond", 1_000_000), ("toMinute", 60_000_000))[: {"minute": 1, "hour": 2}.get(unit, 0)]:
        micros = sql.binary("+", micros, sql.call("multiply", sql.call(part, moment.copy()), sql.number(size)))
    return sql.cast(sql.call("subtractMicroseconds", moment, micros), dtype)


def _start_of(unit: str, day: Expression) -> Expression:
    if unit == "quarter":
        month = sql.call("minus", sql.call("multiply", sql.call("toQuarter", day), sql.number(3)), sql.number(2))
        return sql.call("makeDate32", sql.call("toYear", day.copy()), month, sql.number(1))
    ordinal_functions = {"year": "toDayOfYear", "month": "toDayOfMonth", "week": "toDayOfWeek"}
    if unit not in ordinal_functions:
        return day
    elapsed_days = sql.binary("-", sql.call(ordinal_functions[unit], day.copy()), sql.number(1))
    return sql.call("subtractDays", day, elapsed_days)


def _add_type(types: Types, params: Params) -> DataType:
    check_types(types, TEMPORAL)
    dtype, unit = types[0], params[0]
    nullable = any_nullable(types)
    if dtype.is_date and unit in ("year", "quarter", "month", "week", "day"):
        return DATE.as_nullable(nullable)
    return datetime_type(max(precision_of(dtype), 6), zone_of(dtype)).as_nullable(nullable)


def _build_add(args: list[Expression], types: Types, params: Params) -> Expression:
    dtype = _add_type(types, params)
    return sql.cast(sql.call(ADDERS[params[0]], sql.cast(args[0], dtype), args[1]), dtype)


def _add_duration_type(types: Types, params: Params) -> DataType:
    """Type of a temporal value and a duration: a date and whole days are a date."""
    return _add_type(types, ("microsecond" if params[0] % MICROS_PER_DAY else "day",))


def _build_add_duration(args: list[Expression], types: Types, params: Params) -> Expression:
    dtype, micros = _add_duration_type(types, params), params[0]
    if dtype.is_date:
        return sql.cast(sql.call("addDays", sql.cast(args[0], dtype), sql.number(micros // MICROS_PER_DAY)), dtype)
    return sql.cast(sql.call("addMicroseconds", sql.cast(args[0], dtype), sql.number(micros)), dtype)


def _build_diff(args: list[Expression], types: Types, params: Params) -> Expression:
    # dateDiff counts crossed boundaries (23:59 to 00:01 is one day); age counts whole elapsed units.
    wide = [sql.cast(a, datetime_type(6, zone_of(t)).as_nullable(t.nullable)) for a, t in zip(args, types, strict=True)]
    difference = sql.call("age", sql.string(params[0]), wide[1], wide[0])
    return sql.cast(difference, INT64.as_nullable(any_nullable(types)))


def _build_epoch(args: list[Expression], types: Types, params: Params) -> Expression:
    dtype = datetime_type(6, zone_of(types[0]) or "UTC").as_nullable(any_nullable(types))
    micros = sql.call("toUnixTimestamp64Micro", sql.cast(args[0], dtype))
    divisor = {"s": 1_000_000, "ms": 1_000, "us": 1}[params[0]]
    if divisor == 1:
        return micros
    if params[0] == "s":
        return sql.binary("/", micros, sql.number(1_000_000))
    return sql.call("intDiv", micros, sql.number(divisor))


def _epoch_type(types: Types, params: Params) -> DataType:
    check_types(types, TEMPORAL)
    return (FLOAT64 if params[0] == "s" else INT64).as_nullable(any_nullable(types))


def _in_zone_type(types: Types, params: Params) -> DataType:
    check_types(types, TEMPORAL)
    return datetime_type(max(precision_of(types[0]), 6), params[0]).as_nullable(any_nullable(types))


def _build_in_zone(args: list[Expression], types: Types, params: Params) -> Expression:
    return sql.cast(args[0], _in_zone_type(types, params))


for _name, _clickhouse in (PARTS | CLOCK).items():
    _define_part(_name, _clickhouse)
define_function(
    "millisecond", fixed_type(INT64, TEMPORAL), _build_within_second(1_000), "milliseconds within the second"
)
define_function("microsecond", fixed_type(INT64, TEMPORAL), _build_within_second(1), "microseconds within the second")
define_function(
    "date", fixed_type(DATE, TEMPORAL), lambda a, t, p: sql.call("toDate32", a[0]), "the date of a datetime"
)
define_function("truncate", _truncate_type, _build_truncate, "start of the unit (`year` … `second`) it lies in")
define_function("date_add", _add_type, _build_add, "a number of units later")
define_function("add_duration", _add_duration_type, _build_add_duration, "a number of microseconds later")
define_function(
    "date_diff", fixed_type(INT64, TEMPORAL, TEMPORAL), _build_diff, "whole units from another date or datetime"
)
define_function("epoch", _epoch_type, _build_epoch, "time since 1970 in `s`, `ms` or `us`")
define_function("in_zone", _in_zone_type, _build_in_zone, "the same moment in another time zone")
