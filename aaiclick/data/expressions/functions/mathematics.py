"""Mathematical functions and hashes."""

# ruff: noqa: ARG001, ARG005  (all builders have one signature)

from __future__ import annotations

from aaiclick.data.compile import sql
from aaiclick.data.compile.sql import Expression
from aaiclick.data.expressions.functions.arithmetic import canonical_float, numeric_type
from aaiclick.data.expressions.functions.casts import build_checked_cast
from aaiclick.data.expressions.functions.registry import (
    NUMBER,
    TEXT,
    Params,
    Types,
    build_call,
    check_types,
    define_function,
    fixed_type,
)
from aaiclick.data.types import FLOAT64, INT64, STRING, UINT64, DataType

FLOAT_FUNCTIONS = {
    "sqrt": "sqrt", "cbrt": "cbrt", "exp": "exp", "exp2": "exp2", "log": "log", "log2": "log2", "log10": "log10",
    "log1p": "log1p",
    "sin": "sin", "cos": "cos", "tan": "tan", "asin": "asin", "acos": "acos", "atan": "atan",
    "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "degrees": "degrees", "radians": "radians",
}  # fmt: skip

MAX_POWER = 308
"""Largest power of ten of a float."""

MAX_DECIMAL_DIGITS = 77
MAX_INTEGER_DIGITS = 19


def _rounding_type(types: Types, params: Params) -> DataType:
    check_types(types, NUMBER)
    dtype = numeric_type(types[0])
    if dtype.is_integer and dtype.bits < 64 and params and params[0] < 0:  # Int8 has no 130
        dtype = INT64
    return dtype.as_nullable(types[0].nullable)


def _define_rounding(name: str) -> None:
    def build(args: list[Expression], types: Types, params: Params) -> Expression:
        if types[0].is_bool:
            return sql.cast(args[0], _rounding_type(types, params))
        if params and params[0]:
            return _round_to(args[0], types[0], params[0], _rounding_type(types, params))
        # ClickHouse's round rounds halves of floats to even, and those of integers and Decimals up.
        clickhouse = "roundBankers" if name == "round" and not types[0].is_float else name
        return sql.call(clickhouse, args[0], *(sql.number(param) for param in params))

    descriptions = {
        "round": "rounded, half to even",
        "floor": "rounded down",
        "ceil": "rounded up",
        "trunc": "rounded towards 0",
    }
    define_function(name, _rounding_type, build, f"{descriptions[name]}, to a number of decimals")


def _round_to(value: Expression, source: DataType, decimals: int, target: DataType) -> Expression:
    if source.is_float:
        return _round_float(value, decimals)
    if decimals >= (source.args[1] if source.is_decimal else 0):
        return sql.cast(value, target)
    if source.is_decimal:
        return sql.call("roundBankers", value, sql.number(max(decimals, -MAX_DECIMAL_DIGITS)))
    if source.bits <= 64 and decimals < -MAX_INTEGER_DIGITS:
        return sql.cast(sql.call("multiply", value, sql.number(0)), target)
    scale = sql.number(decimals)
    wide = sql.call("toInt128" if source.bits <= 64 else "toInt256", value)
    return build_checked_cast(sql.call("roundBankers", wide, scale), target)


def _round_float(value: Expression, decimals: int) -> Expression:
    """Build a rounded float; ClickHouse multiplies it by a power of ten, which may be infinite."""
    size = sql.call("abs", value)
    rounded = sql.call("round", value.copy(), sql.number(decimals))
    if decimals > 0:
        return sql.call("if", sql.binary(">=", size, sql.number(2.0**53 * 10.0**-decimals)), value.copy(), rounded)
    nothing = sql.call("multiply", value.copy(), sql.number(0.0))
    if decimals < -MAX_POWER:
        return sql.call("if", sql.call("isFinite", value.copy()), nothing, value.copy())
    half = 10.0**-decimals / 2
    return sql.call("if", sql.binary("<=", size, sql.number(half)), nothing, rounded)


def _build_tanh(args: list[Expression], types: Types, params: Params) -> Expression:
    """Build tanh; that of ClickHouse has no correct digits for small numbers."""
    value = sql.call("toFloat64", args[0])
    small = sql.binary("/", sql.call("sinh", value), sql.call("cosh", value.copy()))
    is_small = sql.binary("<", sql.call("abs", value.copy()), sql.number(1))
    return sql.call("if", is_small, small, sql.call("tanh", value.copy()))


def _define_hex_digest(function: str) -> None:
    def build(args: list[Expression], types: Types, params: Params) -> Expression:
        return sql.call("lower", sql.call("hex", sql.call(function.upper(), args[0])))

    define_function(function, fixed_type(STRING, TEXT), build, f"{function} of a string, in hexadecimal")


def _build_hash(args: list[Expression], types: Types, params: Params) -> Expression:
    # sipHash64 of NULL is NULL, so hash the pair (is NULL, value).
    if types[0].is_float:
        args = [canonical_float(args[0], types[0])]
    if types[0].nullable:
        return sql.call(
            "sipHash64", sql.call("isNull", args[0]), sql.call("toString", sql.call("assumeNotNull", args[0].copy()))
        )
    return sql.call("sipHash64", args[0])


for _name, _clickhouse in FLOAT_FUNCTIONS.items():
    define_function(_name, fixed_type(FLOAT64, NUMBER), build_call(_clickhouse, FLOAT64), f"{_name}(x)")
define_function("tanh", fixed_type(FLOAT64, NUMBER), _build_tanh, "tanh(x)")
for _name in ("round", "floor", "ceil", "trunc"):
    _define_rounding(_name)
define_function("atan2", fixed_type(FLOAT64, NUMBER, NUMBER), build_call("atan2", FLOAT64), "angle of the point (x, y)")
define_function(
    "hypot", fixed_type(FLOAT64, NUMBER, NUMBER), build_call("hypot", FLOAT64), "length of the vector (x, y)"
)
define_function(
    "hash",
    lambda types, params: UINT64,
    _build_hash,
    "64-bit SipHash of any value, never NULL",
)
for _name in ("md5", "sha1", "sha256"):
    _define_hex_digest(_name)
