"""Which values may become which others on their way into a column that is already there.

A wider number is the same value; text of a number, a truth value of a count, the day of a moment are others. Arrow
casts all of these without a word, so they are told apart here.
"""

# pyarrow ships no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportUnknownLambdaType=false

from __future__ import annotations

from typing import Any

import pyarrow as pa

from aaiclick.data.arrow import arrow_type
from aaiclick.data.types import DataType, precision_of


def foreign(given: Any, wanted: Any, place: str = "") -> str | None:
    """Why values of one Arrow type are no values of another, or None; `place` is the field of a struct."""
    source, target = _family(given), _family(wanted)
    if source == "NULL":
        return None
    if source != target and (source, target) not in _EXACT:
        return f"{place}{source}, not {target}"
    if target == "dict":
        names = {field.name for field in wanted}
        extra = next((field.name for field in given if field.name not in names), None)
        if extra is not None:
            return f"{place}a dict with the field {extra!r}, which the column has not"
        fields = [(field.type, wanted.field(field.name).type, f"{place}{field.name}: ") for field in given]
        return next((said for each in fields if (said := foreign(*each))), None)
    if target == "list":
        return foreign(given.value_type, wanted.value_type, f"{place}a list of ")
    if target == "map":
        return foreign(given.key_type, wanted.key_type, f"{place}a map from ") or foreign(
            given.item_type, wanted.item_type, f"{place}a map to "
        )
    return None


def altered(own: DataType, kind: DataType) -> str | None:
    """Why ClickHouse would store other values than it is given, or None: it cuts off digits without a word."""
    if kind.logical == "json":
        return None
    if own.is_float and kind.is_integer:
        return "fractions would be cut off"
    if own.is_decimal and kind.is_decimal and own.args[1] > kind.args[1]:
        return "digits after the point would be cut off"
    if own.is_temporal and kind.is_temporal and precision_of(own) > precision_of(kind):
        return "parts of a second would be cut off"
    return foreign(arrow_type(own), arrow_type(kind))


_EXACT = frozenset({("integer", "float"), ("float", "integer"), ("integer", "Decimal")})
"""Arrow's casts between these refuse what the other cannot hold exactly."""


def _family(kind: Any) -> str:
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType) and not isinstance(kind, pa.UuidType):
        return _family(kind.storage_type)
    if types.is_timestamp(kind):
        return "datetime with a time zone" if kind.tz else "datetime"
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind) or types.is_list_view(kind):
        return "list"
    return next((word for word, matches in _FAMILIES if matches(kind)), str(kind))


_FAMILIES: tuple[tuple[str, Any], ...] = (
    ("UUID", lambda kind: isinstance(kind, pa.UuidType)),
    ("NULL", pa.types.is_null),
    ("bool", pa.types.is_boolean),
    ("integer", pa.types.is_integer),
    ("float", pa.types.is_floating),
    ("Decimal", pa.types.is_decimal),
    ("date", pa.types.is_date),
    ("map", pa.types.is_map),
    ("dict", pa.types.is_struct),
    ("text", lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)),
    (
        "bytes",
        lambda kind: (
            pa.types.is_binary(kind)
            or pa.types.is_large_binary(kind)
            or pa.types.is_binary_view(kind)
            or pa.types.is_fixed_size_binary(kind)
        ),
    ),
)
