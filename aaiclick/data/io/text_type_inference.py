"""Types of values that are written as text, in CSV files, JSON strings and names of partitions.

A type is inferred only if every value of the sample has it exactly; otherwise the column is text. Values after the
sample that do not have the type are errors.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import cast
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from aaiclick.data.errors import ConversionError, IngestError
from aaiclick.data.io.arrow_types import arrow_type, check_range
from aaiclick.data.io.nested_arrays import inner_arrays, map_inner_arrays
from aaiclick.data.types import (
    BOOL,
    DATE,
    DECIMAL_CLASSES,
    FLOAT64,
    INT64,
    STRING,
    UINT64,
    UUID_TYPE,
    DataType,
    datetime_type,
    decimal_type,
    map_inner_types,
)

_DAY = r"\d{4}-\d{2}-\d{2}"
_TIME = r"[T ]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?"
BOOLEAN = re.compile(r"(?i)true|false")
INTEGER = re.compile(r"-?\d+")
NUMBER = re.compile(r"(?i)-?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf|infinity|nan)")
DATE_TEXT = re.compile(_DAY)
DATETIME = re.compile(_DAY + _TIME)
_OFFSET = r"(Z|[+-]\d{2}(:?\d{2})?)"
INSTANT = re.compile(_DAY + _TIME + _OFFSET)
NANOSECONDS = re.compile(r".*\.\d{7,9}.*")
UUID_TEXT = re.compile(r"(?i)[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
LONG_NUMBER = r"(\d\.?){16,}"


@dataclass(frozen=True)
class TextRules:
    """How numbers, dates and times are written."""

    decimal: str = "."
    date_format: str | None = None
    datetime_format: str | None = None
    prefers_decimals: bool = False
    """Whether fractions are Decimal instead of Float64."""


ISO_RULES = TextRules()


# --- inference ---------------------------------------------------------------------------------------------------


def infer_text_type(texts: pa.Array, rules: TextRules = ISO_RULES) -> DataType:
    """Return the type of the texts; String if they are not all of one other type, or if there are none."""
    present = texts.drop_null()
    if not len(present):
        return STRING
    candidates: tuple[tuple[re.Pattern[str], Callable[[pa.Array], DataType | None]], ...] = (
        (BOOLEAN, lambda _: BOOL),
        (INTEGER, _integer_type),
        (NUMBER, lambda values: _fraction_type(values, rules)),
        (DATE_TEXT, lambda values: _valid_type(values, DATE)),
        (DATETIME, lambda values: _valid_type(values, datetime_type(_precision(values)))),
        (INSTANT, lambda values: _valid_type(values, datetime_type(_precision(values), "UTC"))),
        (UUID_TEXT, lambda _: UUID_TYPE),
    )
    if rules.date_format or rules.datetime_format:
        for dtype in (DATE, datetime_type()):
            if _valid_type(present, dtype, rules):
                return dtype
    plain = _with_point(present, rules)
    for pattern, find_type in candidates:
        values = plain if pattern is NUMBER else present
        if _all_match(values, pattern):
            return find_type(values) or STRING
    return STRING


def _all_match(texts: pa.Array, pattern: re.Pattern[str]) -> bool:
    if pattern.fullmatch(texts[0].as_py()) is None:
        return False
    flags = "(?i)" if pattern.pattern.startswith("(?i)") else ""
    expression = f"{flags}^(?:{pattern.pattern.removeprefix('(?i)')})$"
    return bool(pc.all(pc.match_substring_regex(texts, expression)).as_py())


def _integer_type(texts: pa.Array) -> DataType | None:
    digits = max(pc.max(pc.utf8_length(texts)).as_py(), 1)
    if digits < 19:
        return INT64
    values = [int(text) for text in texts.to_pylist()]
    low, high = min(values), max(values)
    if low >= -(1 << 63) and high < 1 << 63:
        return INT64
    if low >= 0 and high < 1 << 64:
        return UINT64
    size = max(len(str(abs(value))) for value in values)
    return _sized_decimal(size, 0)


def _fraction_type(texts: pa.Array, rules: TextRules) -> DataType | None:
    is_finite = pc.match_substring_regex(texts, r"\d")
    if not rules.prefers_decimals and fit_floats(texts):
        return FLOAT64
    if not pc.all(is_finite).as_py():
        return FLOAT64 if rules.prefers_decimals else None
    decimals = [Decimal(text).as_tuple() for text in cast("list[str]", texts.to_pylist())]
    scale = max(max(0, -int(value.exponent)) for value in decimals)
    whole = max(max(0, len(value.digits) + int(value.exponent)) for value in decimals)
    return _sized_decimal(whole + scale, scale)


def fit_floats(texts: pa.Array) -> bool:
    """Whether all numbers are what Float64 shows for them, so that no digit is lost."""
    long_texts = cast("list[str]", texts.filter(pc.match_substring_regex(texts, LONG_NUMBER)).to_pylist())
    differing = [text for text in long_texts if repr(float(text)) != text]
    return all(Decimal(repr(float(text))) == Decimal(text) for text in differing)


def _sized_decimal(precision: int, scale: int) -> DataType | None:
    size = next((size for size in DECIMAL_CLASSES[1:] if size >= precision), None)
    return None if size is None else decimal_type(size, scale)


def _precision(texts: pa.Array) -> int:
    return 9 if pc.any(pc.match_substring_regex(texts, NANOSECONDS.pattern)).as_py() else 6


def _valid_type(texts: pa.Array, dtype: DataType, rules: TextRules = ISO_RULES) -> DataType | None:
    """Return the type if all texts can be converted to it, otherwise None."""
    try:
        convert_text("", texts, dtype, rules)
    except (ConversionError, IngestError):
        return None
    return dtype


def infer_nested_type(array: pa.Array, dtype: DataType) -> DataType:
    """Replace String by date, time or UUID where all texts are such, also inside of lists, structs and maps."""
    if dtype.name == "String" and not dtype.logical:
        inferred = infer_text_type(array)
        return inferred.as_nullable(dtype.nullable) if inferred.is_temporal or inferred == UUID_TYPE else dtype
    if not dtype.is_structure:
        return dtype
    inner = iter(inner_arrays(array))
    if dtype.name == "Map":
        key, value = dtype.args
        return DataType("Map", (key, infer_nested_type(list(inner)[1], value)), dtype.nullable)
    return map_inner_types(dtype, lambda part: infer_nested_type(next(inner), part))


# --- conversion --------------------------------------------------------------------------------------------------


def convert_text(name: str, texts: pa.Array, dtype: DataType, rules: TextRules = ISO_RULES, row: int = 0) -> pa.Array:
    """Convert texts to a type; `row` is the number of rows before them, for error messages."""
    try:
        converted = _convert(texts, dtype, rules)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError):
        raise _conversion_error(name, texts, dtype, rules, row) from None
    check_range(name, pa.chunked_array([converted]), dtype)
    return converted


def _convert(texts: pa.Array, dtype: DataType, rules: TextRules) -> pa.Array:
    arrow = arrow_type(dtype)
    if dtype.name == "String":
        return texts.cast(arrow)
    if dtype.is_float or dtype.is_decimal:
        plain = _with_point(texts, rules)
        if dtype.is_float and not fit_floats(plain):
            raise ValueError
        return plain.cast(arrow)
    if dtype.is_date and rules.date_format:
        return _parse(texts, rules.date_format, pa.timestamp("s")).cast(arrow)
    if pa.types.is_timestamp(arrow):
        return _parse(texts, rules.datetime_format, arrow) if rules.datetime_format else _to_timestamp(texts, arrow)
    if dtype.name == "UUID":
        values = [None if text is None else UUID(text).bytes for text in cast("list[str | None]", texts.to_pylist())]
        return pa.ExtensionArray.from_storage(pa.uuid(), pa.array(values, pa.binary(16)))
    return texts.cast(arrow)


def _with_point(texts: pa.Array, rules: TextRules) -> pa.Array:
    return texts if rules.decimal == "." else pc.replace_substring(texts, rules.decimal, ".")


def _parse(texts: pa.Array, format_text: str, arrow: pa.TimestampType) -> pa.Array:
    return pc.strptime(texts, format=format_text, unit=arrow.unit).cast(arrow)


def _to_timestamp(texts: pa.Array, arrow: pa.TimestampType) -> pa.Array:
    """Cast to timestamps: text with an offset is an instant, text without one is local time of the column's zone."""
    if arrow.tz is None:
        return texts.cast(arrow)
    has_offset = pc.match_substring_regex(texts, _TIME + _OFFSET + "$")
    with_offset, without_offset = pc.if_else(has_offset, texts, None), pc.if_else(has_offset, None, texts)
    local = pc.assume_timezone(without_offset.cast(pa.timestamp(arrow.unit)), arrow.tz)
    return pc.coalesce(with_offset.cast(arrow), local)


def _conversion_error(name: str, texts: pa.Array, dtype: DataType, rules: TextRules, row: int) -> IngestError:
    for position in range(len(texts)):
        try:
            _convert(texts.slice(position, 1), dtype, rules)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError):
            text = texts[position].as_py()
            return IngestError(
                f"row {row + position + 1}: Cannot parse input {text!r:.60} of column {name!r} as {dtype}",
                remedy="Repair the file, or pass schema= or csv=.",
            )
    return IngestError(f"column {name!r} cannot be read as {dtype}")


def convert_nested(name: str, array: pa.Array, dtype: DataType, row: int = 0) -> pa.Array:
    """Convert the texts inside of an array, and in its lists, structs and maps, to a type."""
    if not dtype.is_structure:
        is_text = pa.types.is_string(array.type) and dtype.name != "String"
        return convert_text(name, array, dtype, row=row) if is_text else array
    if arrow_type(dtype) == array.type:
        return array
    return map_inner_arrays(array, dtype, lambda part, part_type: convert_nested(name, part, part_type))
