"""Checks that values appended to an existing column are not changed by a cast.

A wider number keeps its value; number to text, count to boolean or timestamp to date do not. Arrow and ClickHouse cast
all of these without an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from aaiclick.data.io.arrow_types import arrow_type
from aaiclick.data.types import DataType, precision_of


def find_mismatch(source: Any, target: Any, path: str = "") -> str | None:
    """Describe why values of an Arrow type cannot be stored as another, or return None; `path` is a nested field."""
    source_family, target_family = _type_family(source), _type_family(target)
    if source_family == "NULL":
        return None
    if source_family != target_family and (source_family, target_family) not in _EXACT_CASTS:
        return f"{path}{source_family}, not {target_family}"
    if target_family == "dict":
        names = {field.name for field in target}
        extra = next((field.name for field in source if field.name not in names), None)
        if extra is not None:
            return f"{path}a dict with the field {extra!r}, which the column does not have"
        fields = [(field.type, target.field(field.name).type, f"{path}{field.name}: ") for field in source]
        return next((difference for pair in fields if (difference := find_mismatch(*pair))), None)
    if target_family == "list":
        return find_mismatch(source.value_type, target.value_type, f"{path}a list of ")
    if target_family == "map":
        return find_mismatch(source.key_type, target.key_type, f"{path}a map from ") or find_mismatch(
            source.item_type, target.item_type, f"{path}a map to "
        )
    return None


def find_lossy_cast(source: DataType, target: DataType) -> str | None:
    """Describe what ClickHouse would lose in a cast, or return None: it truncates digits without an error."""
    if target.logical == "json":
        return None
    if source.is_float and target.is_integer:
        return "fractions would be truncated"
    if source.is_decimal and target.is_decimal and source.args[1] > target.args[1]:
        return "decimal places would be truncated"
    if source.is_temporal and target.is_temporal and precision_of(source) > precision_of(target):
        return "fractions of a second would be truncated"
    return find_mismatch(arrow_type(source), arrow_type(target))


_EXACT_CASTS = frozenset({("integer", "float"), ("float", "integer"), ("integer", "Decimal")})
"""Casts in which Arrow itself refuses inexact values."""


def _type_family(arrow: pa.DataType) -> str:
    types = pa.types
    if isinstance(arrow, pa.BaseExtensionType) and not isinstance(arrow, pa.UuidType):
        return _type_family(arrow.storage_type)
    if types.is_timestamp(arrow):
        return "datetime with a time zone" if arrow.tz else "datetime"
    if (
        types.is_list(arrow)
        or types.is_large_list(arrow)
        or types.is_fixed_size_list(arrow)
        or types.is_list_view(arrow)
    ):
        return "list"
    return next((name for name, matches in _FAMILIES if matches(arrow)), str(arrow))


def _is_bytes(arrow: pa.DataType) -> bool:
    return (
        pa.types.is_binary(arrow)
        or pa.types.is_large_binary(arrow)
        or pa.types.is_binary_view(arrow)
        or pa.types.is_fixed_size_binary(arrow)
    )


_FAMILIES: tuple[tuple[str, Callable[[pa.DataType], bool]], ...] = (
    ("UUID", lambda arrow: isinstance(arrow, pa.UuidType)),
    ("NULL", pa.types.is_null),
    ("bool", pa.types.is_boolean),
    ("integer", pa.types.is_integer),
    ("float", pa.types.is_floating),
    ("Decimal", pa.types.is_decimal),
    ("date", pa.types.is_date),
    ("duration", pa.types.is_duration),
    ("map", pa.types.is_map),
    ("dict", pa.types.is_struct),
    (
        "text",
        lambda arrow: pa.types.is_string(arrow) or pa.types.is_large_string(arrow) or pa.types.is_string_view(arrow),
    ),
    ("bytes", _is_bytes),
)
