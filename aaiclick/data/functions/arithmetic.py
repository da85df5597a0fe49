"""Arithmetic, bits, comparison and logic, with Python's `//` and `%` and honest NULLs."""

# ruff: noqa: ARG001, ARG005  (all builders have one signature)
# pyright: reportArgumentType=false, reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from sqlglot import exp

from aaiclick.data import sql
from aaiclick.data.functions.registry import (
    INTEGER,
    NUMBER,
    TRUTH,
    NotDefinedError,
    Params,
    Types,
    any_nullable,
    calls,
    check,
    define,
    gives,
    gives_same,
)
from aaiclick.data.sql import Expression
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
    integer,
    integer_type,
    supertype,
)


def as_number(kind: DataType) -> DataType:
    """Bool counts as a small integer in arithmetic, as in Python."""
    return UINT8 if kind.is_bool else kind.required()


def _wider(left: DataType, right: DataType, signed: bool) -> DataType:
    """ClickHouse's own rule for + and *: twice the width up to 64 bits."""
    bits = max(left.bits, right.bits)
    return integer(signed, bits if bits >= 64 else bits * 2)


def _decimal(operator: str, left: DataType, right: DataType) -> DataType:
    scales = [kind.args[1] if kind.is_decimal else 0 for kind in (left, right)]
    precisions = [kind.args[0] if kind.is_decimal else 0 for kind in (left, right)]
    scale = sum(scales) if operator == "*" else max(scales)
    widest = next(each for each in DECIMAL_CLASSES if each >= max(precisions))
    return decimal_type(widest, scale)


def _arithmetic(operator: str, types: Types) -> DataType:
    left, right = (as_number(kind) for kind in types)
    nullable = any_nullable(types)
    if left.is_unknown or right.is_unknown:
        return (right if left.is_unknown else left).as_nullable()
    if left.is_float or right.is_float:
        return FLOAT64.as_nullable(nullable)
    if left.is_decimal or right.is_decimal:
        return _decimal(operator, left, right).as_nullable(nullable)
    return _wider(left, right, operator == "-" or left.is_signed or right.is_signed).as_nullable(nullable)


def _add(types: Types, params: Params) -> DataType:
    left, right = types
    if left.is_string and right.is_string:
        return STRING.as_nullable(any_nullable(types))
    if left.name == "Array" and right.name == "Array":
        joined = supertype(left, right)
        if joined is None:
            raise NotDefinedError(f"their elements differ: {left.element} and {right.element}")
        return joined
    check(types, NUMBER, NUMBER)
    return _arithmetic("+", types)


def _build_add(args: list[Expression], types: Types, params: Params) -> Expression:
    if types[0].is_string:
        return sql.call("concat", *args)
    if types[0].name == "Array":
        return sql.call("arrayConcat", *args)
    return _operator("+", args, types)


def _subtract(types: Types, params: Params) -> DataType:
    left, right = types
    if left.is_date and right.is_date:
        return INT32.as_nullable(any_nullable(types))
    check(types, NUMBER, NUMBER)
    return _arithmetic("-", types)


def _build_subtract(args: list[Expression], types: Types, params: Params) -> Expression:
    if types[0].is_date:
        difference = sql.call("dateDiff", sql.string("day"), args[1], args[0])
        return sql.cast(difference, INT32.as_nullable(any_nullable(types)))
    return _operator("-", args, types)


def _operator(operator: str, args: list[Expression], types: Types) -> Expression:
    """A number among Decimals and Floats meets ClickHouse's own rules only as Float64."""
    if any(kind.is_decimal for kind in types) and any(kind.is_float for kind in types):
        args = [sql.call("toFloat64", arg) if kind.is_decimal else arg for arg, kind in zip(args, types, strict=True)]
    return sql.binary(operator, args[0], args[1])


def _numbers(operator: str) -> tuple[object, object]:
    def result(types: Types, params: Params) -> DataType:
        check(types, NUMBER, NUMBER)
        return _arithmetic(operator, types)

    def build(args: list[Expression], types: Types, params: Params) -> Expression:
        return _operator(operator, args, types)

    return result, build


def _divide(args: list[Expression], types: Types, params: Params) -> Expression:
    args = [sql.call("toFloat64", arg) if kind.is_decimal else arg for arg, kind in zip(args, types, strict=True)]
    return sql.binary("/", args[0], args[1])


def _whole(types: Types, params: Params) -> DataType:
    """The type of `//` and `%`: of the operands for floats, wide enough for both for integers; NULL for x // 0."""
    check(types, NUMBER, NUMBER)
    left, right = (as_number(kind) for kind in types)
    if left.is_decimal or right.is_decimal:
        raise NotDefinedError("a Decimal has no // or %")
    if left.is_float or right.is_float:
        return FLOAT64.as_nullable(any_nullable(types))
    if left.is_unknown or right.is_unknown:
        return INT64.as_nullable()
    common = supertype(left, right) or INT64
    if common.bits > 64:
        common = INT64
    return common.as_nullable()


def _floor_div(args: list[Expression], types: Types, params: Params) -> Expression:
    kind = _whole(types, params)
    left, right = args
    if kind.is_float:
        return sql.call("floor", sql.binary("/", left, right))
    if not kind.is_signed:
        return sql.cast(sql.call("intDiv", left, sql.call("nullIf", right.copy(), sql.number(0))), kind)
    # intDiv rounds towards zero and fails for the least integer by -1: divide by 1 there and negate.
    wide = kind
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


def _modulo(args: list[Expression], types: Types, params: Params) -> Expression:
    """ClickHouse gives the remainder the sign of the dividend, Python that of the divisor."""
    kind = _whole(types, params)
    left, right = args
    if kind.is_float:
        dividend, divisor = sql.call("toFloat64", left), sql.call("toFloat64", right)
        # ClickHouse's remainder is a - b * trunc(a / b), without exact digits once the quotient has more than 53 bits.
        remainder = sql.call("modulo", dividend, divisor)
        wrong = _signs_differ(remainder, divisor)
        return sql.call("if", wrong, sql.binary("+", remainder.copy(), divisor.copy()), remainder.copy())
    if not kind.is_signed:
        return sql.cast(sql.call("modulo", left, sql.call("nullIf", right, sql.number(0))), kind)
    divisor = sql.call("nullIf", sql.cast(right, kind), sql.number(0))
    safe = sql.call(
        "if", sql.binary("=", divisor.copy(), sql.number(-1)), sql.cast(sql.number(1), kind), divisor.copy()
    )
    remainder = sql.call("modulo", sql.cast(left, kind), safe)
    moved = sql.call(
        "if", _signs_differ(remainder, divisor), sql.binary("+", remainder.copy(), divisor.copy()), remainder
    )
    return sql.cast(moved, kind)


def _by_constant(types: Types, params: Params) -> DataType:
    """`//` and `%` by a positive constant: nothing can go wrong, so nothing becomes NULL."""
    check(types, NUMBER)
    kind = as_number(types[0])
    if kind.is_decimal or kind.is_unknown:
        raise NotDefinedError("a Decimal has no // or %")
    if kind.is_float:
        return FLOAT64.as_nullable(types[0].nullable)
    common = supertype(kind, integer_type(params[0])) or INT64
    return (INT64 if common.bits > 64 else common).as_nullable(types[0].nullable)


def _floor_div_constant(args: list[Expression], types: Types, params: Params) -> Expression:
    kind, value, divisor = _by_constant(types, params), args[0], sql.number(params[0])
    if kind.is_float:
        return sql.call("floor", sql.binary("/", value, divisor))
    quotient = sql.call("intDiv", value, divisor)
    if kind.is_signed:
        below = sql.binary("<", sql.call("modulo", value.copy(), divisor.copy()), sql.number(0))
        quotient = sql.binary("-", quotient, below)
    return sql.cast(quotient, kind)


def _modulo_constant(args: list[Expression], types: Types, params: Params) -> Expression:
    kind, value, divisor = _by_constant(types, params), args[0], sql.number(params[0])
    if kind.is_float:
        return _modulo([value, divisor], (types[0], INT64), ())
    return sql.cast(sql.call("positiveModulo" if kind.is_signed else "modulo", value, divisor), kind)


def _signs_differ(remainder: Expression, divisor: Expression) -> Expression:
    return sql.binary(
        "AND",
        sql.binary("!=", remainder.copy(), sql.number(0)),
        sql.binary(
            "!=", sql.binary("<", remainder.copy(), sql.number(0)), sql.binary("<", divisor.copy(), sql.number(0))
        ),
    )


def _negate(types: Types, params: Params) -> DataType:
    check(types, NUMBER)
    kind = as_number(types[0])
    if kind.is_integer and not kind.is_signed:
        kind = integer(True, kind.bits if kind.bits >= 64 else kind.bits * 2)
    return kind.as_nullable(types[0].nullable)


def _absolute(types: Types, params: Params) -> DataType:
    check(types, NUMBER)
    return as_number(types[0]).as_nullable(types[0].nullable)


def _build_absolute(args: list[Expression], types: Types, params: Params) -> Expression:
    # ClickHouse makes it unsigned; keep the type, as Python does.
    return sql.cast(sql.call("abs", args[0]), _absolute(types, params))


def comparable(left: DataType, right: DataType) -> bool:
    """Whether two types have an order in common; ClickHouse would compare more, by parsing strings."""
    if left.is_unknown or right.is_unknown:
        return True
    groups = ("is_string", "is_temporal")
    if any(getattr(left, group) and getattr(right, group) for group in groups):
        return True
    if (left.is_numeric or left.is_bool) and (right.is_numeric or right.is_bool):
        return True
    return left.name == right.name or supertype(left, right) is not None


def _compare(types: Types, params: Params) -> DataType:
    left, right = types
    if not comparable(left, right):
        raise NotDefinedError("they do not compare")
    return BOOL.as_nullable(any_nullable(types))


def _comparison(operator: str) -> None:
    words = {"=": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
    define(
        words[operator],
        _compare,
        lambda args, types, params: sql.binary(operator, args[0], args[1]),
        f"`{'==' if operator == '=' else operator}`; NULL when either side is NULL",
    )


def _logic(types: Types, params: Params) -> DataType:
    if all(kind.is_integer or kind.is_unknown for kind in types):
        return (supertype(types[0], types[1]) or INT64).as_nullable(any_nullable(types))
    check(types, TRUTH, TRUTH)
    return BOOL.as_nullable(any_nullable(types))


def _build_logic(name: str, bits: str) -> None:
    def build(args: list[Expression], types: Types, params: Params) -> Expression:
        kind = _logic(types, params)
        if kind.is_integer:
            return sql.cast(sql.call(bits, *args), kind)
        return sql.call("xor", *args) if name == "xor" else sql.binary(name.upper(), args[0], args[1])

    symbol = {"and": "&", "or": "|", "xor": "^"}[name]
    define(name, _logic, build, f"`{symbol}`: logical for booleans (three-valued), by bits for integers")


def _not(types: Types, params: Params) -> DataType:
    if types[0].is_integer:
        return types[0]
    check(types, TRUTH)
    return types[0]


def _isin(types: Types, params: Params) -> DataType:
    value, values = types
    if values.name != "Array" or not comparable(value, values.element):
        raise NotDefinedError(f"{value} does not compare with the elements of {values}")
    return BOOL.as_nullable(value.nullable)


def _build_isin(args: list[Expression], types: Types, params: Params) -> Expression:
    value, values = args
    if not types[1].element.is_unknown:
        return exp.In(this=sql.grouped(value), expressions=[values])  # a hash set, however long the list
    found = sql.call("has", values, value)
    return sql.call("if", sql.call("isNull", value.copy()), sql.null(), found) if types[0].nullable else found


_define_numbers = (("*", "mul", "`*`"),)
define("add", _add, _build_add, "`+`; strings and arrays are joined")
define("sub", _subtract, _build_subtract, "`-`; days between dates")
for _symbol, _name, _doc in _define_numbers:
    _result, _build = _numbers(_symbol)
    define(_name, _result, _build, _doc)  # pyright: ignore[reportArgumentType]
define("truediv", gives(FLOAT64, NUMBER, NUMBER), _divide, "`/`, always Float64; x / 0 is inf or nan")
define("floordiv", _whole, _floor_div, "`//` as in Python: rounds down; NULL for integers by 0")
define("mod", _whole, _modulo, "`%` as in Python: the sign of the divisor; NULL for integers by 0")
define("floordiv_by", _by_constant, _floor_div_constant, "`//` by a positive whole number")
define("mod_by", _by_constant, _modulo_constant, "`%` by a positive whole number")
define("pow", gives(FLOAT64, NUMBER, NUMBER), calls("pow"), "`**`, Float64")
define("neg", _negate, calls("negate"), "unary `-`")
define("abs", _absolute, _build_absolute, "absolute value")
define("sign", gives(INT32, NUMBER), calls("sign", INT32), "-1, 0 or 1")
for _each in ("=", "!=", "<", "<=", ">", ">="):
    _comparison(_each)
_build_logic("and", "bitAnd")
_build_logic("or", "bitOr")
_build_logic("xor", "bitXor")
define(
    "not",
    _not,
    lambda args, types, params: (
        sql.cast(sql.call("bitNot", args[0]), types[0]) if types[0].is_integer else sql.negated(args[0])
    ),
    "`~`: logical for booleans, by bits for integers",
)
define(
    "shift_left",
    gives_same(INTEGER, INTEGER),
    lambda a, t, p: sql.cast(sql.call("bitShiftLeft", *a), t[0].as_nullable(any_nullable(t))),
    "`<<`",
)
define(
    "shift_right",
    gives_same(INTEGER, INTEGER),
    lambda a, t, p: sql.cast(sql.call("bitShiftRight", *a), t[0].as_nullable(any_nullable(t))),
    "`>>`",
)
define("isin", _isin, _build_isin, "whether the value is one of a list; NULL for NULL")
define("is_null", lambda types, params: BOOL, calls("isNull"), "whether the value is NULL")
define("is_not_null", lambda types, params: BOOL, calls("isNotNull"), "whether the value is not NULL")
define("is_nan", gives(BOOL, NUMBER), calls("isNaN"), "whether the value is NaN")
define("is_finite", gives(BOOL, NUMBER), calls("isFinite"), "whether the value is neither infinite nor NaN")
# For the compiler only: it may be computed for rows before the start that are filtered out afterwards, so it must
# not fail.
define("_since", gives(UINT64), lambda args, types, params: sql.cast(sql.binary("-", args[0], args[1]), UINT64), "")
