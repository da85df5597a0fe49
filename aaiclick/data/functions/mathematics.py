"""Mathematical functions and hashes."""

# ruff: noqa: ARG001, ARG005  (all builders have one signature)
# pyright: reportArgumentType=false, reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from aaiclick.data import sql
from aaiclick.data.functions.arithmetic import as_number
from aaiclick.data.functions.registry import NUMBER, TEXT, Params, Types, calls, check, define, gives
from aaiclick.data.sql import Expression
from aaiclick.data.types import FLOAT64, STRING, UINT64, DataType

FLOAT_FUNCTIONS = {
    "sqrt": "sqrt", "cbrt": "cbrt", "exp": "exp", "exp2": "exp2", "log": "log", "log2": "log2", "log10": "log10",
    "log1p": "log1p",
    "sin": "sin", "cos": "cos", "tan": "tan", "asin": "asin", "acos": "acos", "atan": "atan",
    "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "degrees": "degrees", "radians": "radians",
}  # fmt: skip


def _rounding(types: Types, params: Params) -> DataType:
    check(types, NUMBER)
    return as_number(types[0]).as_nullable(types[0].nullable)


def _build_rounding(name: str) -> None:
    def build(args: list[Expression], types: Types, params: Params) -> Expression:
        if types[0].is_bool:
            return sql.cast(args[0], _rounding(types, params))
        return sql.call(name, args[0], *(sql.number(each) for each in params))

    words = {
        "round": "rounded, half to even",
        "floor": "rounded down",
        "ceil": "rounded up",
        "trunc": "rounded towards 0",
    }
    define(name, _rounding, build, f"{words[name]}, to a number of decimals")


def _hex_of(function: str) -> None:
    def build(args: list[Expression], types: Types, params: Params) -> Expression:
        return sql.call("lower", sql.call("hex", sql.call(function.upper(), args[0])))

    define(function, gives(STRING, TEXT), build, f"{function} of a string, in hexadecimal")


def _build_hash(args: list[Expression], types: Types, params: Params) -> Expression:
    # A hash of NULL would be NULL: hash the pair of "is it NULL" and the value.
    if types[0].nullable:
        return sql.call(
            "sipHash64", sql.call("isNull", args[0]), sql.call("toString", sql.call("assumeNotNull", args[0].copy()))
        )
    return sql.call("sipHash64", args[0])


for _name, _clickhouse in FLOAT_FUNCTIONS.items():
    define(_name, gives(FLOAT64, NUMBER), calls(_clickhouse, FLOAT64), f"{_name}(x)")
for _name in ("round", "floor", "ceil", "trunc"):
    _build_rounding(_name)
define("atan2", gives(FLOAT64, NUMBER, NUMBER), calls("atan2", FLOAT64), "angle of the point (x, y)")
define("hypot", gives(FLOAT64, NUMBER, NUMBER), calls("hypot", FLOAT64), "length of the vector (x, y)")
define(
    "hash",
    lambda types, params: UINT64,
    _build_hash,
    "64-bit SipHash of any value, never NULL",
)
for _name in ("md5", "sha1", "sha256"):
    _hex_of(_name)
