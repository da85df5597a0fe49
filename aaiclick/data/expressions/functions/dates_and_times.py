"""Date and time functions."""

# ruff: noqa: ARG001, ARG005  (all builders have one signature)

from __future__ import annotations

from aaiclick.data.compile import sql
from aaiclick.data.compile.sql import Expression
from aaiclick.data.expressions.functions.casts import FIRST_DAY, LAST_DAY, drop_digits
from aaiclick.data.expressions.functions.registry import (
    INTEGER,
    TEMPORAL,
    Build,
    NotDefinedError,
    Params,
    Types,
    any_nullable,
    check_types,
    define_function,
    fixed_type,
    raise_where,
)
from aaiclick.data.types import DATE, FLOAT64, INT64, DataType, datetime_type, precision_of, zone_of

PARTS = {
    "year": "toYear", "quarter": "toQuarter", "month": "toMonth", "week": "toISOWeek", "iso_year": "toISOYear",
    "day": "toDayOfMonth", "weekday": "toDayOfWeek", "ordinal_day": "toDayOfYear",
}  # fmt: skip
CLOCK = {"hour": "toHour", "minute": "toMinute", "second": "toSecond"}
UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond")
MICROS_PER_DAY = 86_400_000_000
MICROS = {
    "microsecond": 1, "millisecond": 1_000, "second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000,
    "day": MICROS_PER_DAY, "week": 7 * MICROS_PER_DAY,
}  # fmt: skip
MONTHS = {"month": 1, "quarter": 3, "year": 12}
FIRST_MONTH, LAST_MONTH = 1900 * 12, 2299 * 12 + 11
OUT_OF_RANGE = "aai_range"
"""Message of `throwIf` for a date or datetime outside of 1900 to 2299, where ClickHouse clamps or wraps."""

ADDERS = {unit: f"add{unit.capitalize()}s" for unit in UNITS}


def _define_part(name: str, clickhouse: str) -> None:
    def build(args: list[Expression], types: Types, params: Params) -> Expression:
        nullable = any_nullable(types)
        # toDayOfYear of the Date32 2299-12-31 is 364.
        is_wrong = name == "ordinal_day" and types[0].is_date
        value = sql.cast(args[0], datetime_type(6, "UTC").as_nullable(nullable)) if is_wrong else args[0]
        return sql.cast(sql.call(clickhouse, value), INT64.as_nullable(nullable))

    descriptions = {"weekday": "Monday is 1, Sunday 7", "week": "ISO week, 1 to 53"}
    define_function(name, fixed_type(INT64, TEMPORAL), build, descriptions.get(name, f"the {name.replace('_', ' ')}"))


def _build_within_second(divisor: int) -> Build:
    def build(args: list[Expression], types: Types, params: Params) -> Expression:
        nullable = any_nullable(types)
        moment = drop_digits(args[0], types[0], 6, "UTC")
        micros = sql.call("positiveModulo", sql.call("toUnixTimestamp64Micro", moment), sql.number(1_000_000))
        return sql.cast(sql.call("intDiv", micros, sql.number(divisor)), INT64.as_nullable(nullable))

    return build


def _add_type(types: Types, params: Params) -> DataType:
    check_types(types, TEMPORAL, INTEGER)
    dtype, unit = types[0], params[0]
    nullable = any_nullable(types)
    if dtype.is_date and unit in ("year", "quarter", "month", "week", "day"):
        return DATE.as_nullable(nullable)
    return datetime_type(max(precision_of(dtype), 6), zone_of(dtype)).as_nullable(nullable)


def epoch_micros(value: Expression, dtype: DataType) -> Expression:
    """Build the microseconds since 1970 of a date or datetime."""
    if dtype.is_date:
        return sql.call("multiply", sql.call("toInt64", sql.call("toInt32", value)), sql.number(MICROS_PER_DAY))
    return sql.call("toUnixTimestamp64Micro", drop_digits(value, dtype, 6))


def check_amount(
    amount: Expression, position: Expression, size: int, low: int, high: int, result: Expression
) -> Expression:
    """Build a result that is an error unless low <= position + amount * size <= high; it does not overflow."""
    most = sql.call("intDiv", sql.binary("-", sql.number(high), position), sql.number(size))
    least = sql.call("negate", sql.call("intDiv", sql.binary("-", position.copy(), sql.number(low)), sql.number(size)))
    outside = sql.call("or", sql.binary(">", amount, most), sql.binary("<", amount.copy(), least))
    return sql.call("if", raise_where(outside, OUT_OF_RANGE), result.copy(), result)


def add_micros(value: Expression, source: DataType, amount: Expression, size: int, dtype: DataType) -> Expression:
    """Build a moment a number of units of `size` microseconds later."""
    micros = sql.call("multiply", sql.call("toInt64", amount.copy()), sql.number(size)) if size > 1 else amount.copy()
    moment = sql.cast(sql.call("addMicroseconds", sql.cast(value, dtype), micros), dtype)
    low, end = FIRST_DAY * MICROS_PER_DAY, (LAST_DAY + 1) * MICROS_PER_DAY
    return check_amount(amount, epoch_micros(value.copy(), source), size, low, end - 1, moment)


def _add_calendar_units(value: Expression, dtype: DataType, unit: str, amount: Expression) -> Expression:
    """Build a moment some days or months later; ClickHouse takes the next second of a fraction before 1970."""
    count = sql.call("toInt64", amount)
    if dtype.is_date:
        return sql.call(ADDERS[unit], value, count)
    name, size = ("Nano", 1_000_000_000) if precision_of(dtype) > 6 else ("Micro", 1_000_000)
    fraction = sql.call("positiveModulo", sql.call(f"toUnixTimestamp64{name}", value), sql.number(size))
    second = sql.call(f"subtract{name}seconds", value.copy(), fraction)
    return sql.call(f"add{name}seconds", sql.call(ADDERS[unit], second, count), fraction.copy())


def _build_add(args: list[Expression], types: Types, params: Params) -> Expression:
    dtype, unit, (value, amount) = _add_type(types, params), params[0], args
    if unit not in ("day", "week", *MONTHS):
        return add_micros(value, types[0], amount, MICROS[unit], dtype)
    later = sql.cast(_add_calendar_units(sql.cast(value, dtype), dtype, unit, amount.copy()), dtype)
    if unit in MONTHS:
        months = sql.call("multiply", sql.call("toInt64", sql.call("toYear", value.copy())), sql.number(12))
        position = sql.binary("+", months, sql.binary("-", sql.call("toMonth", value.copy()), sql.number(1)))
        return check_amount(amount, position, MONTHS[unit], FIRST_MONTH, LAST_MONTH, later)
    day = sql.call("toInt64", sql.call("toInt32", sql.call("toDate32", value.copy())))
    return check_amount(amount, day, MICROS[unit] // MICROS_PER_DAY, FIRST_DAY, LAST_DAY, later)


def _add_duration_type(types: Types, params: Params) -> DataType:
    """Type of a temporal value and a duration: a date and whole days are a date."""
    return _add_type(types, ("microsecond" if params[0] % MICROS_PER_DAY else "day",))


def _build_add_duration(args: list[Expression], types: Types, params: Params) -> Expression:
    dtype, micros = _add_duration_type(types, params), params[0]
    if dtype.is_date:
        days = sql.number(micros // MICROS_PER_DAY)
        later = sql.cast(sql.call("addDays", sql.cast(args[0], dtype), days), dtype)
        day = sql.call("toInt64", sql.call("toInt32", args[0].copy()))
        return check_amount(days.copy(), day, 1, FIRST_DAY, LAST_DAY, later)
    return add_micros(args[0], types[0], sql.number(micros), 1, dtype)


def _diff_type(types: Types, params: Params) -> DataType:
    check_types(types, TEMPORAL, TEMPORAL)
    if bool(zone_of(types[0])) != bool(zone_of(types[1])):
        raise NotDefinedError("one has a time zone and the other has none")
    return INT64.as_nullable(any_nullable(types))


def _build_diff(args: list[Expression], types: Types, params: Params) -> Expression:
    """Build the whole units between two moments; ClickHouse's `age` is wrong for weeks, and for years from 2283."""
    unit, zone, scale = params[0], zone_of(types[0]), 1_000 if any(precision_of(t) > 6 for t in types) else 1
    moments = [
        a if t.is_date else sql.cast(a, datetime_type(max(precision_of(t), 6), zone).as_nullable(t.nullable))
        for a, t in zip(args, types, strict=True)
    ]
    instants = [_instant(m, t, scale) for m, t in zip(moments, types, strict=True)]
    if zone and unit in ("day", "week", *MONTHS):
        offsets = [sql.call("multiply", sql.call("timezoneOffset", m), sql.number(1_000_000 * scale)) for m in moments]
        instants = [sql.binary("+", *pair) for pair in zip(instants, offsets, strict=True)]
    if unit in MONTHS:
        return sql.cast(_months_between(moments, instants, MONTHS[unit], scale), _diff_type(types, params))
    size = sql.number(MICROS[unit] * scale)
    return sql.cast(sql.call("intDiv", sql.binary("-", *instants), size), _diff_type(types, params))


def _instant(moment: Expression, dtype: DataType, scale: int) -> Expression:
    """Build the microseconds since 1970, or nanoseconds of 128 bits if the scale is 1,000."""
    if precision_of(dtype) > 6:
        return sql.call("toInt128", sql.call("toUnixTimestamp64Nano", moment.copy()))
    micros = epoch_micros(moment.copy(), dtype)
    return micros if scale == 1 else sql.call("multiply", sql.call("toInt128", micros), sql.number(scale))


def _months_between(moments: list[Expression], instants: list[Expression], size: int, scale: int) -> Expression:
    months = [
        sql.binary(
            "+",
            sql.call("multiply", sql.call("toInt64", sql.call("toYear", moment.copy())), sql.number(12)),
            sql.call("toMonth", moment.copy()),
        )
        for moment in moments
    ]
    day = MICROS_PER_DAY * scale
    positions = [
        sql.binary(
            "+",
            sql.call("multiply", sql.call("toInt64", sql.call("toDayOfMonth", moment.copy())), sql.number(day)),
            sql.call("positiveModulo", instant, sql.number(day)),
        )
        for moment, instant in zip(moments, instants, strict=True)
    ]
    count = sql.binary("-", *months)
    is_less = sql.call("and", sql.binary(">", count, sql.number(0)), sql.binary("<", *positions))
    is_more = sql.call(
        "and", sql.binary("<", count.copy(), sql.number(0)), sql.binary(">", *(p.copy() for p in positions))
    )
    whole = sql.binary("+", sql.binary("-", count.copy(), is_less), is_more)
    return sql.call("intDiv", whole, sql.number(size))


def _build_epoch(args: list[Expression], types: Types, params: Params) -> Expression:
    micros = sql.call("toUnixTimestamp64Micro", drop_digits(args[0], types[0], 6, zone_of(types[0]) or "UTC"))
    divisor = {"s": 1_000_000, "ms": 1_000, "us": 1}[params[0]]
    if divisor == 1:
        return micros
    if params[0] == "s":
        return sql.binary("/", micros, sql.number(1_000_000))
    below = sql.call("positiveModulo", micros, sql.number(divisor))
    return sql.call("intDiv", sql.binary("-", micros.copy(), below), sql.number(divisor))


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
define_function("date_add", _add_type, _build_add, "a number of units later")
define_function("add_duration", _add_duration_type, _build_add_duration, "a number of microseconds later")
define_function("date_diff", _diff_type, _build_diff, "whole units from another date or datetime")
define_function("epoch", _epoch_type, _build_epoch, "time since 1970 in `s`, `ms` or `us`")
define_function("in_zone", _in_zone_type, _build_in_zone, "the same moment in another time zone")
