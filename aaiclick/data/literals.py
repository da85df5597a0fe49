"""Python values inside expressions: their types, and the text that binds them as server-side parameters."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
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
    FLOAT64,
    NOTHING,
    STRING,
    UUID_TYPE,
    DataType,
    array_of,
    datetime_type,
    decimal_type,
    integer_type,
    is_text,
    supertype,
    zone_of,
)


def literal_type(value: object) -> DataType:
    """The ClickHouse type of a Python value; integers get the smallest that holds them, as ClickHouse's own
    literals."""
    if value is None:
        return NOTHING
    if isinstance(value, str) and not is_text(value):
        raise ConversionError(f"{value!r:.60} is not Unicode: it holds half of a pair.", remedy="Use bytes.")
    for python, kind in ((bool, BOOL), (float, FLOAT64), (str, STRING), (bytes, BYTES), (UUID, UUID_TYPE)):
        if isinstance(value, python):
            return kind
    if isinstance(value, int):
        return integer_type(value)
    if isinstance(value, Decimal):
        return _decimal(value)
    if isinstance(value, datetime):
        return datetime_type(6, "" if value.tzinfo is None else zone_name(value))
    if isinstance(value, date):
        return DATE
    if isinstance(value, list | tuple | set | frozenset):
        return _array(list(value))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if hasattr(value, "item"):  # a NumPy scalar
        return literal_type(value.item())  # pyright: ignore[reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType]
    raise ConversionError(
        f"A {type(value).__name__} cannot stand in an expression.",
        remedy="Use numbers, strings, bytes, dates, datetimes, Decimals, UUIDs, None or lists of these.",
    )


def _decimal(value: Decimal) -> DataType:
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ConversionError(f"Decimal {value} has no digits.", remedy="Use float('nan') or None.")
    scale = max(0, -exponent)
    precision = max(len(digits) + max(0, exponent), scale)
    for each in DECIMAL_CLASSES:
        if precision <= each:
            return decimal_type(each, scale)
    raise ConversionError(f"Decimal {value} has more than 76 digits.")


def _array(values: list[object]) -> DataType:
    if not values:
        return array_of(NOTHING)

    def join(left: DataType, right: DataType) -> DataType:
        both = supertype(left, right)
        if both is None:
            raise ConversionError(f"A list mixes {left} and {right}.", remedy="Make its values of one kind.")
        return both

    return array_of(reduce(join, (literal_type(each) for each in values)))


def zone_name(value: datetime) -> str:
    """A name ClickHouse knows for the zone; a bare offset has none, and its moment is kept in UTC."""
    key = getattr(value.tzinfo, "key", None)
    return key if isinstance(key, str) else "UTC"


def bound(value: Any, kind: DataType) -> Any:
    """The value in a form that clickhouse-connect sends unchanged: text, or lists of text and numbers."""
    if isinstance(value, list | tuple | set | frozenset):
        return [_element(each, kind.element) for each in value]  # pyright: ignore[reportUnknownVariableType]
    if value is None or isinstance(value, bytes):
        return value
    return _text(value, kind)


def _element(value: Any, kind: DataType) -> Any:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, list | tuple):
        return bound(value, kind)
    if value is None or isinstance(value, str | bytes):
        return value
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return _Bare(_text(value, kind))
    return _text(value, kind)


class _Bare:
    """Text that goes into an array without quotes."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text


def _text(value: Any, kind: DataType) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf") if math.isinf(value) else repr(value)
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, datetime):
        return _moment(value, kind)
    if isinstance(value, date):
        return value.isoformat()
    if hasattr(value, "item") and not isinstance(value, int):
        return _text(value.item(), kind)
    return str(value)


def _moment(value: datetime, kind: DataType) -> str:
    """Wall time of the type's zone; a fold in autumn would be ambiguous as text, so aware moments travel as seconds."""
    if value.tzinfo is None or not zone_of(kind):
        return value.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")
    micros = round((value - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1_000_000)
    if micros < 0:
        from zoneinfo import ZoneInfo

        return (
            value.astimezone(ZoneInfo(zone_of(kind))).replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")
        )
    return f"{micros // 1_000_000}.{micros % 1_000_000:06d}"
