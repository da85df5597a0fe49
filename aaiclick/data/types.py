"""ClickHouse data types: parsing, formatting and promotion.

`logical` is the Python type of a String: "" for `str`, "bytes" for `bytes`, "json" for the value of its JSON text.
LowCardinality is a storage option and is dropped when a type is parsed.

`Duration` is a type of aaiclick: a number of microseconds, stored as Int64.

ClickHouse has no NULL for arrays and maps (and older servers none for tuples). A nullable structure is stored in an
array of at most one element: `Nullable(Array(Int64))` is stored as `Array(Array(Int64))`, and NULL as `[]`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, cast

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
        text = self.name + (f"({', '.join(_format_argument(arg) for arg in self.args)})" if self.args else "")
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
    def is_duration(self) -> bool:
        return self.name == "Duration"

    @property
    def is_summable(self) -> bool:
        return self.is_numeric or self.is_bool or self.is_duration

    @property
    def is_date(self) -> bool:
        return self.name in ("Date", "Date32")

    @property
    def is_structure(self) -> bool:
        return self.name in STRUCTURES

    @property
    def is_nullable_structure(self) -> bool:
        """Whether it is stored in an array of at most one element."""
        return self.nullable and self.is_structure

    @property
    def is_unknown(self) -> bool:
        """Whether it is the type of an untyped NULL."""
        return self.name == "Nothing"

    @property
    def element(self) -> DataType:
        return self.args[0] if self.name == "Array" else NOTHING

    def as_nullable(self, nullable: bool = True) -> DataType:
        """Return the type with or without NULLs; arrays, tuples and maps keep theirs, see `storage_type`."""
        if self.is_structure or self.nullable == nullable:
            return self
        return replace(self, nullable=nullable)

    def as_required(self) -> DataType:
        return self.as_nullable(False)


def _format_argument(arg: object) -> str:
    if isinstance(arg, tuple):
        name, inner = arg  # pyright: ignore[reportUnknownVariableType]
        return f"{quote_name(str(name))} {inner}"  # pyright: ignore[reportUnknownArgumentType]
    return str(arg)


def is_encodable(text: str) -> bool:
    """Whether a string can be encoded as UTF-8; a Python string may contain lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def quote_name(name: str) -> str:
    """Quote any text as a ClickHouse identifier; backslashes and backticks are escaped."""
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def quote_text(text: str) -> str:
    """Quote any text as a ClickHouse string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


BOOL = DataType("Bool")
INT32 = DataType("Int32")
INT64 = DataType("Int64")
INT128 = DataType("Int128")
UINT8 = DataType("UInt8")
UINT32 = DataType("UInt32")
UINT64 = DataType("UInt64")
FLOAT64 = DataType("Float64")
STRING = DataType("String")
BYTES = DataType("String", logical="bytes")
DATE = DataType("Date32")
DURATION = DataType("Duration")
UUID_TYPE = DataType("UUID")
NOTHING = DataType("Nothing", nullable=True)


def array_of(element: DataType) -> DataType:
    return DataType("Array", (element,))


def datetime_type(precision: int = 6, zone: str = "") -> DataType:
    return DataType("DateTime64", (precision, quote_text(zone)) if zone else (precision,))


def decimal_type(precision: int, scale: int) -> DataType:
    return DataType("Decimal", (precision, scale))


# --- storage -----------------------------------------------------------------------------------------------------


def map_inner_types(dtype: DataType, change: Callable[[DataType], DataType]) -> DataType:
    """Return the type with its inner types changed."""
    return replace(
        dtype,
        args=tuple(
            (arg[0], change(arg[1])) if isinstance(arg, tuple) else change(arg) if isinstance(arg, DataType) else arg
            for arg in cast("tuple[tuple[str, DataType] | DataType | int | str, ...]", dtype.args)
        ),
    )


def iter_types(dtype: DataType) -> Iterator[DataType]:
    """Yield a type and its inner types."""
    yield dtype
    for arg in cast("tuple[object, ...]", dtype.args):
        inner = cast("tuple[str, object]", arg)[1] if isinstance(arg, tuple) else arg
        if isinstance(inner, DataType):
            yield from iter_types(inner)


def storage_type(dtype: DataType) -> DataType:
    """Return the ClickHouse type of a column of durations, or of structures that may be NULL."""
    if dtype.is_duration:
        return INT64.as_nullable(dtype.nullable)
    inner = map_inner_types(dtype, storage_type)
    return array_of(replace(inner, nullable=False)) if dtype.is_nullable_structure else inner


def declared_text(dtype: DataType) -> str:
    """Return the type as text that `parse_type` reads back, with what ClickHouse's own types cannot express."""
    if dtype.logical == "bytes":
        return "Nullable(Bytes)" if dtype.nullable else "Bytes"
    inner = map_inner_types(dtype, lambda part: DataType(declared_text(part)))
    return str(inner)


def needs_declaration(dtype: DataType) -> bool:
    """Whether ClickHouse's type of the column does not tell the whole type."""
    return any(
        part.is_nullable_structure or part.is_duration or (part.logical and part is not dtype)
        for part in iter_types(dtype)
    )


# --- parsing -----------------------------------------------------------------------------------------------------

_TOKEN = re.compile(r"\s*(`(?:\\.|``|[^`\\])*`|'(?:\\.|''|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|[A-Za-z_][\w.]*|-?\d+|[(),=])")
_DECIMAL_ALIASES = {"Decimal32": 9, "Decimal64": 18, "Decimal128": 38, "Decimal256": 76}
_ALIASES = {
    "int": "Int64", "float": "Float64", "str": "String", "string": "String", "bool": "Bool", "Boolean": "Bool",
    "bytes": "String", "date": "Date32", "timedelta": "Duration", "uuid": "UUID", "TEXT": "String", "Double": "Float64",
}  # fmt: skip
TYPE_NAMES = frozenset(
    {
        *INTEGER_BITS, *FLOATS, "Decimal", "Bool", "String", "FixedString", "Date", "Date32", "DateTime", "DateTime64",
        "UUID", "IPv4", "IPv6", "Duration", "Array", "Tuple", "Map", "Nullable", "LowCardinality", "Enum8", "Enum16",
        "JSON", "Nothing",
        *_DECIMAL_ALIASES,
    }
)  # fmt: skip


@lru_cache(maxsize=4096)
def parse_type(text: str) -> DataType:
    """Parse a ClickHouse type; an unknown type keeps its text as its name."""
    try:
        tokens = list(_iter_tokens(text))
        dtype, rest = _parse_tokens(tokens, 0)
    except (IndexError, ValueError):
        return DataType(text)
    return dtype if rest == len(tokens) else DataType(text)


def is_type(text: str) -> bool:
    """Whether a text has the syntax of one type, so that it is safe in a query."""
    try:
        tokens = list(_iter_tokens(text))
        return _parse_tokens(tokens, 0)[1] == len(tokens)
    except (IndexError, ValueError, RecursionError):
        return False


def user_type(text: str | type) -> DataType:
    """Parse a type given by a user (`"Int64"`, `int`, `"Nullable(String)"`); raise DataTypeError if it is unknown."""
    if not isinstance(text, str | type):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DataTypeError(f"{text!r:.60} is not a type.", remedy='For example int, str or "Nullable(Int64)".')
    if isinstance(text, type):
        text = "DateTime64(6)" if text.__name__ == "datetime" else text.__name__
    dtype = parse_type(_ALIASES.get(text, text))
    if text == "bytes":
        dtype = BYTES
    unknown = next((part.name for part in iter_types(dtype) if part.name not in TYPE_NAMES), None)
    if unknown is not None:
        raise DataTypeError(
            f"{unknown!r} is not a type.", remedy="Write a ClickHouse type, for example Int64 or Nullable(String)."
        )
    return dtype


def _iter_tokens(text: str) -> Iterator[str]:
    position = 0
    text = text.strip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(text)
        yield match.group(1)
        position = match.end()


def _parse_tokens(tokens: list[str], position: int) -> tuple[DataType, int]:
    name = tokens[position]
    if not (name[0].isalpha() or name[0] == "_"):
        raise ValueError(name)
    args: list[object] = []
    position += 1
    if position < len(tokens) and tokens[position] == "(":
        position += 1
        while tokens[position] != ")":
            arg, position = _parse_argument(tokens, position, name)
            args.append(arg)
            if tokens[position] == ",":
                position += 1
        position += 1
    return _build_type(name, tuple(args)), position


def _parse_argument(tokens: list[str], position: int, owner: str) -> tuple[object, int]:
    token = tokens[position]
    if token[0] == "'":
        if owner.startswith("Enum"):
            return f"{token} = {tokens[position + 2]}", position + 3
        return token, position + 1
    if token.lstrip("-").isdigit():
        return int(token), position + 1
    if owner in ("Tuple", "Nested") and tokens[position + 1] not in ("(", ",", ")"):
        inner, rest = _parse_tokens(tokens, position + 1)
        return (_unquote_name(token), inner), rest
    return _parse_tokens(tokens, position)


def _unquote_name(token: str) -> str:
    if token[0] not in '`"':
        return token
    return re.sub(r"\\(.)", r"\1", token[1:-1])


def _build_type(name: str, args: tuple[Any, ...]) -> DataType:
    if name == "Nullable":
        return replace(args[0], nullable=True)
    if name == "LowCardinality":
        return args[0]
    if name == "Bytes":
        return BYTES
    if name in _DECIMAL_ALIASES:
        return decimal_type(_DECIMAL_ALIASES[name], args[0])
    return DataType(name, args, nullable=name == "Nothing")


# --- promotion ---------------------------------------------------------------------------------------------------


def sized_integer_type(signed: bool, bits: int) -> DataType:
    return DataType(f"{'' if signed else 'U'}Int{bits}")


def smallest_integer_type(value: int) -> DataType:
    """Return the smallest integer type that holds a value, unsigned unless it is negative."""
    for bits in (8, 16, 32, 64, 128, 256):
        if value >= 0 and value < 1 << bits:
            return sized_integer_type(False, bits)
        if value < 0 and value >= -(1 << (bits - 1)):
            return sized_integer_type(True, bits)
    raise ConversionError(f"The integer {value} is too large for ClickHouse.")


def supertype(left: DataType, right: DataType) -> DataType | None:
    """Return the type of a column that holds values of both types, or None.

    An integer with a float becomes a float. UInt64 with a signed integer becomes Int64, since Arrow and data frames
    have no wider integers; casts to it are checked.
    """
    if left.name == "Array" and right.name == "Array" and left != right:
        element = supertype(left.element, right.element)
        return None if element is None else array_of(element)
    result = exact_supertype(left, right)
    if result is not None and result.as_required() == INT128 and max(left.bits, right.bits) == 64:
        return INT64.as_nullable(result.nullable)
    return result


def exact_supertype(left: DataType, right: DataType) -> DataType | None:
    """Return the smallest type that holds every value of both types, or None; integers become Int128 if necessary."""
    nullable = left.nullable or right.nullable
    inner = _required_supertype(left.as_required(), right.as_required())
    return None if inner is None else inner.as_nullable(nullable)


def _required_supertype(left: DataType, right: DataType) -> DataType | None:
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
        element = exact_supertype(left.element, right.element)
        return None if element is None else array_of(element)
    return None


def _numeric_supertype(left: DataType, right: DataType) -> DataType | None:
    if left.is_float or right.is_float:
        return FLOAT64
    if left.is_decimal or right.is_decimal:
        (whole_l, scale_l), (whole_r, scale_r) = _decimal_digits(left), _decimal_digits(right)
        scale = max(scale_l, scale_r)
        precision = max(whole_l, whole_r) + scale
        return decimal_type(next((size for size in DECIMAL_CLASSES if size >= precision), 76), scale)
    if left.is_signed == right.is_signed:
        return sized_integer_type(left.is_signed, max(left.bits, right.bits))
    unsigned, signed = (right, left) if left.is_signed else (left, right)
    return sized_integer_type(True, max(signed.bits, min(unsigned.bits * 2, 256)))


def _decimal_digits(dtype: DataType) -> tuple[int, int]:
    if dtype.is_decimal:
        return dtype.args[0] - dtype.args[1], dtype.args[1]
    return integer_digits(dtype), 0


def integer_digits(dtype: DataType) -> int:
    """Return the largest number of decimal digits of an integer type."""
    return {8: 3, 16: 5, 32: 10, 64: 20}.get(dtype.bits, 39)


def _temporal_supertype(left: DataType, right: DataType) -> DataType | None:
    if left.is_date and right.is_date:
        return DATE
    if bool(zone_of(left)) != bool(zone_of(right)):
        return None
    zone = next((z for z in (zone_of(left), zone_of(right)) if z), "")
    return datetime_type(max(precision_of(left), precision_of(right)), zone)


def zone_of(dtype: DataType) -> str:
    """Return the time zone of a DateTime type, or ""."""
    zone = next((arg for arg in dtype.args if isinstance(arg, str)), "")
    return zone.strip("'").replace("\\'", "'")


def precision_of(dtype: DataType) -> int:
    """Return the number of fractional digits of a second; 0 for Date and DateTime."""
    return dtype.args[0] if dtype.name == "DateTime64" else 0
