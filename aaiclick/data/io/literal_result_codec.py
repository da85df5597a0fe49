"""Codec of literals: small values that are stored as text with the task that returned them, not in a table.

A value of plain JSON types is stored as it is and comes back as it was; anything else is stored as Arrow rows with
their column types. Both can be opened as an Object.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import pyarrow as pa

from aaiclick.data.errors import ColumnNameError, ConversionError
from aaiclick.data.io.to_arrow import ArrowRows, SingleValue, to_arrow_rows
from aaiclick.data.io.untrusted_arrow import read_foreign_stream
from aaiclick.data.runtime.tables import Shape, check_column_names
from aaiclick.data.types import declared_text, is_encodable, parse_type

VALUE_KEY = "value"
ARROW_KEY = "arrow"
MAX_PLAIN_DEPTH = 50
_INTEGERS: Final = frozenset({int})
_FLOATS: Final = frozenset({float})
_BOOLEANS: Final = frozenset({bool})
_TEXTS: Final = frozenset({str})
_SCALAR_TYPES: Final = _INTEGERS | _FLOATS | _BOOLEANS | _TEXTS
_NONE_TYPE: Final = type(None)
_SHAPES: Final[dict[str, Shape]] = {"scalar": "scalar", "column": "column", "table": "table", "record": "record"}


@dataclass(frozen=True, slots=True)
class EncodedLiteral:
    """A stored literal: the `table_id` of its Object, and its encoded value."""

    table_id: str
    text: str

    @property
    def is_plain(self) -> bool:
        """Whether it is a value of JSON types."""
        return self.text.startswith(f'{{"{VALUE_KEY}"')

    def plain_value(self) -> Any:
        return _load_fields(self.text)[VALUE_KEY]

    def rows(self) -> ArrowRows:
        return decode_rows(self.text)


def encode_simple(value: object, max_bytes: int) -> str | None:
    """Encode a scalar, a list of scalars of one type or a dict of scalars; None for others, or if it is too large."""
    if not _has_simple_type(value):
        return None
    text = json.dumps({VALUE_KEY: value})
    return text if len(text) <= max_bytes else None


def encode_converted(value: object, rows: ArrowRows, max_bytes: int) -> str | None:
    """Encode a value that was converted to `rows`; None if it is too large."""
    if not _is_plain(value, MAX_PLAIN_DEPTH):
        return encode_rows(rows, max_bytes)
    text = json.dumps({VALUE_KEY: value})
    return text if len(text) <= max_bytes else None


def convert_value(value: object) -> ArrowRows:
    """Convert a value to rows; a list or dict that cannot be rows or columns becomes one JSON value."""
    try:
        return to_arrow_rows(value)
    except (ConversionError, ColumnNameError):
        if not isinstance(value, dict | list | tuple):
            raise
    return to_arrow_rows(SingleValue(cast("Any", value)))


def encode_rows(rows: ArrowRows, max_bytes: int) -> str | None:
    """Encode rows; None if they need more than `max_bytes`."""
    if rows.table.nbytes > max_bytes:
        return None
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.table.schema) as writer:
        writer.write_table(rows.table)
    text = json.dumps(
        {
            ARROW_KEY: b64encode(sink.getvalue().to_pybytes()).decode(),
            "columns": [(name, declared_text(dtype), dtype.logical) for name, dtype in rows.columns],
            "shape": rows.shape,
        }
    )
    return text if len(text) <= max_bytes else None


def decode_rows(text: str) -> ArrowRows:
    """Decode a literal to rows with their column types."""
    fields = _load_fields(text)
    if VALUE_KEY in fields:
        return convert_value(fields[VALUE_KEY])
    try:
        columns = tuple(
            (str(name), replace(parse_type(dtype), logical=logical)) for name, dtype, logical in fields["columns"]
        )
        rows = read_foreign_stream(b64decode(fields[ARROW_KEY], validate=True))
        shape = _SHAPES[fields["shape"]]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise _unreadable_error() from error
    if len(columns) != len(rows.columns):
        raise _unreadable_error()
    return ArrowRows(rows, columns, shape)


def _load_fields(text: str) -> dict[str, Any]:
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _unreadable_error() from error
    if not isinstance(fields, dict):
        raise _unreadable_error()
    return cast("dict[str, Any]", fields)


def _unreadable_error() -> ConversionError:
    return ConversionError("The stored value is not readable.", remedy="Run the task again that returned it.")


def _has_simple_type(value: object) -> bool:
    """Whether a value is a scalar, a list of scalars of one type, or a dict of scalars, all of which fit a column."""
    value_type = type(value)
    if value_type in _SCALAR_TYPES:
        return _is_simple_scalar(value)
    if value_type is list:
        items = cast("list[object]", value)
        value_types = frozenset(map(type, items)) - {_NONE_TYPE}
        return len(value_types) == 1 and value_types <= _SCALAR_TYPES and _fits_column(items, value_types)
    if value_type is dict and value:
        fields = cast("dict[object, object]", value)
        if not all(_is_simple_scalar(item) for item in fields.values()):
            return False
        try:
            check_column_names(fields)
        except ColumnNameError:
            return False
        return True
    return False


def _is_simple_scalar(value: object) -> bool:
    value_type = type(value)
    return value_type in _SCALAR_TYPES and _fits_column([value], frozenset({value_type}))


def _fits_column(items: Sequence[Any], value_types: frozenset[type]) -> bool:
    if value_types == _INTEGERS:
        present = [item for item in items if item is not None]
        low, high = min(present), max(present)
        return low >= -(1 << 63) and high < (1 << 63)
    return value_types != _TEXTS or all(item is None or is_encodable(item) for item in items)


def _is_plain(value: object, depth: int) -> bool:
    """Whether a value consists of JSON types only, so that it comes back unchanged."""
    value_type = type(value)
    if value is None or value_type in _SCALAR_TYPES:
        return True
    if depth == 0:
        return False
    if value_type is list:
        return all(_is_plain(item, depth - 1) for item in cast("list[object]", value))
    if value_type is dict:
        fields = cast("dict[object, object]", value)
        return all(type(key) is str and _is_plain(item, depth - 1) for key, item in fields.items())
    return False
