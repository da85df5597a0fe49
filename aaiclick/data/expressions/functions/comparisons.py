"""Comparisons, logic, bits and tests of values."""

# ruff: noqa: ARG001, ARG005  (all builders have one signature)

from __future__ import annotations

from sqlglot import exp

from aaiclick.data.compile import sql
from aaiclick.data.compile.sql import Expression
from aaiclick.data.expressions.functions.arithmetic import canonical_float, numeric_type
from aaiclick.data.expressions.functions.casts import build_cast, build_nearest_float
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
    fixed_type,
)
from aaiclick.data.types import (
    BOOL,
    DECIMAL_CLASSES,
    INT64,
    STRING,
    UINT64,
    DataType,
    array_of,
    datetime_type,
    supertype,
    zone_of,
)


def are_comparable(left: DataType, right: DataType) -> bool:
    """Whether values of two types can be compared. ClickHouse compares more types by parsing strings."""
    if left.is_unknown or right.is_unknown:
        return True
    if left.is_temporal and right.is_temporal:
        return bool(zone_of(left)) == bool(zone_of(right))
    if left.is_string and right.is_string:
        return True
    if (left.is_numeric or left.is_bool) and (right.is_numeric or right.is_bool):
        return True
    return left.name == right.name or supertype(left, right) is not None


def _comparison_type(types: Types, params: Params) -> DataType:
    left, right = types
    if not are_comparable(left, right):
        if left.is_temporal and right.is_temporal:
            raise NotDefinedError("one has a time zone and the other has none")
        raise NotDefinedError("they cannot be compared")
    return BOOL.as_nullable(any_nullable(types))


def _comparable_decimals(args: list[Expression], types: Types) -> list[Expression]:
    """Cast Decimals and integers to a common type where ClickHouse's comparison would overflow, or all to floats."""
    if any(dtype.is_float for dtype in types):
        return [build_nearest_float(arg, t) if t.is_decimal else arg for arg, t in zip(args, types, strict=True)]
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


def _build_equality(args: list[Expression], types: Types) -> Expression:
    """Build `==`. ClickHouse makes `a = b` a key of a join below, and keys of floats are compared by their bits."""
    is_join_condition = any(t.is_float for t in types) and not any(isinstance(arg, exp.Var) for arg in args)
    if not is_join_condition:
        return sql.binary("=", *_comparable_decimals(args, types))
    floats = _comparable_decimals(args, types)
    return sql.binary("AND", sql.binary("<=", *floats), sql.binary(">=", *(arg.copy() for arg in floats)))


def _define_comparison(operator: str) -> None:
    names = {"=": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
    define_function(
        names[operator],
        _comparison_type,
        lambda args, types, params: (
            _build_equality(args, types)
            if operator == "="
            else sql.binary(operator, *_comparable_decimals(args, types))
        ),
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
    element = values.element
    if (value.is_float and element.is_decimal) or (value.is_decimal and element.is_float):
        raise NotDefinedError("floats are not looked up among Decimals: cast one side")
    return BOOL.as_nullable(value.nullable)


def _build_isin(args: list[Expression], types: Types, params: Params) -> Expression:
    value, values = args
    element = types[1].element.as_required()
    if types[0].is_float:  # the hash set compares bits
        value = canonical_float(value, types[0])
    is_cast = types[0].is_temporal or types[0].is_decimal or element.is_decimal
    if is_cast and not element.is_unknown and types[0].as_required() != element:
        common = supertype(numeric_type(types[0]), numeric_type(element)) or datetime_type(6, zone_of(element))
        if element.is_bool or (element.is_integer and element.bits > 64):  # have no cast to Decimal
            plain = INT64 if element.is_bool else STRING
            values = sql.cast(values, array_of(plain.as_nullable(types[1].element.nullable)))
        value = sql.cast(value, common.as_nullable(types[0].nullable))
        values = sql.cast(values, array_of(common.as_nullable(types[1].element.nullable)))
    if not types[1].element.is_unknown:
        return exp.In(this=sql.parenthesize(value), expressions=[values])  # evaluated with a hash set
    contained = sql.call("has", values, value)
    return sql.call("if", sql.call("isNull", value.copy()), sql.null(), contained) if types[0].nullable else contained


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
