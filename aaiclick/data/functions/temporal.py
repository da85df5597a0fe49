"""Dates and times."""

# ruff: noqa: ARG001, ARG005  (all builders have one signature)
# pyright: reportArgumentType=false, reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from aaiclick.data import sql
from aaiclick.data.functions.registry import (
    TEMPORAL,
    Build,
    NotDefinedError,
    Params,
    Types,
    any_nullable,
    check,
    define,
    gives,
)
from aaiclick.data.sql import Expression
from aaiclick.data.types import DATE, FLOAT64, INT64, STRING, DataType, datetime_type, precision_of, zone_of

PARTS = {
    "year": "toYear", "quarter": "toQuarter", "month": "toMonth", "week": "toISOWeek", "iso_year": "toISOYear",
    "day": "toDayOfMonth", "weekday": "toDayOfWeek", "ordinal_day": "toDayOfYear",
}  # fmt: skip
CLOCK = {"hour": "toHour", "minute": "toMinute", "second": "toSecond"}
UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond")
ADDERS = {unit: f"add{unit.capitalize()}s" for unit in UNITS}


def _part(name: str, clickhouse: str) -> None:
    def build(args: list[Expression], types: Types, params: Params) -> Expression:
        return sql.cast(sql.call(clickhouse, args[0]), INT64.as_nullable(any_nullable(types)))

    words = {"weekday": "Monday is 1, Sunday 7", "week": "ISO week, 1 to 53"}
    define(name, gives(INT64, TEMPORAL), build, words.get(name, f"the {name.replace('_', ' ')}"))


def _within_second(divisor: int) -> Build:
    def build(args: list[Expression], types: Types, params: Params) -> Expression:
        nullable = any_nullable(types)
        moment = sql.cast(args[0], datetime_type(6, "UTC").as_nullable(nullable))
        micros = sql.call("positiveModulo", sql.call("toUnixTimestamp64Micro", moment), sql.number(1_000_000))
        return sql.cast(sql.call("intDiv", micros, sql.number(divisor)), INT64.as_nullable(nullable))

    return build


def _truncate(types: Types, params: Params) -> DataType:
    check(types, TEMPORAL)
    kind, unit = types[0], params[0]
    if kind.is_date:
        if unit in ("hour", "minute", "second", "millisecond", "microsecond"):
            raise NotDefinedError(f"a date has no {unit}")
        return DATE.as_nullable(kind.nullable)
    return datetime_type(max(precision_of(kind), 6), zone_of(kind)).as_nullable(kind.nullable)


def _build_truncate(args: list[Expression], types: Types, params: Params) -> Expression:
    """Counted back from the value: ClickHouse's own functions give types that know no day before 1970, refuse a Date32,
    or overflow, each in some versions.
    """
    unit, kind = params[0], _truncate(types, params)
    if unit in ("year", "quarter", "month", "week", "day"):
        return sql.cast(_start_of(unit, sql.call("toDate32", args[0])), kind)
    moment = sql.cast(args[0], kind)
    micros = sql.call("positiveModulo", sql.call("toUnixTimestamp64Micro", moment.copy()), sql.number(1_000_000))
    if unit in ("millisecond", "microsecond"):
        micros = sql.call("modulo", micros, sql.number(1_000 if unit == "millisecond" else 1))
    for part, size in (("toSecond", 1_000_000), ("toMinute", 60_000_000))[: {"minute": 1, "hour": 2}.get(unit, 0)]:
        micros = sql.binary("+", micros, sql.call("multiply", sql.call(part, moment.copy()), sql.number(size)))
    return sql.cast(sql.call("subtractMicroseconds", moment, micros), kind)


def _start_of(unit: str, day: Expression) -> Expression:
    if unit == "quarter":
        month = sql.call("minus", sql.call("multiply", sql.call("toQuarter", day), sql.number(3)), sql.number(2))
        return sql.call("makeDate32", sql.call("toYear", day.copy()), month, sql.number(1))
    places = {"year": "toDayOfYear", "month": "toDayOfMonth", "week": "toDayOfWeek"}
    if unit not in places:
        return day
    gone = sql.binary("-", sql.call(places[unit], day.copy()), sql.number(1))
    return sql.call("subtractDays", day, gone)


def _add(types: Types, params: Params) -> DataType:
    check(types, TEMPORAL)
    kind, unit = types[0], params[0]
    nullable = any_nullable(types)
    if kind.is_date and unit in ("year", "quarter", "month", "week", "day"):
        return DATE.as_nullable(nullable)
    return datetime_type(max(precision_of(kind), 6), zone_of(kind)).as_nullable(nullable)


def _build_add(args: list[Expression], types: Types, params: Params) -> Expression:
    kind = _add(types, params)
    return sql.cast(sql.call(ADDERS[params[0]], sql.cast(args[0], kind), args[1]), kind)


def _build_diff(args: list[Expression], types: Types, params: Params) -> Expression:
    # dateDiff counts crossed borders, so that 23:59 to 00:01 is one day; age counts whole units gone by.
    wide = [sql.cast(a, datetime_type(6, zone_of(t)).as_nullable(t.nullable)) for a, t in zip(args, types, strict=True)]
    difference = sql.call("age", sql.string(params[0]), wide[1], wide[0])
    return sql.cast(difference, INT64.as_nullable(any_nullable(types)))


def _build_epoch(args: list[Expression], types: Types, params: Params) -> Expression:
    kind = datetime_type(6, zone_of(types[0]) or "UTC").as_nullable(any_nullable(types))
    micros = sql.call("toUnixTimestamp64Micro", sql.cast(args[0], kind))
    divisor = {"s": 1_000_000, "ms": 1_000, "us": 1}[params[0]]
    if divisor == 1:
        return micros
    if params[0] == "s":
        return sql.binary("/", micros, sql.number(1_000_000))
    return sql.call("intDiv", micros, sql.number(divisor))


def _epoch(types: Types, params: Params) -> DataType:
    check(types, TEMPORAL)
    return (FLOAT64 if params[0] == "s" else INT64).as_nullable(any_nullable(types))


def _in_zone(types: Types, params: Params) -> DataType:
    check(types, TEMPORAL)
    return datetime_type(max(precision_of(types[0]), 6), params[0]).as_nullable(any_nullable(types))


def _build_in_zone(args: list[Expression], types: Types, params: Params) -> Expression:
    return sql.cast(args[0], _in_zone(types, params))


for _name, _clickhouse in (PARTS | CLOCK).items():
    _part(_name, _clickhouse)
define("millisecond", gives(INT64, TEMPORAL), _within_second(1_000), "milliseconds within the second")
define("microsecond", gives(INT64, TEMPORAL), _within_second(1), "microseconds within the second")
define("date", gives(DATE, TEMPORAL), lambda a, t, p: sql.call("toDate32", a[0]), "the date of a datetime")
define("truncate", _truncate, _build_truncate, "start of the unit (`year` … `second`) it lies in")
define("date_add", _add, _build_add, "a number of units later")
define("date_diff", gives(INT64, TEMPORAL, TEMPORAL), _build_diff, "whole units from another date or datetime")
define("epoch", _epoch, _build_epoch, "time since 1970 in `s`, `ms` or `us`")
define(
    "strftime",
    gives(STRING, TEMPORAL),
    lambda a, t, p: sql.call("formatDateTime", a[0], a[1]),
    "as text by a format (`%Y-%m-%d`)",
)
define("in_zone", _in_zone, _build_in_zone, "the same moment in another time zone")
define(
    "strptime",
    lambda t, p: datetime_type(6, "UTC").as_nullable(),
    lambda a, t, p: sql.cast(
        sql.call("parseDateTimeOrNull", a[0], a[1], sql.string("UTC")), datetime_type(6, "UTC").as_nullable()
    ),
    "read a datetime by a format, NULL where it does not fit",
)
