"""Python values in expressions: their ClickHouse types, and their encoding as query parameters."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import reduce
from typing import Any
from uuid import UUID

from aaiclick.data.errors import ConversionError
from aaiclick.data.types import (
    BOOL,
    BYTES,
    DATE,
    DECIMAL_CLASSES,
    DURATION,
    FLOAT64,
    NOTHING,
    STRING,
    UUID_TYPE,
    DataType,
    array_of,
    datetime_type,
    decimal_type,
    exact_supertype,
    is_encodable,
    smallest_integer_type,
    zone_of,
)


def literal_type(value: object) -> DataType:
    """Return the ClickHouse type of a Python value; integers get the smallest type, as ClickHouse literals do."""
    if value is None:
        return NOTHING
    if isinstance(value, str) and not is_encodable(value):
        raise ConversionError(f"{value!r:.60} is not valid Unicode: it contains a lone surrogate.", remedy="Use bytes.")
    for python, dtype in ((bool, BOOL), (float, FLOAT64), (str, STRING), (bytes, BYTES), (UUID, UUID_TYPE)):
        if isinstance(value, python):
            return dtype
    if isinstance(value, int):
        return smallest_integer_type(value)
    if isinstance(value, Decimal):
        return _decimal_value_type(value)
    if isinstance(value, datetime):
        return datetime_type(6, "" if value.tzinfo is None else _literal_zone(value))
    if isinstance(value, date):
        return DATE
    if isinstance(value, timedelta):
        to_micros(value)
        return DURATION
    if isinstance(value, list | tuple | set | frozenset):
        return _array_value_type(list(value))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if getattr(value, "ndim", 0):
        raise ConversionError(
            f"A {type(value).__name__} cannot be used in an expression.",
            remedy="Create an Object from it, or pass it as a list.",
        )
    if hasattr(value, "item"):  # a NumPy scalar
        return literal_type(value.item())  # pyright: ignore[reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType]
    raise ConversionError(
        f"A {type(value).__name__} cannot be used in an expression.",
        remedy="Use numbers, strings, bytes, dates, datetimes, timedeltas, Decimals, UUIDs, None or lists of these.",
    )


def to_micros(value: timedelta) -> int:
    """Return the microseconds of a duration; raise ConversionError if they do not fit 64 bits."""
    micros = (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds
    if not -(1 << 63) <= micros < 1 << 63:
        raise ConversionError(
            f"{value!r} is too long for a duration.", remedy="Durations have 64 bits of microseconds."
        )
    return micros


def _decimal_value_type(value: Decimal) -> DataType:
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ConversionError(f"Decimal {value} is not a finite number.", remedy="Use float('nan') or None.")
    scale = max(0, -exponent)
    precision = max(len(digits) + max(0, exponent), scale)
    for size in DECIMAL_CLASSES:
        if precision <= size:
            return decimal_type(size, scale)
    raise ConversionError(f"Decimal {value} has more than 76 digits.")


def _array_value_type(values: list[object]) -> DataType:
    if not values:
        return array_of(NOTHING)

    def merge_types(left: DataType, right: DataType) -> DataType:
        common = exact_supertype(left, right)
        if common is None:
            raise ConversionError(f"A list mixes {left} and {right}.", remedy="Use values of one type.")
        return common

    return array_of(reduce(merge_types, (literal_type(value) for value in values)))


def _literal_zone(value: datetime) -> str:
    """Return the zone of a literal: UTC for local times before 1970 that occur twice, which ClickHouse cannot read."""
    is_early = value < datetime(1970, 1, 1, tzinfo=UTC)
    return (
        "UTC" if is_early and value.utcoffset() != value.replace(fold=1 - value.fold).utcoffset() else zone_name(value)
    )


def zone_name(value: datetime) -> str:
    """Return the IANA name of a datetime's zone; a fixed offset has none and is stored as UTC."""
    key = getattr(value.tzinfo, "key", None)
    return key if isinstance(key, str) else "UTC"


def bind_value(value: Any, dtype: DataType) -> object:
    """Encode a value so that clickhouse-connect sends it unchanged: text, or lists of text and numbers."""
    if isinstance(value, list | tuple | set | frozenset):
        return [_bind_element(element, dtype.element) for element in value]  # pyright: ignore[reportUnknownVariableType]
    if value is None or isinstance(value, bytes):
        return value
    return _format_value(value, dtype)


def _bind_element(value: Any, dtype: DataType) -> object:
    if hasattr(value, "item") and not isinstance(value, int | float | str | bytes):
        value = value.item()
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, list | tuple):
        return bind_value(value, dtype)
    if value is None or isinstance(value, str | bytes):
        return value
    if isinstance(value, int | float | Decimal | timedelta):
        return _UnquotedText(_format_value(value, dtype))
    return _format_value(value, dtype)


class _UnquotedText:
    """Text that clickhouse-connect writes into an array without quotes."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text


def _format_value(value: Any, dtype: DataType) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf") if math.isinf(value) else repr(value)
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, datetime):
        return _format_datetime(value, dtype)
    if isinstance(value, timedelta):
        return str(to_micros(value))
    if isinstance(value, date):
        return value.isoformat()
    if hasattr(value, "item") and not isinstance(value, int):
        return _format_value(value.item(), dtype)
    return str(value)


def _format_datetime(value: datetime, dtype: DataType) -> str:
    """Format a datetime; aware ones as Unix seconds, since local time is ambiguous when clocks are set back."""
    if value.tzinfo is None or not zone_of(dtype):
        return value.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")
    micros = to_micros(value - datetime(1970, 1, 1, tzinfo=UTC))
    if micros < 0:
        from zoneinfo import ZoneInfo

        return (
            value.astimezone(ZoneInfo(zone_of(dtype))).replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")
        )
    return f"{micros // 1_000_000}.{micros % 1_000_000:06d}"
