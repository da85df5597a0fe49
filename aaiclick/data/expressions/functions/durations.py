"""Durations: numbers of microseconds, such as the difference of two datetimes.

The functions of numbers are extended for them. Results are exact or an error; a quotient is rounded to the nearest
microsecond, halves to even, as in Python.
"""

# ruff: noqa: ARG001, ARG005  (all builders have one signature)

from __future__ import annotations

from aaiclick.data.compile import sql
from aaiclick.data.compile.sql import Expression
from aaiclick.data.expressions.functions.casts import build_cast, build_checked_cast, build_try_cast
from aaiclick.data.expressions.functions.dates_and_times import MICROS, MICROS_PER_DAY, UNITS, add_micros, epoch_micros
from aaiclick.data.expressions.functions.registry import (
    FUNCTIONS,
    NUMBER,
    SPAN,
    TEMPORAL,
    BuildAggregate,
    Function,
    NotDefinedError,
    Over,
    Params,
    Result,
    Types,
    any_nullable,
    check_types,
    define_function,
    extend_function,
    raise_where,
)
from aaiclick.data.types import (
    DURATION,
    FLOAT64,
    INT64,
    INT128,
    STRING,
    DataType,
    datetime_type,
    iter_types,
    precision_of,
    zone_of,
)

_GENERAL: dict[str, Function] = {}
"""The functions of numbers, before they are extended."""

LOST_DIGITS = "aai_nanoseconds"
"""Message of `throwIf` for a difference of datetimes with a part of a microsecond."""

SPAN_UNITS = tuple(unit for unit in UNITS if unit in MICROS)


def _has_duration(types: Types, params: Params) -> bool:
    return any(dtype.is_duration for dtype in types)


def _is_temporal(types: Types, params: Params) -> bool:
    return any(dtype.is_temporal or dtype.is_duration for dtype in types)


def _wide(value: Expression) -> Expression:
    return sql.call("toInt128", value)


def _fit(value: Expression, nullable: bool) -> Expression:
    """Build a checked cast of a wide number to microseconds."""
    return build_checked_cast(value, INT64.as_nullable(nullable))


def divide_rounded(dividend: Expression, divisor: Expression) -> Expression:
    """Build the quotient of two Int128, rounded to the nearest integer, halves to even; the divisor is positive."""
    rest = sql.call("positiveModulo", dividend, divisor)
    quotient = sql.call("intDiv", sql.binary("-", dividend.copy(), rest.copy()), divisor.copy())
    twice = sql.call("multiply", rest, sql.number(2))
    is_odd = sql.binary("!=", sql.call("modulo", quotient.copy(), sql.number(2)), sql.number(0))
    rounds_up = sql.call(
        "or",
        sql.binary(">", twice, divisor.copy()),
        sql.call("and", sql.binary("=", twice.copy(), divisor.copy()), is_odd),
    )
    return sql.binary("+", quotient, rounds_up)


# --- sums and differences ----------------------------------------------------------------------------------------


def _sum_type(types: Types, params: Params) -> DataType:
    left, right = types
    nullable = any_nullable(types)
    if left.is_temporal or right.is_temporal:
        moment, span = (left, right) if left.is_temporal else (right, left)
        check_types((span,), SPAN)
        return datetime_type(max(precision_of(moment), 6), zone_of(moment)).as_nullable(nullable)
    check_types(types, SPAN, SPAN)
    return DURATION.as_nullable(nullable)


def _build_sum(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
    dtype = _sum_type(types, params)
    if dtype.is_duration:
        return _fit(sql.binary("+", *map(_wide, args)), dtype.nullable)
    position = 0 if types[0].is_temporal else 1
    return add_micros(args[position], types[position], args[1 - position], 1, dtype)


def _difference_type(types: Types, params: Params) -> DataType:
    left, right = types
    if left.is_temporal and right.is_temporal:
        if bool(zone_of(left)) != bool(zone_of(right)):
            raise NotDefinedError("one has a time zone and the other has none")
        return DURATION.as_nullable(any_nullable(types))
    if right.is_temporal:
        check_types(types, TEMPORAL)
    return _sum_type(types, params)


def _build_difference(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
    dtype, nullable = _difference_type(types, params), any_nullable(types)
    if not dtype.is_duration:
        # The smallest Int64 has no negative, but is out of range in any case.
        return add_micros(args[0], types[0], sql.call("negate", args[1]), 1, dtype)
    if types[0].is_duration:
        return _fit(sql.binary("-", *map(_wide, args)), nullable)
    if max(precision_of(types[0]), precision_of(types[1])) > 6:
        return _build_nanosecond_difference(args, types)
    return sql.binary("-", *(epoch_micros(arg, t) for arg, t in zip(args, types, strict=True)))


def _build_nanosecond_difference(args: list[Expression], types: Types) -> Expression:
    moments = [
        sql.cast(a, datetime_type(9, zone_of(t)).as_nullable(t.nullable)) for a, t in zip(args, types, strict=True)
    ]
    nanos = sql.binary("-", *(sql.call("toUnixTimestamp64Nano", moment) for moment in moments))
    has_rest = sql.binary("!=", sql.call("modulo", nanos, sql.number(1_000)), sql.number(0))
    micros = sql.call("intDiv", nanos.copy(), sql.number(1_000))
    return sql.call("if", raise_where(has_rest, LOST_DIGITS), micros.copy(), micros)


def _constant_sum_type(types: Types, params: Params) -> DataType:
    return types[0]


def _build_constant_sum(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
    return _fit(sql.binary("+", _wide(args[0]), sql.number(params[0])), types[0].nullable)


# --- products and quotients --------------------------------------------------------------------------------------


def _check_factor(dtype: DataType) -> None:
    if dtype.is_bool or dtype.is_decimal:
        raise NotDefinedError(f"a duration is multiplied and divided by integers and floats, not by {dtype}")
    check_types((dtype,), NUMBER)


def _product_type(types: Types, params: Params) -> DataType:
    if all(dtype.is_duration for dtype in types):
        raise NotDefinedError("a duration is multiplied by a number")
    _check_factor(types[1] if types[0].is_duration else types[0])
    return DURATION.as_nullable(any_nullable(types))


def _build_product(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
    if any(dtype.is_float for dtype in types):
        return _round_float(sql.binary("*", *(sql.call("toFloat64", arg) for arg in args)), any_nullable(types))
    return _fit(sql.binary("*", *(sql.call("toInt256", arg) for arg in args)), any_nullable(types))


def _round_float(value: Expression, nullable: bool) -> Expression:
    return _fit(sql.call("roundBankers", value), nullable)


def _quotient_type(types: Types, params: Params) -> DataType:
    check_types(types, SPAN)
    if types[1].is_duration:
        return FLOAT64.as_nullable(any_nullable(types))
    _check_factor(types[1])
    return DURATION.as_nullable()


def _build_quotient(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
    if types[1].is_duration:
        return sql.binary("/", *args)
    divisor = sql.call("nullIf", args[1], sql.number(0))
    if types[1].is_float:
        return _round_float(sql.binary("/", sql.call("toFloat64", args[0]), divisor), True)
    sign = sql.call("toInt8", sql.call("sign", divisor.copy()))
    size = sql.call("multiply", _wide(divisor), sign)
    return _fit(divide_rounded(sql.call("multiply", _wide(args[0]), sign.copy()), size), True)


def _floor_type(types: Types, params: Params) -> DataType:
    check_types(types, SPAN)
    if types[1].is_duration:
        return INT64.as_nullable()
    if not types[1].is_integer:
        raise NotDefinedError("// of a duration takes an integer or a duration")
    return DURATION.as_nullable()


def _build_floor(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
    return _GENERAL["floordiv"].build(
        args, tuple(INT64.as_nullable(t.nullable) if t.is_duration else t for t in types), (), over
    )


def _rest_type(types: Types, params: Params) -> DataType:
    check_types(types, SPAN, SPAN)
    return DURATION.as_nullable()


def _build_rest(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
    return _GENERAL["mod"].build(args, tuple(INT64.as_nullable(t.nullable) for t in types), (), over)


def _build_constant_floor(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
    return _GENERAL["floordiv_by"].build(args, (INT64.as_nullable(types[0].nullable),), params, over)


def _refused(why: str) -> Result:
    def result(types: Types, params: Params) -> DataType:
        raise NotDefinedError(why)

    return result


def _build_nothing(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
    raise TypeError(types)


def _first_type(types: Types, params: Params) -> DataType:
    return types[0]


def _build_wide(function: str) -> BuildAggregate:
    def build(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
        return _fit(sql.call(function, _wide(args[0])), types[0].nullable)

    return build


# --- aggregates --------------------------------------------------------------------------------------------------


def _total_type(types: Types, params: Params) -> DataType:
    return DURATION


def _build_total(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
    return _GENERAL["sum"].build(args, (INT64.as_nullable(types[0].nullable),), params, over)


def _nullable_duration_type(types: Types, params: Params) -> DataType:
    return DURATION.as_nullable()


def _build_mean(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
    total = over(sql.call("sum", _wide(args[0])))
    count = sql.call("nullIf", _wide(over(sql.call("count", args[0].copy()))), sql.number(0))
    return _fit(divide_rounded(total, count), True)


def _build_quantile(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
    value = _GENERAL["quantile"].build(args, (INT64.as_nullable(types[0].nullable),), params, over)
    return _round_float(value, True)


# --- parts, casts and texts --------------------------------------------------------------------------------------


def _cast_type(types: Types, params: Params) -> DataType:
    source, target = types[0], params[0]
    if source.is_duration and target.is_duration:
        return target.as_nullable(target.nullable or source.nullable)
    other = target if source.is_duration else source
    if not (other.is_integer or other.is_float or other.is_unknown or (source.is_duration and target.is_string)):
        raise NotDefinedError(f"{source} cannot be cast to {target}: a duration becomes seconds or text")
    return target.as_nullable(target.nullable or source.nullable)


def _try_cast_type(types: Types, params: Params) -> DataType:
    return _cast_type(types, params).as_nullable()


def _build_cast(is_checked: bool) -> BuildAggregate:
    def build(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
        source, target = types[0], params[0]
        convert = build_cast if is_checked else build_try_cast
        if source.is_unknown or (source.is_duration and target.is_duration):
            return sql.cast(args[0], target.as_nullable(target.nullable or source.nullable or not is_checked))
        if target.is_string:
            return build_text(args[0], source)
        if target.is_duration:
            return _from_seconds(args[0], source, target, is_checked)
        if target.is_float:
            return convert(
                sql.binary("/", args[0], sql.number(1_000_000)), FLOAT64.as_nullable(source.nullable), target
            )
        whole = sql.call("intDiv", args[0], sql.number(1_000_000))
        fraction = sql.binary("!=", sql.call("modulo", args[0].copy(), sql.number(1_000_000)), sql.number(0))
        if params[1:] == (True,):
            return convert(whole, INT64.as_nullable(source.nullable), target)
        if is_checked:
            checked = sql.call(
                "if", raise_where(fraction, f"aai_cast: Duration to {target.as_required()}"), whole.copy(), whole
            )
            return convert(checked, INT64.as_nullable(source.nullable), target)
        return convert(
            sql.call("if", sql.call("ifNull", fraction, sql.number(0)), sql.null(), whole), INT64.as_nullable(), target
        )

    return build


def _from_seconds(value: Expression, source: DataType, target: DataType, is_checked: bool) -> Expression:
    """Build the duration of a number of seconds; a float is rounded to microseconds."""
    if source.is_float:
        micros = sql.call("roundBankers", sql.binary("*", sql.call("toFloat64", value), sql.number(1_000_000)))
        source = FLOAT64.as_nullable(source.nullable)
    else:
        micros, source = sql.call("multiply", _wide(value), sql.number(1_000_000)), INT128.as_nullable(source.nullable)
    convert = build_cast if is_checked else build_try_cast
    return convert(micros, source, INT64.as_nullable(target.nullable or source.nullable))


def build_text(micros: Expression, dtype: DataType) -> Expression:
    """Build the text that Python writes for a timedelta: `1 day, 2:03:04.000005`."""
    day = sql.number(MICROS_PER_DAY)
    rest = sql.call("positiveModulo", micros, day)
    days = sql.call("intDiv", sql.binary("-", _wide(micros.copy()), rest.copy()), day.copy())

    def take_part(size: int, limit: int) -> Expression:
        return sql.call("modulo", sql.call("intDiv", rest.copy(), sql.number(size)), sql.number(limit))

    def pad_number(number: Expression, width: int) -> Expression:
        return sql.call("leftPad", sql.call("toString", number), sql.number(width), sql.string("0"))

    fraction = take_part(1, 1_000_000)
    plural = sql.call(
        "if", sql.binary("=", sql.call("abs", days.copy()), sql.number(1)), sql.string(" day, "), sql.string(" days, ")
    )
    text = sql.call(
        "concat",
        sql.call(
            "if",
            sql.binary("=", days, sql.number(0)),
            sql.string(""),
            sql.call("concat", sql.call("toString", days.copy()), plural),
        ),
        sql.call("toString", take_part(3_600_000_000, 24)),
        sql.string(":"),
        pad_number(take_part(60_000_000, 60), 2),
        sql.string(":"),
        pad_number(take_part(1_000_000, 60), 2),
        sql.call(
            "if",
            sql.binary("=", fraction, sql.number(0)),
            sql.string(""),
            sql.call("concat", sql.string("."), pad_number(fraction.copy(), 6)),
        ),
    )
    return sql.cast(text, STRING.as_nullable(dtype.nullable))


def _build_total_units(args: list[Expression], types: Types, params: Params) -> Expression:
    size = MICROS[params[0]]
    return args[0] if size == 1 else sql.binary("/", args[0], sql.number(size))


def _total_units_type(types: Types, params: Params) -> DataType:
    check_types(types, SPAN)
    return (INT64 if params[0] == "microsecond" else FLOAT64).as_nullable(types[0].nullable)


def _build_duration(args: list[Expression], types: Types, params: Params) -> Expression:
    """Build a duration from numbers of units."""
    parts = [
        sql.call("multiply", sql.call("toInt256", arg), sql.number(MICROS[unit]))
        for arg, unit in zip(args, params, strict=True)
    ]
    total = parts[0]
    for part in parts[1:]:
        total = sql.binary("+", total, part)
    return _fit(total, any_nullable(types))


def _duration_type(types: Types, params: Params) -> DataType:
    for dtype in types:
        if not dtype.is_integer and not dtype.is_unknown:
            raise NotDefinedError(f"the parts of a duration are integers, not {dtype}")
    return DURATION.as_nullable(any_nullable(types))


define_function("total_units", _total_units_type, _build_total_units, "length of a duration in a unit")
define_function("duration", _duration_type, _build_duration, "a duration of numbers of units")


def extend_functions() -> None:
    """Extend the functions of numbers for durations, once all of them are registered."""
    _GENERAL.update(FUNCTIONS)
    extend_function("add", _is_temporal, _sum_type, _build_sum)
    extend_function("sub", _is_temporal, _difference_type, _build_difference)
    extend_function("add_duration", _has_duration, _constant_sum_type, _build_constant_sum)
    extend_function("mul", _has_duration, _product_type, _build_product)
    extend_function("truediv", _has_duration, _quotient_type, _build_quotient)
    extend_function("floordiv", _has_duration, _floor_type, _build_floor)
    extend_function("floordiv_by", _has_duration, _first_type, _build_constant_floor)
    extend_function("mod", _has_duration, _rest_type, _build_rest)
    extend_function("neg", _has_duration, _first_type, _build_wide("negate"))
    extend_function("abs", _has_duration, _first_type, _build_wide("abs"))
    extend_function("sum", _has_duration, _total_type, _build_total)
    extend_function("mean", _has_duration, _nullable_duration_type, _build_mean)
    extend_function("quantile", _has_duration, _nullable_duration_type, _build_quantile)
    extend_function(
        "cast", lambda types, params: types[0].is_duration or params[0].is_duration, _cast_type, _build_cast(True)
    )
    extend_function(
        "try_cast",
        lambda types, params: types[0].is_duration or params[0].is_duration,
        _try_cast_type,
        _build_cast(False),
    )
    for name in ("concat", "to_json", "list_join", "repeat"):
        extend_function(
            name,
            lambda types, params: any(part.is_duration for dtype in types for part in iter_types(dtype)),
            _refused("a duration has no text here: cast it"),
            _build_nothing,
        )
