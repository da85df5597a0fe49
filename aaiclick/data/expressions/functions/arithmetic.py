"""Arithmetic, bitwise, comparison and logical functions, with Python's semantics of `//` and `%`."""

# ruff: noqa: ARG001, ARG005  (all builders have one signature)

from __future__ import annotations

import math
import sys

from sqlglot import exp

from aaiclick.data.compile import sql
from aaiclick.data.compile.sql import Expression
from aaiclick.data.expressions.functions.casts import build_cast, build_checked_cast
from aaiclick.data.expressions.functions.registry import (
    INTEGER,
    NUMBER,
    TRUTH,
    Build,
    NotDefinedError,
    Params,
    Types,
    any_nullable,
    build_call,
    check_types,
    define_function,
    first_argument_type,
    fixed_type,
)
from aaiclick.data.types import (
    BOOL,
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
    smallest_integer_type,
    supertype,
)

MAX_LOGARITHM, MIN_LOGARITHM = 709.7827128933840, -745.1332191019412
"""Natural logarithms of the largest and the smallest Float64."""

DECIMAL_OVERFLOW = "aai_decimal"
POWER_OVERFLOW = "aai_power"
"""Messages of `throwIf` for results that no type holds."""


def raise_where(condition: Expression, message: str) -> Expression:
    """Build a condition that is never true: it raises an error where the given one is."""
    return sql.call("throwIf", sql.call("ifNull", condition, sql.number(0)), sql.string(message))


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
    left, right = types
    if left.is_date and right.is_date:
        return INT32.as_nullable(any_nullable(types))
    check_types(types, NUMBER, NUMBER)
    return _arithmetic_type("-", types)


def _build_subtract(args: list[Expression], types: Types, params: Params) -> Expression:
    if types[0].is_date:
        difference = sql.call("dateDiff", sql.string("day"), args[1], args[0])
        return sql.cast(difference, INT32.as_nullable(any_nullable(types)))
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


def _build_floor_div(args: list[Expression], types: Types, params: Params) -> Expression:
    dtype = _floor_div_type(types, params)
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


def are_comparable(left: DataType, right: DataType) -> bool:
    """Whether values of two types can be compared. ClickHouse compares more types by parsing strings."""
    if left.is_unknown or right.is_unknown:
        return True
    groups = ("is_string", "is_temporal")
    if any(getattr(left, group) and getattr(right, group) for group in groups):
        return True
    if (left.is_numeric or left.is_bool) and (right.is_numeric or right.is_bool):
        return True
    return left.name == right.name or supertype(left, right) is not None


def _comparison_type(types: Types, params: Params) -> DataType:
    left, right = types
    if not are_comparable(left, right):
        raise NotDefinedError("they cannot be compared")
    return BOOL.as_nullable(any_nullable(types))


def _comparable_decimals(args: list[Expression], types: Types) -> list[Expression]:
    """Cast Decimals and integers to a common type, where ClickHouse's comparison would overflow."""
    decimals = [dtype for dtype in types if dtype.is_decimal]
    if not decimals or not all(dtype.is_decimal or dtype.is_integer for dtype in types):
        return args
    storage = next(size for size in DECIMAL_CLASSES if size >= max(dtype.args[0] for dtype in decimals))
    common = supertype(types[0].as_required(), types[1].as_required())
    if common is None or common.args[0] <= storage or types[0].as_required() == types[1].as_required():
        return args
    return [sql.cast(arg, common.as_nullable(t.nullable)) for arg, t in zip(args, types, strict=True)]


def _build_float_test(clickhouse: str, of_exact: str) -> Build:
    """Build isNaN or isFinite; of a Decimal it is a comparison with itself, which keeps NULLs."""

    def build(args: list[Expression], types: Types, params: Params) -> Expression:
        if types[0].is_decimal:
            return sql.binary(of_exact, args[0], args[0].copy())
        return sql.call(clickhouse, args[0])

    return build


def _define_comparison(operator: str) -> None:
    names = {"=": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
    define_function(
        names[operator],
        _comparison_type,
        lambda args, types, params: sql.binary(operator, *_comparable_decimals(args, types)),
        f"`{'==' if operator == '=' else operator}`; NULL when either side is NULL",
    )


def _logic_type(types: Types, params: Params) -> DataType:
    if all(dtype.is_integer or dtype.is_unknown for dtype in types):
        return (supertype(types[0], types[1]) or INT64).as_nullable(any_nullable(types))
    check_types(types, TRUTH, TRUTH)
    return BOOL.as_nullable(any_nullable(types))


def _define_logic(name: str, bits: str) -> None:
    def build(args: list[Expression], types: Types, params: Params) -> Expression:
        dtype = _logic_type(types, params)
        if dtype.is_integer:
            return sql.call(bits, *(build_cast(arg, t, dtype) for arg, t in zip(args, types, strict=True)))
        return sql.call("xor", *args) if name == "xor" else sql.binary(name.upper(), args[0], args[1])

    symbol = {"and": "&", "or": "|", "xor": "^"}[name]
    define_function(name, _logic_type, build, f"`{symbol}`: logical for booleans (three-valued), by bits for integers")


def _not_type(types: Types, params: Params) -> DataType:
    if types[0].is_integer:
        return types[0]
    check_types(types, TRUTH)
    return types[0]


def _isin_type(types: Types, params: Params) -> DataType:
    value, values = types
    if values.name != "Array" or not are_comparable(value, values.element):
        raise NotDefinedError(f"{value} cannot be compared with the elements of {values}")
    return BOOL.as_nullable(value.nullable)


def _build_isin(args: list[Expression], types: Types, params: Params) -> Expression:
    value, values = args
    if types[0].is_float and types[1].element.is_float:  # the hash set compares bits
        value = canonical_float(value, types[0])
    if not types[1].element.is_unknown:
        return exp.In(this=sql.parenthesize(value), expressions=[values])  # evaluated with a hash set
    contained = sql.call("has", values, value)
    return sql.call("if", sql.call("isNull", value.copy()), sql.null(), contained) if types[0].nullable else contained


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


def _sign_type(types: Types, params: Params) -> DataType:
    check_types(types, NUMBER)
    return (FLOAT64 if types[0].is_float else INT32).as_nullable(types[0].nullable)


def _build_sign(args: list[Expression], types: Types, params: Params) -> Expression:
    sign = sql.cast(sql.call("sign", args[0]), _sign_type(types, params))
    return sql.call("if", sql.call("isNaN", args[0].copy()), sql.number(math.nan), sign) if types[0].is_float else sign


def _shift_type(types: Types, params: Params) -> DataType:
    """Type of `<<` and `>>`: 64 bits, since 1 << 8 has none in the type of the literal 1."""
    check_types(types, INTEGER, INTEGER)
    dtype = types[0].as_required()
    return (dtype if dtype.bits > 64 or dtype == UINT64 else INT64).as_nullable(any_nullable(types))


def _build_shift_right(args: list[Expression], types: Types, params: Params) -> Expression:
    dtype, distance = _shift_type(types, params), args[1]
    if dtype.is_signed:  # a negative number becomes -1, not 0
        is_far = sql.binary(">=", distance, sql.number(dtype.bits))  # not least, which skips NULLs
        distance = sql.call("if", is_far, sql.number(dtype.bits - 1), distance.copy())
    return sql.cast(sql.call("bitShiftRight", sql.cast(args[0], dtype), distance), dtype)


define_function("add", _add_type, _build_add, "`+`; strings and arrays are joined")
define_function("sub", _subtract_type, _build_subtract, "`-`; days between dates")
define_function("mul", _multiply_type, _build_multiply, "`*`")
define_function(
    "truediv", fixed_type(FLOAT64, NUMBER, NUMBER), _build_divide, "`/`, always Float64; x / 0 is inf or nan"
)
define_function("floordiv", _floor_div_type, _build_floor_div, "`//` as in Python: rounds down; NULL for integers by 0")
define_function(
    "mod", _floor_div_type, _build_modulo, "`%` as in Python: the sign of the divisor; NULL for integers by 0"
)
define_function("floordiv_by", _constant_divisor_type, _build_floor_div_constant, "`//` by a positive whole number")
define_function("mod_by", _constant_divisor_type, _build_modulo_constant, "`%` by a positive whole number")
define_function("pow", _power_type, _build_power, "`**`; of integers an integer, otherwise Float64")
define_function("pow_by", _constant_power_type, _build_constant_power, "`**` by a whole number up to 64")
define_function("neg", _negate_type, _build_negate, "unary `-`")
define_function("abs", _absolute_type, _build_absolute, "absolute value")
define_function("sign", _sign_type, _build_sign, "-1, 0 or 1; NaN for NaN")
for _operator in ("=", "!=", "<", "<=", ">", ">="):
    _define_comparison(_operator)
_define_logic("and", "bitAnd")
_define_logic("or", "bitOr")
_define_logic("xor", "bitXor")
define_function(
    "not",
    _not_type,
    lambda args, types, params: (
        sql.cast(sql.call("bitNot", args[0]), types[0]) if types[0].is_integer else sql.logical_not(args[0])
    ),
    "`~`: logical for booleans, by bits for integers",
)
define_function(
    "shift_left",
    _shift_type,
    lambda a, t, p: sql.call("bitShiftLeft", sql.cast(a[0], _shift_type(t, p)), a[1]),
    "`<<` in 64 bits",
)
define_function(
    "shift_right",
    _shift_type,
    _build_shift_right,
    "`>>`",
)
define_function("isin", _isin_type, _build_isin, "whether the value is one of a list; NULL for NULL")
define_function("is_null", lambda types, params: BOOL, build_call("isNull"), "whether the value is NULL")
define_function("is_not_null", lambda types, params: BOOL, build_call("isNotNull"), "whether the value is not NULL")
define_function("is_nan", fixed_type(BOOL, NUMBER), _build_float_test("isNaN", "!="), "whether the value is NaN")
define_function(
    "is_finite",
    fixed_type(BOOL, NUMBER),
    _build_float_test("isFinite", "="),
    "whether the value is neither infinite nor NaN",
)
define_function("_canonical", first_argument_type(NUMBER), lambda a, t, p: canonical_float(a[0], t[0]), "")
define_function("_position", fixed_type(INT64), lambda a, t, p: sql.cast(a[0], INT64), "")
# Internal to the compiler. Must not fail, since it is also computed for earlier rows that are filtered out later.
define_function(
    "_since", fixed_type(UINT64), lambda args, types, params: sql.cast(sql.binary("-", args[0], args[1]), UINT64), ""
)
