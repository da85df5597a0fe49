"""`//` and `%` with Python's semantics."""

# ruff: noqa: ARG001  (all builders have one signature)

from __future__ import annotations

from aaiclick.data.compile import sql
from aaiclick.data.compile.sql import Expression
from aaiclick.data.expressions.functions.arithmetic import numeric_type
from aaiclick.data.expressions.functions.casts import build_cast
from aaiclick.data.expressions.functions.registry import (
    NUMBER,
    NotDefinedError,
    Params,
    Types,
    any_nullable,
    check_types,
    define_function,
)
from aaiclick.data.types import FLOAT64, INT64, DataType, sized_integer_type, smallest_integer_type, supertype


def _floor_div_type(types: Types, params: Params) -> DataType:
    """Type of `//` and `%`: Float64 for floats, the supertype for integers; nullable, since x // 0 is NULL."""
    check_types(types, NUMBER, NUMBER)
    left, right = (numeric_type(dtype) for dtype in types)
    if left.is_decimal or right.is_decimal:
        raise NotDefinedError("// and % are not defined for Decimal")
    if left.is_float or right.is_float:
        return FLOAT64.as_nullable(any_nullable(types))
    if left.is_unknown or right.is_unknown:
        return INT64.as_nullable()
    common = supertype(left, right) or INT64
    if common.bits > 64:
        common = INT64
    return common.as_nullable()


def _quotient_type(types: Types, params: Params) -> DataType:
    """Type of `//`: signed integers below 64 bits are widened, since -128 // -1 has no Int8."""
    dtype = _floor_div_type(types, params)
    is_narrow = dtype.is_integer and dtype.is_signed and dtype.bits < 64
    return sized_integer_type(True, dtype.bits * 2).as_nullable() if is_narrow else dtype


def _build_floor_div(args: list[Expression], types: Types, params: Params) -> Expression:
    dtype = _quotient_type(types, params)
    left, right = args
    if dtype.is_float:
        return sql.call("floor", sql.binary("/", left, right))
    if not dtype.is_signed:
        return sql.cast(sql.call("intDiv", left, sql.call("nullIf", right.copy(), sql.number(0))), dtype)
    # intDiv rounds towards zero and fails for the minimum integer by -1: divide by 1 there and negate.
    wide = dtype
    dividend = build_cast(left, types[0], wide)
    divisor = sql.call("nullIf", build_cast(right, types[1], wide), sql.number(0))
    minus_one = sql.binary("=", divisor.copy(), sql.number(-1))
    safe = sql.call("if", minus_one.copy(), sql.cast(sql.number(1), wide), divisor.copy())
    quotient = sql.call("intDiv", dividend.copy(), safe)
    remainder = sql.call("modulo", dividend.copy(), safe.copy())
    below = sql.binary(
        "AND",
        sql.binary("!=", remainder, sql.number(0)),
        sql.binary(
            "!=", sql.binary("<", dividend.copy(), sql.number(0)), sql.binary("<", divisor.copy(), sql.number(0))
        ),
    )
    floored = sql.binary("-", quotient, sql.call("toInt8", below))
    return sql.cast(sql.call("if", minus_one, sql.call("negate", dividend), floored), wide)


def _build_modulo(args: list[Expression], types: Types, params: Params) -> Expression:
    """Build `%`: ClickHouse's remainder has the sign of the dividend, Python's that of the divisor."""
    dtype = _floor_div_type(types, params)
    left, right = args
    if dtype.is_float:
        dividend, divisor = sql.call("toFloat64", left), sql.call("toFloat64", right)
        # ClickHouse's remainder is a - b * trunc(a / b), which is inexact if the quotient has more than 53 bits.
        remainder = sql.call("modulo", dividend, divisor)
        is_infinite = sql.binary(
            "AND", sql.call("isInfinite", divisor.copy()), sql.call("isFinite", dividend.copy())
        )  # a - inf * 0 is NaN
        remainder = sql.call("if", is_infinite, dividend.copy(), remainder)
        wrong = _signs_differ(remainder, divisor)
        return sql.call("if", wrong, sql.binary("+", remainder.copy(), divisor.copy()), remainder.copy())
    if not dtype.is_signed:
        return sql.cast(sql.call("modulo", left, sql.call("nullIf", right, sql.number(0))), dtype)
    divisor = sql.call("nullIf", build_cast(right, types[1], dtype), sql.number(0))
    safe = sql.call(
        "if", sql.binary("=", divisor.copy(), sql.number(-1)), sql.cast(sql.number(1), dtype), divisor.copy()
    )
    remainder = sql.call("modulo", build_cast(left, types[0], dtype), safe)
    moved = sql.call(
        "if", _signs_differ(remainder, divisor), sql.binary("+", remainder.copy(), divisor.copy()), remainder
    )
    return sql.cast(moved, dtype)


def _constant_divisor_type(types: Types, params: Params) -> DataType:
    """Type of `//` and `%` by a positive constant, which cannot fail and so adds no NULLs."""
    check_types(types, NUMBER)
    dtype = numeric_type(types[0])
    if dtype.is_decimal or dtype.is_unknown:
        raise NotDefinedError("// and % are not defined for Decimal")
    if dtype.is_float:
        return FLOAT64.as_nullable(types[0].nullable)
    common = supertype(dtype, smallest_integer_type(params[0])) or INT64
    return (INT64 if common.bits > 64 else common).as_nullable(types[0].nullable)


def _build_floor_div_constant(args: list[Expression], types: Types, params: Params) -> Expression:
    dtype, value, divisor = _constant_divisor_type(types, params), args[0], sql.number(params[0])
    if dtype.is_float:
        return sql.call("floor", sql.binary("/", value, divisor))
    quotient = sql.call("intDiv", value, divisor)
    if dtype.is_signed:
        below = sql.binary("<", sql.call("modulo", value.copy(), divisor.copy()), sql.number(0))
        quotient = sql.binary("-", quotient, below)
    return sql.cast(quotient, dtype)


def _build_modulo_constant(args: list[Expression], types: Types, params: Params) -> Expression:
    dtype, value, divisor = _constant_divisor_type(types, params), args[0], sql.number(params[0])
    if dtype.is_float:
        return _build_modulo([value, divisor], (types[0], INT64), ())
    return sql.cast(sql.call("positiveModulo" if dtype.is_signed else "modulo", value, divisor), dtype)


def _signs_differ(remainder: Expression, divisor: Expression) -> Expression:
    return sql.binary(
        "AND",
        sql.binary("!=", remainder.copy(), sql.number(0)),
        sql.binary(
            "!=", sql.binary("<", remainder.copy(), sql.number(0)), sql.binary("<", divisor.copy(), sql.number(0))
        ),
    )


define_function("floordiv", _quotient_type, _build_floor_div, "`//` as in Python: rounds down; NULL for integers by 0")
define_function(
    "mod", _floor_div_type, _build_modulo, "`%` as in Python: the sign of the divisor; NULL for integers by 0"
)
define_function("floordiv_by", _constant_divisor_type, _build_floor_div_constant, "`//` by a positive whole number")
define_function("mod_by", _constant_divisor_type, _build_modulo_constant, "`%` by a positive whole number")
