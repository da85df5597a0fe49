"""ClickHouse types as values: read from text, written as text, promoted as ClickHouse promotes them.

`logical` says how Python sees a String: "" as `str`, "bytes" as `bytes`, "json" as the value its JSON text holds.
LowCardinality is a way of storing, not a type: it is read and forgotten.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from aaiclick.data.errors import ConversionError, DataTypeError

INTEGER_BITS = {f"{sign}Int{bits}": (sign == "", bits) for sign in ("", "U") for bits in (8, 16, 32, 64, 128, 256)}
FLOATS = ("Float32", "Float64", "BFloat16")
DECIMAL_CLASSES = (9, 18, 38, 76)
STRUCTURES = ("Array", "Tuple", "Map", "Nested")


@dataclass(frozen=True, slots=True)
class DataType:
    """One ClickHouse type; `args` holds inner types, `(name, type)` pairs of a Tuple, or plain parameters."""

    name: str
    args: tuple[Any, ...] = ()
    nullable: bool = False
    logical: str = ""

    def __str__(self) -> str:
        text = self.name + (f"({', '.join(_argument(arg) for arg in self.args)})" if self.args else "")
        return f"Nullable({text})" if self.nullable else text

    @property
    def is_integer(self) -> bool:
        return self.name in INTEGER_BITS

    @property
    def is_signed(self) -> bool:
        return INTEGER_BITS.get(self.name, (True, 0))[0]

    @property
    def bits(self) -> int:
        return INTEGER_BITS.get(self.name, (True, 64))[1]

    @property
    def is_float(self) -> bool:
        return self.name in FLOATS

    @property
    def is_decimal(self) -> bool:
        return self.name == "Decimal"

    @property
    def is_numeric(self) -> bool:
        return self.is_integer or self.is_float or self.is_decimal

    @property
    def is_bool(self) -> bool:
        return self.name == "Bool"

    @property
    def is_string(self) -> bool:
        return self.name in ("String", "FixedString")

    @property
    def is_temporal(self) -> bool:
        return self.name in ("Date", "Date32", "DateTime", "DateTime64")

    @property
    def is_date(self) -> bool:
        return self.name in ("Date", "Date32")

    @property
    def is_structure(self) -> bool:
        return self.name in STRUCTURES

    @property
    def is_unknown(self) -> bool:
        """The type of a bare NULL."""
        return self.name == "Nothing"

    @property
    def element(self) -> DataType:
        return self.args[0] if self.name == "Array" else NOTHING

    def as_nullable(self, nullable: bool = True) -> DataType:
        """The same type with NULLs allowed (or not); arrays, tuples and maps cannot be NULL in ClickHouse."""
        if self.is_structure or self.nullable == nullable:
            return self
        return replace(self, nullable=nullable)

    def required(self) -> DataType:
        return self.as_nullable(False)


def _argument(arg: Any) -> str:
    if isinstance(arg, tuple):
        name, inner = arg  # pyright: ignore[reportUnknownVariableType]
        return f"{quote_name(str(name))} {inner}"  # pyright: ignore[reportUnknownArgumentType]
    return str(arg)


def is_text(text: str) -> bool:
    """Whether a string is Unicode that can be sent: Python's may hold halves of surrogate pairs."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def quote_name(name: str) -> str:
    """A ClickHouse identifier for any text: backslashes are escapes inside backticks, so both are escaped."""
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def quote_text(text: str) -> str:
    """A ClickHouse string literal for any text."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


BOOL = DataType("Bool")
INT32 = DataType("Int32")
INT64 = DataType("Int64")
UINT8 = DataType("UInt8")
UINT32 = DataType("UInt32")
UINT64 = DataType("UInt64")
FLOAT64 = DataType("Float64")
STRING = DataType("String")
BYTES = DataType("String", logical="bytes")
DATE = DataType("Date32")
UUID_TYPE = DataType("UUID")
NOTHING = DataType("Nothing", nullable=True)


def array_of(element: DataType) -> DataType:
    return DataType("Array", (element,))


def datetime_type(precision: int = 6, zone: str = "") -> DataType:
    return DataType("DateTime64", (precision, quote_text(zone)) if zone else (precision,))


def decimal_type(precision: int, scale: int) -> DataType:
    return DataType("Decimal", (precision, scale))


# --- reading type text -------------------------------------------------------------------------------------------

_TOKEN = re.compile(r"\s*(`(?:\\.|``|[^`\\])*`|'(?:\\.|''|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|[A-Za-z_][\w.]*|-?\d+|[(),=])")
_WORDS = {"Decimal32": 9, "Decimal64": 18, "Decimal128": 38, "Decimal256": 76}
_ALIASES = {
    "int": "Int64", "float": "Float64", "str": "String", "string": "String", "bool": "Bool", "Boolean": "Bool",
    "bytes": "String", "date": "Date32", "uuid": "UUID", "TEXT": "String", "Double": "Float64",
}  # fmt: skip
KNOWN_NAMES = frozenset(
    {
        *INTEGER_BITS, *FLOATS, "Decimal", "Bool", "String", "FixedString", "Date", "Date32", "DateTime", "DateTime64",
        "UUID", "IPv4", "IPv6", "Array", "Tuple", "Map", "Nullable", "LowCardinality", "Enum8", "Enum16", "JSON",
        "Nothing",
        *_WORDS,
    }
)  # fmt: skip


@lru_cache(maxsize=4096)
def parse_type(text: str) -> DataType:
    """Read a ClickHouse type; a type this layer knows nothing of is kept as its text."""
    try:
        tokens = list(_tokens(text))
        kind, rest = _parse(tokens, 0)
    except (IndexError, ValueError):
        return DataType(text)
    return kind if rest == len(tokens) else DataType(text)


def is_type(text: str) -> bool:
    """Whether a text is one type by its syntax: safe to be part of a query, whether ClickHouse knows it or not."""
    try:
        tokens = list(_tokens(text))
        return _parse(tokens, 0)[1] == len(tokens)
    except (IndexError, ValueError, RecursionError):
        return False


def user_type(text: str | type) -> DataType:
    """Read a type that a user wrote (`"Int64"`, `int`, `"Nullable(String)"`); unknown names are refused."""
    if isinstance(text, type):
        text = "DateTime64(6)" if text.__name__ == "datetime" else text.__name__
    kind = parse_type(_ALIASES.get(text, text))
    if text == "bytes":
        kind = BYTES
    unknown = next((each.name for each in _walk(kind) if each.name not in KNOWN_NAMES), None)
    if unknown is not None:
        raise DataTypeError(
            f"{unknown!r} is not a type.", remedy="Write a ClickHouse type, for example Int64 or Nullable(String)."
        )
    return kind


def _walk(kind: DataType) -> Iterator[DataType]:
    yield kind
    for arg in kind.args:
        inner = arg[1] if isinstance(arg, tuple) else arg  # pyright: ignore[reportUnknownVariableType]
        if isinstance(inner, DataType):
            yield from _walk(inner)


def _tokens(text: str) -> Iterator[str]:
    position = 0
    text = text.strip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(text)
        yield match.group(1)
        position = match.end()


def _parse(tokens: list[str], at: int) -> tuple[DataType, int]:
    name = tokens[at]
    if not (name[0].isalpha() or name[0] == "_"):
        raise ValueError(name)
    args: list[Any] = []
    at += 1
    if at < len(tokens) and tokens[at] == "(":
        at += 1
        while tokens[at] != ")":
            arg, at = _parse_argument(tokens, at, name)
            args.append(arg)
            if tokens[at] == ",":
                at += 1
        at += 1
    return _build(name, tuple(args)), at


def _parse_argument(tokens: list[str], at: int, owner: str) -> tuple[Any, int]:
    token = tokens[at]
    if token[0] == "'":
        if owner.startswith("Enum"):
            return f"{token} = {tokens[at + 2]}", at + 3
        return token, at + 1
    if token.lstrip("-").isdigit():
        return int(token), at + 1
    if owner in ("Tuple", "Nested") and tokens[at + 1] not in ("(", ",", ")"):
        inner, rest = _parse(tokens, at + 1)
        return (_unquote(token), inner), rest
    return _parse(tokens, at)


def _unquote(token: str) -> str:
    if token[0] not in '`"':
        return token
    return re.sub(r"\\(.)", r"\1", token[1:-1])


def _build(name: str, args: tuple[Any, ...]) -> DataType:
    if name == "Nullable":
        return replace(args[0], nullable=True)
    if name == "LowCardinality":
        return args[0]
    if name in _WORDS:
        return decimal_type(_WORDS[name], args[0])
    return DataType(name, args, nullable=name == "Nothing")


# --- promotion ---------------------------------------------------------------------------------------------------


def integer(signed: bool, bits: int) -> DataType:
    return DataType(f"{'' if signed else 'U'}Int{bits}")


def integer_type(value: int) -> DataType:
    """The smallest integer type that holds a value, unsigned unless it is negative."""
    for bits in (8, 16, 32, 64, 128, 256):
        if value >= 0 and value < 1 << bits:
            return integer(False, bits)
        if value < 0 and value >= -(1 << (bits - 1)):
            return integer(True, bits)
    raise ConversionError(f"The integer {value} is too large for ClickHouse.")


def supertype(left: DataType, right: DataType) -> DataType | None:
    """The smallest type that holds every value of both exactly, or None."""
    nullable = left.nullable or right.nullable
    inner = _supertype(left.required(), right.required())
    return None if inner is None else inner.as_nullable(nullable)


def _supertype(left: DataType, right: DataType) -> DataType | None:
    if left == right or right.is_unknown:
        return left
    if left.is_unknown:
        return right
    if left.is_numeric and right.is_numeric:
        return _numeric_supertype(left, right)
    if left.is_string and right.is_string:
        return STRING
    if left.is_temporal and right.is_temporal:
        return _temporal_supertype(left, right)
    if left.name == "Array" and right.name == "Array":
        element = supertype(left.element, right.element)
        return None if element is None else array_of(element)
    return None


def _numeric_supertype(left: DataType, right: DataType) -> DataType | None:
    if left.is_float or right.is_float:
        return FLOAT64
    if left.is_decimal or right.is_decimal:
        (whole_l, scale_l), (whole_r, scale_r) = _digits(left), _digits(right)
        scale = max(scale_l, scale_r)
        precision = max(whole_l, whole_r) + scale
        return decimal_type(next((each for each in DECIMAL_CLASSES if each >= precision), 76), scale)
    if left.is_signed == right.is_signed:
        return integer(left.is_signed, max(left.bits, right.bits))
    unsigned, signed = (right, left) if left.is_signed else (left, right)
    return integer(True, max(signed.bits, min(unsigned.bits * 2, 256)))


def _digits(kind: DataType) -> tuple[int, int]:
    if kind.is_decimal:
        return kind.args[0] - kind.args[1], kind.args[1]
    return {8: 3, 16: 5, 32: 10, 64: 20}.get(kind.bits, 39), 0


def _temporal_supertype(left: DataType, right: DataType) -> DataType:
    if left.is_date and right.is_date:
        return DATE
    zone = next((z for z in (zone_of(left), zone_of(right)) if z), "")
    return datetime_type(max(precision_of(left), precision_of(right)), zone)


def zone_of(kind: DataType) -> str:
    """The time zone a DateTime type names, or ""."""
    zone = next((arg for arg in kind.args if isinstance(arg, str)), "")
    return zone.strip("'").replace("\\'", "'")


def precision_of(kind: DataType) -> int:
    """Digits after the second; a Date counts as whole seconds."""
    return kind.args[0] if kind.name == "DateTime64" else 0
