"""Powers: exact for integers."""

# ruff: noqa: ARG001  (all builders have one signature)

from __future__ import annotations

import math
import sys

from sqlglot import exp

from aaiclick.data.compile import sql
from aaiclick.data.compile.sql import Expression
from aaiclick.data.expressions.functions.arithmetic import numeric_type
from aaiclick.data.expressions.functions.casts import build_cast
from aaiclick.data.expressions.functions.registry import (
    NUMBER,
    Params,
    Types,
    any_nullable,
    check_types,
    define_function,
    raise_where,
)
from aaiclick.data.types import FLOAT64, INT64, DataType

MAX_LOGARITHM, MIN_LOGARITHM = 709.7827128933840, -745.1332191019412
"""Natural logarithms of the largest and the smallest Float64."""

POWER_OVERFLOW = "aai_power"
"""Message of `throwIf` for a result that Int64 does not hold."""


def _power_type(types: Types, params: Params) -> DataType:
    check_types(types, NUMBER, NUMBER)
    is_integer = all(numeric_type(dtype).is_integer for dtype in types)
    return (INT64 if is_integer else FLOAT64).as_nullable(any_nullable(types))


def _build_power(args: list[Expression], types: Types, params: Params) -> Expression:
    """Build `**`. Integers are multiplied, since pow has 53 bits; a negative exponent or a large result is an error."""
    dtype = _power_type(types, params)
    if dtype.is_float:
        base, exponent = (sql.call("toFloat64", arg) for arg in args)
        return _build_float_power(base, exponent)
    base, exponent = (build_cast(arg, t, INT64) for arg, t in zip(args, types, strict=True))
    estimate = sql.call("pow", sql.call("toFloat64", base.copy()), sql.call("toFloat64", exponent.copy()))
    limit = sql.number(2.0**63)
    # The exponent 1 is left out, since the largest integers are 2 ** 63 as floats.
    too_large = sql.call(
        "or",
        sql.call(
            "and",
            sql.binary(">", exponent.copy(), sql.number(1)),
            sql.call("or", sql.binary(">=", estimate, limit), sql.binary("<", estimate.copy(), sql.number(-(2.0**63)))),
        ),
        sql.call("and", sql.binary("<", exponent.copy(), sql.number(0)), sql.binary("=", base.copy(), base.copy())),
    )
    # Of bases with larger exponents only 0, 1 and -1 are left; 64 keeps the parity.
    steps = sql.call(
        "if",
        sql.binary(">", exponent.copy(), sql.number(64)),
        sql.binary("+", sql.number(64), sql.call("modulo", exponent.copy(), sql.number(2))),
        exponent.copy(),
    )
    if types[1].nullable:
        steps = sql.call("ifNull", steps, sql.number(0))
    factor = sql.call("ifNull", base.copy(), sql.number(0)) if types[0].nullable else base.copy()
    power = sql.call(
        "arrayFold",
        exp.Lambda(
            this=sql.binary("*", exp.Column(this=sql.identifier("y")), exp.Column(this=sql.identifier("x"))),
            expressions=[sql.identifier("y"), sql.identifier("x")],
        ),
        sql.call("arrayWithConstant", sql.call("greatest", steps, sql.number(0)), factor),
        sql.call("toInt64", sql.number(1)),
    )
    if any_nullable(types):
        missing = sql.call("or", *(sql.call("isNull", arg.copy()) for arg in args))
        power = sql.call("if", missing, sql.null(), power)
    return sql.call("if", raise_where(too_large, POWER_OVERFLOW), sql.cast(sql.number(0), dtype), power)


def _build_float_power(base: Expression, exponent: Expression) -> Expression:
    """Build pow of floats; where the result is too large or too small, ClickHouse returns arbitrary numbers."""
    size = sql.binary("*", sql.call("log", sql.call("abs", base.copy())), exponent.copy())
    odd = sql.binary("=", sql.call("positiveModulo", exponent.copy(), sql.number(2)), sql.number(1))
    is_exact = sql.binary("<", sql.call("abs", exponent.copy()), sql.number(2.0**53))
    negative = sql.call("and", sql.binary("<", base.copy(), sql.number(0)), is_exact, odd)
    infinite = sql.call("if", negative, sql.number(-math.inf), sql.number(math.inf))
    usual = sql.call("pow", base, exponent)
    return sql.call(
        "multiIf",
        *(sql.binary("=", base.copy(), sql.number(0)), usual),
        *(sql.call("or", *(sql.call("isInfinite", value.copy()) for value in (base, exponent))), usual.copy()),
        *(_is_complex(base, exponent), sql.number(math.nan)),
        *(sql.binary(">", size, sql.number(MAX_LOGARITHM)), infinite),
        *(sql.binary("<", size.copy(), sql.number(MIN_LOGARITHM)), sql.number(0.0)),
        *(sql.binary("<", sql.call("abs", base.copy()), sql.number(sys.float_info.min)), _scaled_power(base, exponent)),
        usual.copy(),
    )


def _scaled_power(base: Expression, exponent: Expression) -> Expression:
    """Build pow of a subnormal number, which is inexact in ClickHouse."""
    normal = sql.binary("*", base.copy(), sql.number(2.0**100))
    scale = sql.call("exp2", sql.binary("*", exponent.copy(), sql.number(-100)))
    return sql.binary("*", sql.call("pow", normal, exponent.copy()), scale)


def _is_complex(base: Expression, exponent: Expression) -> Expression:
    fraction = sql.binary("!=", exponent.copy(), sql.call("floor", exponent.copy()))
    return sql.binary("AND", sql.binary("<", base.copy(), sql.number(0)), fraction)


def _constant_power_type(types: Types, params: Params) -> DataType:
    check_types(types, NUMBER)
    return (INT64 if numeric_type(types[0]).is_integer else FLOAT64).as_nullable(types[0].nullable)


def _build_constant_power(args: list[Expression], types: Types, params: Params) -> Expression:
    """Build `**` by a constant: products of squares, of bases within the limits of the result."""
    dtype, exponent = _constant_power_type(types, params), params[0]
    if dtype.is_float:
        return _build_float_power(sql.call("toFloat64", args[0]), sql.number(float(exponent)))
    base = build_cast(args[0], types[0], INT64)
    if exponent == 0:
        one = sql.cast(sql.number(1), dtype)
        return sql.call("if", sql.call("isNull", base), sql.null(), one) if types[0].nullable else one
    high = _integer_root(2**63 - 1, exponent)
    low = -_integer_root(2**63 if exponent % 2 else 2**63 - 1, exponent)
    outside = sql.call(
        "or", sql.binary(">", base.copy(), sql.number(high)), sql.binary("<", base.copy(), sql.number(low))
    )
    power = _multiply_squares(base, exponent)
    if exponent == 1:
        return power
    return sql.call("if", raise_where(outside, POWER_OVERFLOW), sql.cast(sql.number(0), dtype), power)


def _multiply_squares(base: Expression, exponent: int) -> Expression:
    if exponent == 1:
        return base.copy()
    half = _multiply_squares(base, exponent // 2)
    square = sql.call("multiply", half, half.copy())
    return sql.call("multiply", square, base.copy()) if exponent % 2 else square


def _integer_root(number: int, degree: int) -> int:
    """Return the root of a number, rounded down."""
    root = round(number ** (1 / degree))
    while root**degree > number:
        root -= 1
    while (root + 1) ** degree <= number:
        root += 1
    return root


define_function("pow", _power_type, _build_power, "`**`; of integers an integer, otherwise Float64")
define_function("pow_by", _constant_power_type, _build_constant_power, "`**` by a whole number up to 64")
