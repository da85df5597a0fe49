"""Arithmetic, bitwise, comparison and logical functions, with Python's semantics of `//` and `%`."""

# ruff: noqa: ARG001, ARG005  (all builders have one signature)

from __future__ import annotations

from sqlglot import exp

from aaiclick.data.compile import sql
from aaiclick.data.compile.sql import Expression
from aaiclick.data.expressions.functions.registry import (
    INTEGER,
    NUMBER,
    TRUTH,
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
    sized_integer_type,
    smallest_integer_type,
    supertype,
)


def numeric_type(dtype: DataType) -> DataType:
    """Return the type of a value in arithmetic: Bool is an integer, as in Python."""
    return UINT8 if dtype.is_bool else dtype.as_required()


def _wider_integer_type(left: DataType, right: DataType, signed: bool) -> DataType:
    """Return ClickHouse's result type of integer + and *: twice the width, up to 64 bits."""
    bits = max(left.bits, right.bits)
    return sized_integer_type(signed, bits if bits >= 64 else bits * 2)


def _decimal_result_type(operator: str, left: DataType, right: DataType) -> DataType:
    scales = [dtype.args[1] if dtype.is_decimal else 0 for dtype in (left, right)]
    precisions = [dtype.args[0] if dtype.is_decimal else 0 for dtype in (left, right)]
    scale = sum(scales) if operator == "*" else max(scales)
    widest = next(size for size in DECIMAL_CLASSES if size >= max(precisions))
    return decimal_type(widest, scale)


def _arithmetic_type(operator: str, types: Types) -> DataType:
    left, right = (numeric_type(dtype) for dtype in types)
    nullable = any_nullable(types)
    if left.is_unknown or right.is_unknown:
        return (right if left.is_unknown else left).as_nullable()
    if left.is_float or right.is_float:
        return FLOAT64.as_nullable(nullable)
    if left.is_decimal or right.is_decimal:
        return _decimal_result_type(operator, left, right).as_nullable(nullable)
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
    """Build a binary operator; Decimals combined with floats are converted to Float64."""
    if any(dtype.is_decimal for dtype in types) and any(dtype.is_float for dtype in types):
        args = [sql.call("toFloat64", arg) if dtype.is_decimal else arg for arg, dtype in zip(args, types, strict=True)]
    return sql.binary(operator, args[0], args[1])


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
    dividend, divisor = sql.cast(left, wide), sql.call("nullIf", sql.cast(right, wide), sql.number(0))
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
    divisor = sql.call("nullIf", sql.cast(right, dtype), sql.number(0))
    safe = sql.call(
        "if", sql.binary("=", divisor.copy(), sql.number(-1)), sql.cast(sql.number(1), dtype), divisor.copy()
    )
    remainder = sql.call("modulo", sql.cast(left, dtype), safe)
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
    if dtype.is_integer and not dtype.is_signed:
        dtype = sized_integer_type(True, dtype.bits if dtype.bits >= 64 else dtype.bits * 2)
    return dtype.as_nullable(types[0].nullable)


def _absolute_type(types: Types, params: Params) -> DataType:
    check_types(types, NUMBER)
    return numeric_type(types[0]).as_nullable(types[0].nullable)


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


def _define_comparison(operator: str) -> None:
    names = {"=": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
    define_function(
        names[operator],
        _comparison_type,
        lambda args, types, params: sql.binary(operator, args[0], args[1]),
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
            return sql.cast(sql.call(bits, *args), dtype)
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
    if not types[1].element.is_unknown:
        return exp.In(this=sql.parenthesize(value), expressions=[values])  # evaluated with a hash set
    contained = sql.call("has", values, value)
    return sql.call("if", sql.call("isNull", value.copy()), sql.null(), contained) if types[0].nullable else contained


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
define_function("pow", fixed_type(FLOAT64, NUMBER, NUMBER), build_call("pow"), "`**`, Float64")
define_function("neg", _negate_type, build_call("negate"), "unary `-`")
define_function("abs", _absolute_type, _build_absolute, "absolute value")
define_function("sign", fixed_type(INT32, NUMBER), build_call("sign", INT32), "-1, 0 or 1")
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
    first_argument_type(INTEGER, INTEGER),
    lambda a, t, p: sql.cast(sql.call("bitShiftLeft", *a), t[0].as_nullable(any_nullable(t))),
    "`<<`",
)
define_function(
    "shift_right",
    first_argument_type(INTEGER, INTEGER),
    lambda a, t, p: sql.cast(sql.call("bitShiftRight", *a), t[0].as_nullable(any_nullable(t))),
    "`>>`",
)
define_function("isin", _isin_type, _build_isin, "whether the value is one of a list; NULL for NULL")
define_function("is_null", lambda types, params: BOOL, build_call("isNull"), "whether the value is NULL")
define_function("is_not_null", lambda types, params: BOOL, build_call("isNotNull"), "whether the value is not NULL")
define_function("is_nan", fixed_type(BOOL, NUMBER), build_call("isNaN"), "whether the value is NaN")
define_function(
    "is_finite", fixed_type(BOOL, NUMBER), build_call("isFinite"), "whether the value is neither infinite nor NaN"
)
# Internal to the compiler. Must not fail, since it is also computed for earlier rows that are filtered out later.
define_function(
    "_since", fixed_type(UINT64), lambda args, types, params: sql.cast(sql.binary("-", args[0], args[1]), UINT64), ""
)
