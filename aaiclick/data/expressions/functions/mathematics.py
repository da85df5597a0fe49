"""Mathematical functions and hashes."""

# ruff: noqa: ARG001, ARG005  (all builders have one signature)

from __future__ import annotations

from aaiclick.data.compile import sql
from aaiclick.data.compile.sql import Expression
from aaiclick.data.expressions.functions.arithmetic import canonical_float, numeric_type
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
from aaiclick.data.types import FLOAT64, STRING, UINT64, DataType

FLOAT_FUNCTIONS = {
    "sqrt": "sqrt", "cbrt": "cbrt", "exp": "exp", "exp2": "exp2", "log": "log", "log2": "log2", "log10": "log10",
    "log1p": "log1p",
    "sin": "sin", "cos": "cos", "tan": "tan", "asin": "asin", "acos": "acos", "atan": "atan",
    "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "degrees": "degrees", "radians": "radians",
}  # fmt: skip


def _rounding_type(types: Types, params: Params) -> DataType:
    check_types(types, NUMBER)
    return numeric_type(types[0]).as_nullable(types[0].nullable)


def _define_rounding(name: str) -> None:
    def build(args: list[Expression], types: Types, params: Params) -> Expression:
        if types[0].is_bool:
            return sql.cast(args[0], _rounding_type(types, params))
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
