"""Arrow columns as JSON text, for JSON files and for nested values in CSV files.

Plain values are formatted by Arrow; only nested values and texts with control characters are formatted in Python.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import datetime
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from aaiclick.data.errors import DataError
from aaiclick.data.io.from_arrow import column_values
from aaiclick.data.runtime.tables import Columns
from aaiclick.data.types import DataType, iter_types

_CONTROL = r"[\x00-\x1f\x7f]"


def check_json_type(name: str, dtype: DataType, format_name: str) -> None:
    """Refuse bytes, which JSON and CSV cannot express."""
    if any(part.logical == "bytes" or part.name == "FixedString" for part in iter_types(dtype)):
        raise DataError(
            f"Column {name!r} holds bytes, which {format_name} cannot express.",
            remedy="Use Parquet, Arrow, ORC or Avro, or encode them as text.",
        )


def json_lines(batch: pa.RecordBatch, columns: Columns) -> pa.Array:
    """Return one JSON object per row."""
    parts: list[Any] = []
    for position, (name, dtype) in enumerate(columns):
        start = ("{" if position == 0 else ",") + json.dumps(name, ensure_ascii=False) + ":"
        parts += [start, pc.fill_null(to_json_text(name, batch.column(position), dtype), "null")]
    return pc.binary_join_element_wise(*parts, "}", "")


def to_json_text(name: str, array: pa.Array, dtype: DataType) -> pa.Array:
    """Return each value as JSON text, NULL as NULL."""
    arrow = array.type
    if dtype.logical == "json" or dtype.name == "JSON":
        return array.cast(pa.string())
    if dtype.is_structure or isinstance(arrow, pa.BaseExtensionType):
        return _format_in_python(name, array, dtype)
    if pa.types.is_floating(arrow):
        if pc.any(pc.invert(pc.is_finite(array))).as_py():
            raise _not_finite_error(name)
        return to_written_form(array).cast(pa.string())
    if pa.types.is_boolean(arrow) or pa.types.is_integer(arrow) or pa.types.is_decimal(arrow):
        return array.cast(pa.string())
    texts = to_written_form(array).cast(pa.string())
    if pc.any(pc.match_substring_regex(texts, _CONTROL)).as_py():
        return _format_in_python(name, array, dtype)
    escaped = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    return pc.binary_join_element_wise('"', escaped, '"', "")


def to_written_form(array: pa.Array) -> pa.Array:
    """Return instants in UTC, which are written with `Z`, and Float32 as Float64, which is written with all digits."""
    arrow = array.type
    if pa.types.is_timestamp(arrow) and arrow.tz:
        return array.cast(pa.timestamp(arrow.unit, "UTC"))
    return array.cast(pa.float64()) if arrow == pa.float32() else array


def _format_in_python(name: str, array: pa.Array, dtype: DataType) -> pa.Array:
    values = column_values(pa.chunked_array([array]), dtype)
    try:
        texts = [None if value is None else _encode(value) for value in values]
    except ValueError:
        raise _not_finite_error(name) from None
    return pa.array(texts, pa.string())


def _encode(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool() | str():
            return json.dumps(value, ensure_ascii=False)
        case float() if not math.isfinite(value):
            raise ValueError
        case float():
            return repr(value)
        case dict():
            items = cast("dict[object, object]", value).items()
            return "{" + ",".join(f"{_encode(str(key))}:{_encode(item)}" for key, item in items) + "}"
        case list() | tuple():
            return "[" + ",".join(map(_encode, cast("list[object]", value))) + "]"
        case _:
            return _encode_other(value)


def _encode_other(value: Any) -> str:
    format_value: Callable[[Any], str] = str
    if isinstance(value, datetime):
        format_value = datetime.isoformat
    text = format_value(value)
    return text if isinstance(value, int) or type(value).__name__ == "Decimal" else json.dumps(text, ensure_ascii=False)


def _not_finite_error(name: str) -> DataError:
    return DataError(
        f"Column {name!r} has NaN or infinity, which JSON cannot express.",
        remedy="Use Parquet or CSV, or replace them.",
    )
