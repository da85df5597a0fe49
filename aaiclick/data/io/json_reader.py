"""Reader of JSON lines and JSON arrays of objects.

Types are those that `create_object_from_value` would choose for the rows of the sample, and text that is a date, a time
or a UUID in all rows has that type. Regular lines are parsed by pyarrow, others by Python.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from aaiclick.data.errors import ConversionError, IngestError
from aaiclick.data.io.arrow_types import arrow_type
from aaiclick.data.io.byte_streams import OpenFile, detect_encoding
from aaiclick.data.io.file_readers import FileReader
from aaiclick.data.io.nested_arrays import field_names, inner_arrays, inner_types
from aaiclick.data.io.text_type_inference import convert_nested, fit_floats, infer_nested_type
from aaiclick.data.io.to_arrow import to_arrow_rows
from aaiclick.data.types import DataType, iter_types, map_inner_types

SAMPLE_BYTES = 1 << 20
BLOCK_BYTES = 4 << 20
BATCH_ROWS = 10_000
VALUE = "value"
LONG_NUMBER = re.compile(rb"(?<![\w.])(?=[\d.]{16})\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])")
"""Numbers with at least 16 digits, of which a Float64 may lose some."""

TEXT_FORMS = ("Date", "Date32", "DateTime", "DateTime64", "UUID")


class JsonReader(FileReader):
    is_text: ClassVar[bool] = True

    def __init__(self, path: Path, compression: str | None) -> None:
        self._path = path
        self._compression = compression
        with OpenFile(path, compression) as file:
            sample = file.read_sample(SAMPLE_BYTES)
        self._encoding = detect_encoding(sample)
        with OpenFile(path, compression, self._encoding) as file:
            rows = list(islice(_iter_rows(file.stream), _count_lines(sample)))
        if not rows:
            raise IngestError("is empty, so it has no columns")
        names = list(dict.fromkeys(name for row in rows for name in row))
        self.columns = tuple((name, infer_json_type([row.get(name) for row in rows])) for name in names)
        self._is_lines = sample.lstrip()[:1] == b"{"

    def iter_tables(self, columns: Mapping[str, DataType]) -> Iterator[pa.Table]:
        if self._is_lines and not any(
            dtype.logical == "json" or any(part.name == "Map" for part in iter_types(dtype))
            for dtype in columns.values()
        ):
            yield from self._parse_lines(columns)
            return
        with OpenFile(self._path, self._compression, self._encoding) as file:
            yield from _parse_rows(_iter_rows(file.stream), columns, 0)

    def _parse_lines(self, columns: Mapping[str, DataType]) -> Iterator[pa.Table]:
        schema = pa.schema([(name, _parsed_type(dtype)) for name, dtype in columns.items()])
        row, has_floats = 0, any(part.is_float for dtype in columns.values() for part in iter_types(dtype))
        with OpenFile(self._path, self._compression, self._encoding) as file:
            for block in _iter_blocks(file.stream):
                try:
                    options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
                    read_options = pj.ReadOptions(use_threads=False, block_size=len(block) + 1)
                    parsed = pj.read_json(pa.BufferReader(block), read_options, options)
                except pa.ArrowInvalid:  # irregular lines: Python parses them, or says what is wrong
                    tables = _parse_rows(_iter_rows(io.BytesIO(block)), columns, row)
                else:
                    loses_digits = has_floats and _loses_digits(block, parsed)
                    tables = (
                        _parse_rows(_iter_rows(io.BytesIO(block)), columns, row)
                        if loses_digits
                        else iter([_convert_table(parsed, columns, row)])
                    )
                for table in tables:
                    yield table
                    row += table.num_rows


def _loses_digits(block: bytes, parsed: pa.Table) -> bool:
    """Whether a number of the block may have been rounded to a Float64; texts that look like one count too."""
    numbers = pa.array([text.decode() for text in LONG_NUMBER.findall(block)], pa.string())
    is_fraction = pc.match_substring_regex(numbers, r"[.eE]")
    if not fit_floats(numbers.filter(is_fraction)):
        return True
    has_long_integers = len(numbers) > 0 and not pc.all(is_fraction).as_py()
    return has_long_integers and any(_has_large_floats(chunk) for column in parsed.columns for chunk in column.chunks)


def _has_large_floats(values: pa.Array) -> bool:
    """Whether there are floats, also in lists and structs, from which on integers are not exact."""
    if pa.types.is_floating(values.type):
        return bool((np.abs(values.to_numpy(zero_copy_only=False)) >= 1 << 53).any())
    is_nested = pa.types.is_list(values.type) or pa.types.is_struct(values.type)
    return is_nested and any(map(_has_large_floats, inner_arrays(values)))


# --- types -------------------------------------------------------------------------------------------------------


def infer_json_type(values: list[Any]) -> DataType:
    """Return the type of the values of a column; columns are nullable, since later rows may have NULLs."""
    present = [value for value in values if value is not None]
    if not present:
        return DataType("String", nullable=True, logical="json")
    if any(isinstance(value, Decimal) for value in present):
        values = [Decimal(str(value)) if type(value) in (int, float) else value for value in values]
    if all(type(value) is int for value in present) and not -(1 << 63) <= min(present) <= max(present) < 1 << 64:
        values = [None if value is None else Decimal(value) for value in values]
    try:
        rows = to_arrow_rows({VALUE: values}, streamed=True)
    except ConversionError:
        return DataType("String", nullable=True, logical="json")
    ((_, dtype),) = rows.columns
    if dtype.logical or not any(part.name == "String" for part in iter_types(dtype)):
        return dtype
    return infer_nested_type(pa.array(values, arrow_type(dtype)), dtype)


def infer_json_column(texts: pa.Array) -> DataType | None:
    """Return the type of texts that are all JSON lists or objects, otherwise None."""
    present = cast("list[str]", texts.drop_null().to_pylist())
    if not present or not all(text[:1] in "[{" and text[-1:] in "]}" for text in present if text) or "" in present:
        return None
    try:
        return infer_json_type([None if text is None else _loads(text) for text in texts.to_pylist()])
    except ValueError:
        return None


def parse_json_column(name: str, texts: pa.Array, dtype: DataType, row: int) -> pa.Array:
    """Parse texts that are JSON to a type."""
    values: list[Any] = []
    for position, text in enumerate(cast("list[str | None]", texts.to_pylist()), row + 1):
        try:
            values.append(None if text is None else _loads(text))
        except ValueError:
            raise IngestError(
                f"row {position}: Cannot parse input {text!r:.60} of column {name!r} as {dtype}"
            ) from None
    return _to_array(name, values, dtype, row)


def _parsed_type(dtype: DataType) -> pa.DataType:
    """Return the Arrow type of a value as JSON has it: dates, times and UUIDs are text."""
    return arrow_type(_as_parsed(dtype))


def _as_parsed(dtype: DataType) -> DataType:
    return DataType("String") if dtype.name in TEXT_FORMS else map_inner_types(dtype, _as_parsed)


# --- rows --------------------------------------------------------------------------------------------------------


def _count_lines(sample: bytes) -> int | None:
    """Return the number of complete lines in a sample, or None if it is the whole file."""
    return None if len(sample) < SAMPLE_BYTES else max(sample.count(b"\n"), 1_000)


def _parse_number(text: str) -> float | Decimal:
    """Parse a fraction: Decimal if Float64 would lose digits."""
    number = float(text)
    return number if len(text) < 17 or Decimal(repr(number)) == Decimal(text) else Decimal(text)


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("an object has two values with one name")
    return values


_DECODER = json.JSONDecoder(parse_float=_parse_number, object_pairs_hook=_refuse_duplicates)


def _loads(text: str) -> Any:
    return _DECODER.decode(text)


def _iter_rows(stream: io.RawIOBase | io.BytesIO) -> Iterator[dict[str, Any]]:
    """Yield the objects of JSON lines or of one JSON array."""
    buffer, number = "", 0
    reader = io.TextIOWrapper(io.BufferedReader(cast("io.RawIOBase", stream), BLOCK_BYTES), encoding="utf-8")
    while True:
        piece = _read_text(reader)
        buffer += piece
        position = 0
        while True:
            position = _skip_separators(buffer, position)
            if position == len(buffer):
                break
            try:
                value, end = _DECODER.raw_decode(buffer, position)
            except ValueError as error:
                if piece:
                    break
                raise IngestError(f"row {number + 1}: {error}") from None
            if end == len(buffer) and piece:
                break  # a number may go on
            number += 1
            if not isinstance(value, dict):
                raise IngestError(
                    f"row {number}: {buffer[position:end]!r:.60} is not an object",
                    remedy='Write rows as {"name": value}.',
                )
            yield cast("dict[str, Any]", value)
            position = end
        buffer = buffer[position:]
        if not piece:
            return


def _read_text(reader: io.TextIOWrapper) -> str:
    try:
        return reader.read(1 << 20)
    except UnicodeDecodeError:
        raise IngestError("is not UTF-8 text", remedy="Convert it to UTF-8.") from None


def _skip_separators(buffer: str, position: int) -> int:
    """Skip white space, and the brackets and commas of an array around the rows."""
    while position < len(buffer) and buffer[position] in " \t\r\n,[]":
        position += 1
    return position


def _iter_blocks(stream: io.RawIOBase) -> Iterator[bytes]:
    """Yield blocks of whole lines."""
    rest = b""
    reader = io.BufferedReader(stream, BLOCK_BYTES)
    while piece := reader.read(BLOCK_BYTES):
        piece = rest + piece
        end = piece.rfind(b"\n") + 1
        if end:
            yield piece[:end]
        rest = piece[end:]
    if rest.strip():
        yield rest


def _parse_rows(rows: Iterator[dict[str, Any]], columns: Mapping[str, DataType], row: int) -> Iterator[pa.Table]:
    while batch := list(islice(rows, BATCH_ROWS)):
        for position, values in enumerate(batch, row + 1):
            if unknown := next((name for name in values if name not in columns), None):
                raise IngestError(
                    f"row {position}: {unknown!r} is not among the columns of the first rows",
                    remedy="Name it in schema=, so that it is a column.",
                )
        yield pa.table(
            {
                name: _to_array(name, [values.get(name) for values in batch], dtype, row)
                for name, dtype in columns.items()
            }
        )
        row += len(batch)


def _convert_table(table: pa.Table, columns: Mapping[str, DataType], row: int) -> pa.Table:
    return pa.table(
        {
            name: pa.chunked_array([convert_nested(name, chunk, dtype, row) for chunk in table.column(name).chunks])
            for name, dtype in columns.items()
        }
    )


def _to_array(name: str, values: list[Any], dtype: DataType, row: int) -> pa.Array:
    if dtype.logical == "json":
        return pa.array([None if value is None else json.dumps(value, default=str) for value in values], pa.string())
    for position, value in enumerate(values, row + 1):
        if (mismatch := _find_mismatch(value, dtype)) is not None:
            raise IngestError(f"row {position}: Cannot parse input {mismatch} of column {name!r} as {dtype}")
    if dtype.is_decimal:
        values = [None if value is None else Decimal(str(value)) for value in values]
    if dtype.name == "Map":
        values = [None if value is None else list(value.items()) for value in values]
    try:
        array = pa.array(values, _parsed_type(dtype))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise IngestError(f"column {name!r} cannot be read as {dtype}: {error}") from None
    return convert_nested(name, array, dtype, row)


def _find_mismatch(value: Any, dtype: DataType) -> str | None:
    """Return the part of a value that has not the type; Arrow would truncate a fraction and drop an unknown field."""
    if value is None:
        return None
    if type(value) not in _python_types(dtype):
        return f"{value!r:.60}"
    if dtype.name == "Array":
        pairs = [(item, dtype.element) for item in value]
    elif dtype.name == "Map":
        pairs = [(item, dtype.args[1]) for item in value.values()]
    elif dtype.name == "Tuple":
        fields = dict(zip(field_names(dtype), inner_types(dtype), strict=True))
        if unknown := next((key for key in value if key not in fields), None):
            return f"{unknown!r}, which is an unknown field,"
        pairs = [(item, fields[key]) for key, item in value.items()]
    else:
        return None
    return next((text for item, inner in pairs if (text := _find_mismatch(item, inner)) is not None), None)


def _python_types(dtype: DataType) -> tuple[type, ...]:
    if dtype.is_structure:
        return (list,) if dtype.name == "Array" else (dict,)
    if dtype.is_integer:
        return (int,)
    if dtype.is_float:
        return (float, int)
    if dtype.is_decimal:
        return (Decimal, int, float)
    return (bool,) if dtype.is_bool else (str,)
