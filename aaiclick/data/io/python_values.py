"""Python values of a column: checks that they have one type, and conversion to structures and JSON text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, cast
from uuid import UUID

import pyarrow as pa

from aaiclick.data.errors import ConversionError
from aaiclick.data.expressions.literals import zone_name
from aaiclick.data.io.arrow_types import arrow_type
from aaiclick.data.io.nested_arrays import field_names, inner_types
from aaiclick.data.types import DataType

_PYTHON_TYPES: tuple[tuple[str, tuple[type, ...]], ...] = (
    ("bool", (bool,)),
    ("number", (int, float)),
    ("Decimal", (Decimal,)),
    ("str", (str,)),
    ("bytes", (bytes, bytearray)),
    ("datetime", (datetime,)),
    ("date", (date,)),
    ("timedelta", (timedelta,)),
    ("UUID", (UUID,)),
    ("dict", (Mapping,)),
    ("list", (list, tuple)),
)
_SIMPLE_TYPES: frozenset[type] = frozenset({bool, int, float, Decimal, str, bytes, date, timedelta, UUID})
"""Types that need no check per value if all values have the same one."""


def check_single_type(name: str, present: list[Any]) -> None:
    """Refuse mixed types that Arrow would unify silently (True and 2, naive and aware) or report less clearly."""
    if len(types := set(map(type, present))) == 1 and types <= _SIMPLE_TYPES:
        return  # the usual case, without a loop over the values
    first_type: str | None = None
    has_large_integer = has_float = False
    for position, value in enumerate(present):
        value = value.item() if is_numpy_scalar(value) else value
        if isinstance(value, time):
            raise ConversionError(
                f"Column {name!r} holds a time of day, which has no ClickHouse type.",
                remedy="Use a timedelta since midnight.",
            )
        type_name = next((label for label, types in _PYTHON_TYPES if isinstance(value, types)), type(value).__name__)
        if type_name == "datetime" and value.tzinfo is not None:
            type_name = "datetime with a time zone"
        first_type = first_type or type_name
        if type_name != first_type:
            raise ConversionError(
                f"Column {name!r} mixes {first_type} and {type_name} (value {position}: {value!r:.60}).",
                remedy="Make its values of one kind.",
            )
        if type_name == "number":
            has_large_integer = has_large_integer or (isinstance(value, int) and abs(value) > 1 << 53)
            has_float = has_float or isinstance(value, float)
    if has_large_integer and has_float:
        raise ConversionError(
            f"Column {name!r} mixes fractions with integers beyond 2**53, which a float cannot hold.",
            remedy="Use Decimal.",
        )


def have_same_structure(values: list[Any]) -> bool:
    """Whether nested values all have the same structure, so that a Tuple or Array can store them exactly."""
    if isinstance(values[0], Mapping):
        keys = list(cast("Mapping[Any, Any]", values[0]))
        if not keys or any(
            not isinstance(item, Mapping) or list(cast("Mapping[str, Any]", item)) != keys for item in values
        ):
            return False
        return all(isinstance(key, str) and _have_same_inner_structure([item[key] for item in values]) for key in keys)
    if isinstance(values[0], list | tuple):
        if any(not isinstance(item, list | tuple) for item in values):
            return False
        inner = [item for value in values for item in value]
        return not inner or _have_same_inner_structure(inner)
    return True


def _have_same_inner_structure(values: list[Any]) -> bool:
    present = [item for item in values if item is not None]
    if present and isinstance(present[0], Mapping | list | tuple):
        return have_same_structure(present)
    type_names = {
        next((name for name, types in _PYTHON_TYPES if isinstance(item, types)), type(item).__name__)
        for item in present
    }
    return len(type_names) == 1 and not any(isinstance(item, Mapping | list | tuple) for item in present)


def prepare_values(present: list[Any], values: list[Any]) -> list[object]:
    """Convert datetimes of several time zones to UTC: Arrow would apply the first one's zone to all."""
    if not present or not isinstance(present[0], datetime):
        return (
            [value.item() if is_numpy_scalar(value) else value for value in values]
            if present and is_numpy_scalar(present[0])
            else values
        )
    zones = {zone_name(value) if value.tzinfo else "" for value in present}
    if len(zones) == 1 and (zones == {""} or zones != {"UTC"}):
        return values
    return [value if value is None else value.astimezone(UTC) for value in values]


def to_structures(name: str, values: list[object], dtype: DataType) -> pa.Array:
    """Convert lists and dicts to a requested type; a field that the type does not have is an error."""

    def convert(value: Any, part: DataType) -> object:
        if value is None or not part.is_structure:
            return value
        if part.name == "Array":
            return [convert(element, part.element) for element in value]
        if part.name == "Map":
            return [(key, convert(element, part.args[1])) for key, element in value.items()]
        fields = dict(zip(field_names(part), inner_types(part), strict=True))
        unknown = next((key for key in value if key not in fields), None)
        if unknown is not None:
            raise ConversionError(f"Column {name!r} has the field {unknown!r}, which {dtype} does not have.")
        return {key: convert(value.get(key), inner) for key, inner in fields.items()}

    try:
        return pa.array([convert(value, dtype) for value in values], arrow_type(dtype))
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, AttributeError) as error:
        raise ConversionError(f"Column {name!r} is not {dtype}: {error}.", remedy="Change schema=.") from None


def to_json_column(name: str, values: list[object]) -> tuple[pa.ChunkedArray, DataType]:
    try:
        texts = [None if value is None else json.dumps(value, ensure_ascii=False, allow_nan=False) for value in values]
        if any(
            text is not None and json.loads(text) != _tuples_to_lists(value)
            for text, value in zip(texts, values, strict=True)
        ):
            raise TypeError("its keys are not all strings")
    except (TypeError, ValueError) as error:
        raise ConversionError(
            f"Column {name!r} has nested values of different structures that JSON cannot store either: {error}.",
            remedy="Give every dict the same keys and types of values.",
        ) from None
    dtype = DataType("String", nullable=any(value is None for value in values), logical="json")
    return pa.chunked_array([pa.array(texts, pa.string())]), dtype


def _tuples_to_lists(value: object) -> object:
    if isinstance(value, tuple | list):
        return [_tuples_to_lists(item) for item in cast("Sequence[Any]", value)]
    if isinstance(value, Mapping):
        return {key: _tuples_to_lists(item) for key, item in cast("Mapping[Any, Any]", value).items()}
    return value


def is_numpy_scalar(value: object) -> bool:
    return type(value).__module__ == "numpy" and hasattr(value, "item") and getattr(value, "ndim", 1) == 0
