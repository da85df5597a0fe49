"""`+ - * /`, absolute value and sign of numbers, texts, arrays, dates and durations."""

# ruff: noqa: ARG001, ARG005  (all builders have one signature)

from __future__ import annotations

import math

from aaiclick.data.compile import sql
from aaiclick.data.compile.sql import Expression
from aaiclick.data.expressions.functions.casts import build_checked_cast
from aaiclick.data.expressions.functions.registry import (
    NUMBER,
    NotDefinedError,
    Params,
    Types,
    any_nullable,
    check_types,
    define_function,
    first_argument_type,
    fixed_type,
    raise_where,
)
from aaiclick.data.types import (
    DECIMAL_CLASSES,
    FLOAT64,
    INT32,
    INT64,
    STRING,
    UINT8,
    UINT64,
    DataType,
    decimal_type,
    integer_digits,
    sized_integer_type,
    supertype,
)

DECIMAL_OVERFLOW = "aai_decimal"
"""Message of `throwIf` for a result that no Decimal holds."""


def canonical_float(value: Expression, dtype: DataType) -> Expression:
    """Build a float with one representation of zero and of NaN, since ClickHouse hashes the bits."""
    return sql.cast(
        sql.call("if", sql.call("isNaN", value), sql.number(math.nan), sql.binary("+", value.copy(), sql.number(0.0))),
        dtype,
    )


def numeric_type(dtype: DataType) -> DataType:
    """Return the type of a value in arithmetic: Bool is an integer, as in Python."""
    return UINT8 if dtype.is_bool else dtype.as_required()


def _wider_integer_type(left: DataType, right: DataType, signed: bool) -> DataType:
    """Return ClickHouse's result type of integer + and *: twice the width, up to 64 bits."""
    bits = max(left.bits, right.bits)
    return sized_integer_type(signed, bits if bits >= 64 else bits * 2)


def _decimal_result_type(operator: str, left: DataType, right: DataType) -> DataType:
    """Return the type of decimal arithmetic: wide enough for both operands, at least 18 digits."""
    scales = [dtype.args[1] if dtype.is_decimal else 0 for dtype in (left, right)]
    precisions = [dtype.args[0] if dtype.is_decimal else integer_digits(dtype) for dtype in (left, right)]
    scale = sum(scales) if operator == "*" else max(scales)
    size = next((size for size in DECIMAL_CLASSES if size >= max(*precisions, scale, 18)), 76)
    return decimal_type(size, scale)


def _arithmetic_type(operator: str, types: Types) -> DataType:
    left, right = (numeric_type(dtype) for dtype in types)
    nullable = any_nullable(types)
    if left.is_unknown or right.is_unknown:
        return (right if left.is_unknown else left).as_nullable()
    if left.is_float or right.is_float:
        return FLOAT64.as_nullable(nullable)
    if left.is_decimal or right.is_decimal:
        return _decimal_result_type(operator, left, right).as_nullable(nullable)
    if UINT64 in (left, right) and max(left.bits, right.bits) == 64:
        return (INT64 if left.is_signed or right.is_signed else UINT64).as_nullable(nullable)
    return _wider_integer_type(left, right, operator == "-" or left.is_signed or right.is_signed).as_nullable(nullable)


def _add_type(types: Types, params: Params) -> DataType:
    left, right = types
    if left.is_string and right.is_string:
        return STRING.as_nullable(any_nullable(types))
    if left.name == "Array" and right.name == "Array":
        joined = supertype(left, right)
        if joined is None:
            raise NotDefinedError(f"their element types differ: {left.element} and {right.element}")
        return joined
    check_types(types, NUMBER, NUMBER)
    return _arithmetic_type("+", types)


def _build_add(args: list[Expression], types: Types, params: Params) -> Expression:
    if types[0].is_string:
        return sql.call("concat", *args)
    if types[0].name == "Array":
        return sql.call("arrayConcat", *args)
    return _build_operator("+", args, types)


def _subtract_type(types: Types, params: Params) -> DataType:
    check_types(types, NUMBER, NUMBER)
    return _arithmetic_type("-", types)


def _build_subtract(args: list[Expression], types: Types, params: Params) -> Expression:
    return _build_operator("-", args, types)


def _build_operator(operator: str, args: list[Expression], types: Types) -> Expression:
    """Build a binary operator. Decimals combined with floats are converted to Float64."""
    dtype = _arithmetic_type(operator, types)
    if any(t.is_decimal for t in types):
        if dtype.is_float:
            args = [sql.call("toFloat64", arg) if t.is_decimal else arg for arg, t in zip(args, types, strict=True)]
        return _build_decimal_operator(operator, args, types) if dtype.is_decimal else sql.binary(operator, *args)
    integers = [numeric_type(t) for t in types]
    is_mixed = UINT64 in integers and (operator == "-" or any(t.is_signed for t in integers))
    if is_mixed and dtype.is_integer and dtype.bits == 64:  # ClickHouse returns Int64, and wraps
        exact = sql.binary(operator, *(sql.call("toInt128", arg) for arg in args))
        return build_checked_cast(exact, dtype)
    return sql.binary(operator, *args)


def _build_decimal_operator(operator: str, args: list[Expression], types: Types) -> Expression:
    """Build an operator of Decimals. ClickHouse checks overflow, except of products of more than 18 digits."""
    dtype = _arithmetic_type(operator, types)
    precision, scale = dtype.args
    exact_precision = 76 if operator == "*" and precision > 18 else precision
    wide = [
        sql.cast(arg, decimal_type(exact_precision, t.args[1]).as_nullable(t.nullable))
        if t.is_decimal and t.args[0] < exact_precision
        else arg
        for arg, t in zip(args, types, strict=True)
    ]
    result = sql.binary(operator, *wide)
    if exact_precision > precision:
        return sql.cast(result, dtype)
    if precision > 38 and operator == "*":
        floats = [sql.call("toFloat64", arg.copy()) for arg in args]
        too_large = sql.binary(">", sql.call("abs", sql.binary("*", *floats)), sql.number(10.0 ** (76 - scale)))
        return sql.call("if", raise_where(too_large, DECIMAL_OVERFLOW), result.copy(), result)
    return result


def _multiply_type(types: Types, params: Params) -> DataType:
    check_types(types, NUMBER, NUMBER)
    return _arithmetic_type("*", types)


def _build_multiply(args: list[Expression], types: Types, params: Params) -> Expression:
    return _build_operator("*", args, types)


def _build_divide(args: list[Expression], types: Types, params: Params) -> Expression:
    args = [sql.call("toFloat64", arg) if dtype.is_decimal else arg for arg, dtype in zip(args, types, strict=True)]
    return sql.binary("/", args[0], args[1])


def _negate_type(types: Types, params: Params) -> DataType:
    check_types(types, NUMBER)
    dtype = numeric_type(types[0])
    if dtype.is_integer:
        dtype = sized_integer_type(True, dtype.bits if dtype.bits >= 64 else dtype.bits * 2)
    return dtype.as_nullable(types[0].nullable)


def _build_negate(args: list[Expression], types: Types, params: Params) -> Expression:
    dtype, source = _negate_type(types, params), numeric_type(types[0])
    if source == UINT64:
        return build_checked_cast(sql.call("negate", sql.call("toInt128", args[0])), dtype)
    return sql.call("negate", sql.cast(args[0], dtype) if dtype.is_integer and source.bits < 64 else args[0])


def _absolute_type(types: Types, params: Params) -> DataType:
    """Type of abs: the argument's; signed integers below 64 bits are widened, since -128 has no Int8."""
    check_types(types, NUMBER)
    dtype = numeric_type(types[0])
    if dtype.is_integer and dtype.is_signed and dtype.bits < 64:
        dtype = sized_integer_type(True, dtype.bits * 2)
    return dtype.as_nullable(types[0].nullable)


def _build_absolute(args: list[Expression], types: Types, params: Params) -> Expression:
    # ClickHouse's abs returns an unsigned type; keep the type of the argument, as Python does.
    return sql.cast(sql.call("abs", args[0]), _absolute_type(types, params))


def _sign_type(types: Types, params: Params) -> DataType:
    check_types(types, NUMBER)
    return (FLOAT64 if types[0].is_float else INT32).as_nullable(types[0].nullable)


def _build_sign(args: list[Expression], types: Types, params: Params) -> Expression:
    sign = sql.cast(sql.call("sign", args[0]), _sign_type(types, params))
    return sql.call("if", sql.call("isNaN", args[0].copy()), sql.number(math.nan), sign) if types[0].is_float else sign


define_function("add", _add_type, _build_add, "`+`; strings and arrays are joined")
define_function("sub", _subtract_type, _build_subtract, "`-`; of dates and datetimes a duration")
define_function("mul", _multiply_type, _build_multiply, "`*`")
define_function(
    "truediv", fixed_type(FLOAT64, NUMBER, NUMBER), _build_divide, "`/`, always Float64; x / 0 is inf or nan"
)
define_function("neg", _negate_type, _build_negate, "unary `-`")
define_function("abs", _absolute_type, _build_absolute, "absolute value")
define_function("sign", _sign_type, _build_sign, "-1, 0 or 1; NaN for NaN")
define_function("_canonical", first_argument_type(NUMBER), lambda a, t, p: canonical_float(a[0], t[0]), "")
define_function("_position", fixed_type(INT64), lambda a, t, p: sql.cast(a[0], INT64), "")
# Internal to the compiler. Must not fail, since it is also computed for earlier rows that are filtered out later.
define_function(
    "_since", fixed_type(UINT64), lambda args, types, params: sql.cast(sql.binary("-", args[0], args[1]), UINT64), ""
)
