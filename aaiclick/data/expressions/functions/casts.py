"""Casts that keep the value: where it would change, `cast` raises an error and `try_cast` returns NULL.

ClickHouse's CAST truncates fractions, wraps integers, and reads 30 February as 1 March without an error. `truncate`
allows fractions, decimal places and parts of a second to be dropped, nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from sqlglot import exp

from aaiclick.data.compile import sql
from aaiclick.data.compile.sql import Expression
from aaiclick.data.expressions.functions.registry import NotDefinedError, Params, Types, any_nullable, define_function
from aaiclick.data.types import (
    BOOL,
    DATE,
    INT64,
    STRING,
    DataType,
    array_of,
    datetime_type,
    decimal_type,
    precision_of,
    zone_of,
)

CAST_FAILED = "aai_cast"
"""Message of `throwIf` where a cast would change a value, followed by both types."""

FIRST_DAY, LAST_DAY = -25_567, 120_529
"""Days since 1970 of 1900-01-01 and 2299-12-31."""

FIRST_SECOND, END_SECOND = FIRST_DAY * 86_400, (LAST_DAY + 1) * 86_400
SECONDS_LENGTH, LONGEST_TEXT = 19, 2**32
EXACT_FLOAT_DIGITS = 15
PARSED_DECIMAL = decimal_type(76, 38)
DECIMAL_TEXT = r"^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?$"


def build_cast(value: Expression, source: DataType, target: DataType, truncate: bool = False) -> Expression:
    """Build a cast that fails where it would change the value."""
    target = target.as_nullable(target.nullable or source.nullable)
    if source.name == "Array" and target.name == "Array":
        return _map_elements(value, source, target, lambda item: build_cast(item, source.element, target.element))
    if is_lossless(source, target):
        return _build_plain_cast(value, source, target)
    if target.is_integer and (source.is_integer or source.is_float):
        whole = sql.call("trunc", value) if truncate and source.is_float else value
        return build_checked_cast(whole, target)
    converted = _convert_or_null(value, source.as_required(), target.as_required(), truncate)
    failed = sql.call("isNull", converted.copy())
    if source.nullable:
        failed = sql.binary("AND", failed, sql.call("isNotNull", value.copy()))
    if source.is_string:  # CAST raises an error that shows the text, if it does not change it
        failed = sql.binary("AND", failed, _raise_for_text(value, failed, source, target.as_required()))
    check = sql.call("throwIf", failed, sql.string(f"{CAST_FAILED}: {_plain_text(source)} to {_plain_text(target)}"))
    checked = sql.call("if", check, sql.null(), converted)
    return checked if target.nullable else sql.call("assumeNotNull", checked)


def _raise_for_text(value: Expression, failed: Expression, source: DataType, target: DataType) -> Expression:
    """Build a condition that raises ClickHouse's error where a cast has failed, and is true otherwise.

    ClickHouse may evaluate it for all rows, and must not see that it is always true.
    """
    text = sql.call("assumeNotNull", value.copy()) if source.nullable else value.copy()
    valid = sql.call("toString", sql.call("defaultValueOfTypeName", sql.type_name(target)))
    parsed = sql.cast(sql.call("if", failed.copy(), text, valid), target)
    return sql.binary("<", sql.call("length", sql.call("toString", parsed)), sql.number(LONGEST_TEXT))


def build_checked_cast(value: Expression, target: DataType) -> Expression:
    """Build a cast of a number to an integer type that fails for others; the value is nullable if the type is.

    ClickHouse also checks what is stored under a NULL, which is any number after a calculation.
    """
    if not target.nullable:
        return sql.call("accurateCast", value, sql.type_name(target))
    number = sql.call("ifNull", value, sql.number(0))
    converted = sql.call("accurateCast", number, sql.type_name(target.as_required()))
    return sql.call("if", sql.call("isNull", value.copy()), sql.null(), converted)


def build_try_cast(value: Expression, source: DataType, target: DataType, truncate: bool = False) -> Expression:
    """Build a cast that is NULL where it would change the value."""
    if source.name == "Array" and target.name == "Array":
        return _map_elements(value, source, target, lambda item: build_try_cast(item, source.element, target.element))
    if is_lossless(source, target):
        return _build_plain_cast(value, source, target.as_nullable())
    return _convert_or_null(value, source.as_required(), target.as_required(), truncate)


def is_lossless(source: DataType, target: DataType) -> bool:
    """Whether a plain CAST keeps every value; numbers may become floats, and anything becomes text."""
    source, target = source.as_required(), target.as_required()
    if source == target or source.is_unknown or target.is_string or (source.is_bool and target.is_numeric):
        return True
    if source.is_numeric and target.is_numeric:
        return _is_lossless_number(source, target)
    if target.is_bool:
        return source.is_numeric
    if source.is_temporal and target.is_temporal:
        if target.name == "Date" or target.name == "DateTime":
            return source.name == target.name or (source.name == "Date" and target.name == "DateTime")
        return target.is_date or precision_of(target) >= precision_of(source)
    return source.is_structure or (source.is_temporal and target.is_float)


def _is_lossless_number(source: DataType, target: DataType) -> bool:
    if target.is_float:
        return not source.is_float or target.name == "Float64"
    if source.is_float:
        return False
    if source.is_decimal and target.is_decimal:
        whole = target.args[0] - target.args[1] >= source.args[0] - source.args[1]
        return whole and target.args[1] >= source.args[1]
    if source.is_decimal or target.is_decimal:
        return False
    if source.is_signed == target.is_signed:
        return target.bits >= source.bits
    return target.is_signed and target.bits > source.bits


def build_nearest_float(value: Expression, source: DataType) -> Expression:
    """Build the nearest Float64 of a Decimal; ClickHouse divides two rounded numbers if it has more than 53 bits."""
    plain = sql.call("toFloat64", value)
    precision, scale = source.args
    if precision <= EXACT_FLOAT_DIGITS:
        return plain
    limit = sql.cast(sql.string(f"{Decimal(2**53).scaleb(-scale):f}"), decimal_type(76, scale))
    is_exact = sql.binary("<", sql.call("abs", value.copy()), limit)
    return sql.call("if", is_exact, plain, sql.call("toFloat64", sql.call("toString", value.copy())))


def _build_plain_cast(value: Expression, source: DataType, target: DataType) -> Expression:
    if target.is_float and source.is_decimal:
        value = build_nearest_float(value, source)
    if target.is_bool and source.is_numeric:
        return sql.cast(sql.binary("!=", value, sql.number(0)), target)
    if target.is_string and source.is_bool:  # computed booleans are UInt8 in ClickHouse
        value = sql.cast(value, BOOL.as_nullable(source.nullable))
    return sql.cast(value, target)


def _map_elements(
    value: Expression, source: DataType, target: DataType, convert: Callable[[Expression], Expression]
) -> Expression:
    is_plain = is_lossless(source.element, target.element) and target.element.name != "Array"
    if is_plain or source.is_nullable_structure or source.element.is_nullable_structure:
        return sql.cast(value, target)
    item = exp.Column(this=sql.identifier("x"))
    return sql.call("arrayMap", exp.Lambda(this=convert(item), expressions=[sql.identifier("x")]), value)


def _convert_or_null(value: Expression, source: DataType, target: DataType, truncate: bool) -> Expression:
    """Build a conversion that is NULL where the value has no equal of the target type."""
    if target.is_integer:
        return _to_integer(value, source, target, truncate)
    if target.is_decimal:
        return _to_decimal(value, source, target, truncate)
    if target.is_float and source.is_float:
        narrow = sql.cast(value, target.as_nullable())
        changed = sql.binary("AND", sql.call("isInfinite", narrow), sql.call("isFinite", value.copy()))
        return _null_where(changed, narrow.copy())
    if target.is_temporal:
        return _to_temporal(value, source, target, truncate)
    return _or_null(value, target)


def _to_integer(value: Expression, source: DataType, target: DataType, truncate: bool) -> Expression:
    if source.is_float and truncate:
        return _or_null(sql.call("trunc", value), target)
    if source.is_decimal:
        # accurateCastOrNull of a Decimal truncates, and raises an error instead of returning NULL.
        whole = _or_null(sql.cast(value, DataType("Nullable", (DataType("Int256"),))), target)
        fraction = sql.binary("!=", sql.call("trunc", value.copy()), value.copy())
        return whole if truncate or not source.args[1] else _null_where(fraction, whole)
    if source.is_date:
        return _or_null(sql.call("toInt32", value), target)
    if source.is_temporal:
        is_fine = precision_of(source) > 6
        name, size = ("Nano", 1_000_000_000) if is_fine else ("Micro", 1_000_000)
        moment = sql.cast(value, datetime_type(9 if is_fine else 6, "UTC").as_nullable())
        count = sql.call(f"toUnixTimestamp64{name}", moment)
        seconds = _or_null(sql.call("intDiv", count, sql.number(size)), target)
        fraction = sql.binary("!=", sql.call("modulo", count.copy(), sql.number(size)), sql.number(0))
        return seconds if truncate else _null_where(fraction, seconds)
    return _or_null(value, target)


def _to_decimal(value: Expression, source: DataType, target: DataType, truncate: bool) -> Expression:
    if source.is_date:
        return _or_null(sql.call("toInt32", value), target)
    if source.is_temporal:
        seconds = decimal_type(38, precision_of(source))
        return _to_decimal(sql.cast(value, seconds.as_nullable()), seconds, target, truncate)
    if source.is_float:
        # Decimals are read from the shortest text, since 0.29 * 100 is 28.999…, and written for the same reason.
        converted = _or_null(sql.cast(value, STRING.as_nullable()), target)
        written = sql.cast(converted.copy(), STRING.as_nullable())
        changed = sql.binary("!=", sql.cast(written, source.as_nullable()), value.copy())
    elif source.is_decimal:
        converted = _or_null(value, target)
        changed = sql.binary("!=", converted.copy(), value.copy())
    elif source.is_string:  # ClickHouse reads "-" as 0 and "1.2.3" as 1.23
        is_number = sql.call("match", value.copy(), sql.escaped_string(DECIMAL_TEXT))
        converted = sql.call("if", is_number, _or_null(value, target), sql.null())
        if target.args[1] >= PARSED_DECIMAL.args[1]:
            return converted
        changed = sql.binary("!=", converted.copy(), _or_null(value.copy(), PARSED_DECIMAL))
    else:
        return _or_null(value, target)
    return converted if truncate else _null_where(changed, converted)


def _to_temporal(value: Expression, source: DataType, target: DataType, truncate: bool) -> Expression:
    if source.is_string:
        return _parse_temporal(value, target, truncate)
    if source.is_numeric:
        return _from_number(value, source, target, truncate)
    if target.is_date and not source.is_date:
        value, source = sql.call("toDate32", value), DATE
    if truncate and precision_of(target) < precision_of(source):
        digits = precision_of(target)
        value, source = drop_digits(value, source, digits), datetime_type(digits, zone_of(source))
    reference = sql.cast(value, source.as_nullable())
    narrow = sql.cast(value.copy(), target.as_nullable())
    back = sql.cast(narrow.copy(), source.as_nullable())
    return _null_where(sql.binary("!=", back, reference), narrow)


def drop_digits(value: Expression, source: DataType, digits: int, zone: str = "") -> Expression:
    """Build a datetime with at most so many digits of a second; CAST rounds up those before 1970."""
    target = datetime_type(digits, zone or zone_of(source)).as_nullable(source.nullable)
    if precision_of(source) <= digits:
        return sql.cast(value, target)
    units = (("Milli", 3), ("Micro", 6), ("Nano", 9))
    name, total = next((name, total) for name, total in units if total >= precision_of(source))
    rest = sql.call("positiveModulo", sql.call(f"toUnixTimestamp64{name}", value), sql.number(10 ** (total - digits)))
    return sql.cast(sql.call(f"subtract{name}seconds", value.copy(), rest), target)


def _parse_temporal(value: Expression, target: DataType, truncate: bool) -> Expression:
    """Read ISO 8601 text; the result is compared with the text, since ClickHouse moves days that do not exist."""
    if target.is_date:
        day = sql.call("toDate32OrNull", value)
        changed = sql.binary("!=", sql.call("toString", day), value.copy())
        parsed = _null_where(sql.call("or", changed, _is_year_outside(value.copy())), day.copy())
        return parsed if target == DATE else _to_temporal(parsed, DATE, target, truncate)
    wide = datetime_type(max(6, precision_of(target)), zone_of(target))
    moment = _or_null(value, wide)
    start = sql.call("substring", value.copy(), sql.number(1), sql.number(SECONDS_LENGTH))
    expected = sql.call("replaceOne", start, sql.string("T"), sql.string(" "))
    changed = sql.logical_not(sql.call("startsWith", sql.call("toString", moment), expected))
    if not truncate:
        too_long = sql.binary(">", sql.call("length", value.copy()), sql.number(SECONDS_LENGTH + 2 + wide.args[0]))
        changed = sql.call("or", changed, too_long)
    parsed = _null_where(sql.call("or", changed, _is_year_outside(value.copy())), moment.copy())
    return parsed if target == wide else _to_temporal(parsed, wide, target, truncate)


def _is_year_outside(text: Expression) -> Expression:
    year = sql.call("substring", text, sql.number(1), sql.number(4))
    return sql.call("or", sql.binary("<", year, sql.string("1900")), sql.binary(">", year.copy(), sql.string("2299")))


def _from_number(value: Expression, source: DataType, target: DataType, truncate: bool) -> Expression:
    """Read a number as days since 1970 for a date, as seconds for a datetime."""
    number = value if source.is_integer or not target.is_date else build_try_cast(value, source, INT64)
    low, end = (FIRST_DAY, LAST_DAY + 1) if target.is_date else (FIRST_SECOND, END_SECOND)
    # The limits are compared as Decimals of the same scale, which may not have enough digits for them.
    is_seconds = source.is_decimal and not target.is_date
    wide_number = sql.cast(number, decimal_type(76, source.args[1]).as_nullable()) if is_seconds else number
    inside = sql.binary(
        "AND", sql.binary(">=", wide_number, sql.number(low)), sql.binary("<", wide_number.copy(), sql.number(end))
    )
    if target.is_date:
        # addDays fails for large numbers
        days = sql.call("if", sql.logical_not(inside.copy()), sql.number(0), number.copy())
        moment: Expression = sql.call("addDays", sql.call("toDate32", sql.string("1970-01-01")), days)
    else:
        moment = sql.cast(number.copy(), datetime_type(max(6, precision_of(target)), zone_of(target)).as_nullable())
    outside = sql.logical_not(inside)
    digits = max(6, precision_of(target))
    if is_seconds and not truncate and source.args[1] > digits:
        outside = sql.call(
            "or", outside, sql.binary("!=", sql.call("trunc", number, sql.number(digits)), number.copy())
        )
    inside_only = _null_where(outside, moment)
    wide = DATE if target.is_date else datetime_type(max(6, precision_of(target)), zone_of(target))
    return inside_only if target == wide else _to_temporal(inside_only, wide, target, truncate=False)


def _or_null(value: Expression, target: DataType) -> Expression:
    return sql.call("accurateCastOrNull", value, sql.type_name(target))


def _null_where(condition: Expression, value: Expression) -> Expression:
    return sql.call("if", sql.call("ifNull", condition, sql.number(0)), sql.null(), value)


def _plain_text(dtype: DataType) -> str:
    return str(dtype.as_required()).replace("'", "").replace("\\", "")


def _cast_type(types: Types, params: Params) -> DataType:
    """Type of a cast: the target type, nullable if the source is."""
    target = _castable_type(types[0], params[0])
    return target.as_nullable(target.nullable or any_nullable(types))


def _castable_type(source: DataType, target: DataType) -> DataType:
    """Return the target type; raise NotDefinedError if it has no values of the source type."""
    if target.is_temporal and not (source.is_string or source.is_numeric or source.is_temporal or source.is_unknown):
        raise NotDefinedError(f"{source} cannot be cast to {target}")
    return target


def _try_cast_type(types: Types, params: Params) -> DataType:
    target = _castable_type(types[0], params[0])
    return array_of(target.element.as_nullable()) if target.name == "Array" else target.as_nullable()


define_function(
    "cast",
    _cast_type,
    lambda args, types, params: build_cast(args[0], types[0], params[0], *params[1:]),
    "the value as another type; a value that would change is an error",
)
define_function(
    "try_cast",
    _try_cast_type,
    lambda args, types, params: build_try_cast(args[0], types[0], params[0], *params[1:]),
    "the value as another type, NULL where it would change",
)
