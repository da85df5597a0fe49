"""The two vocabularies side by side: which Arrow type carries which ClickHouse type."""

# pyarrow and clickhouse-connect ship no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportUnknownLambdaType=false

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from aaiclick.data.errors import ConversionError
from aaiclick.data.types import (
    BYTES,
    DATE,
    DECIMAL_CLASSES,
    FLOAT64,
    INT64,
    STRING,
    UUID_TYPE,
    DataType,
    array_of,
    datetime_type,
    decimal_type,
    precision_of,
    zone_of,
)

_PLAIN: dict[str, pa.DataType] = {
    "Bool": pa.bool_(), "Float32": pa.float32(), "Float64": pa.float64(), "Date": pa.date32(), "Date32": pa.date32(),
    "Int8": pa.int8(), "Int16": pa.int16(), "Int32": pa.int32(), "Int64": pa.int64(),
    "UInt8": pa.uint8(), "UInt16": pa.uint16(), "UInt32": pa.uint32(), "UInt64": pa.uint64(), "Nothing": pa.null(),
}  # fmt: skip
_FROM_ARROW = {arrow: name for name, arrow in _PLAIN.items() if name not in ("Date", "Nothing")}
_UNITS = {0: "s", 3: "ms", 6: "us", 9: "ns"}
FIRST_DAY, LAST_DAY = date(1900, 1, 1), date(2299, 12, 31)


def clickhouse_type(name: str, kind: pa.DataType) -> DataType:
    """The ClickHouse type that holds every value of an Arrow type, not nullable at the top."""
    if kind in _FROM_ARROW:
        return DataType(_FROM_ARROW[kind])
    types = pa.types
    if types.is_null(kind):
        return INT64  # nothing but NULL, or nothing at all: any type holds it, and this one counts
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return STRING
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
        return BYTES
    if types.is_float16(kind):
        return FLOAT64
    if types.is_date64(kind):
        return DATE
    if types.is_timestamp(kind):
        digits = {unit: number for number, unit in _UNITS.items()}[kind.unit]
        return datetime_type(max(digits, 6), _zone(kind.tz))
    if types.is_decimal(kind):
        return decimal_type(next(each for each in DECIMAL_CLASSES if each >= kind.precision), kind.scale)
    return _nested_type(name, kind)


def _nested_type(name: str, kind: Any) -> DataType:
    types = pa.types
    if isinstance(kind, pa.UuidType):
        return UUID_TYPE
    if isinstance(kind, pa.BaseExtensionType) and not kind.extension_name.startswith("pandas."):
        return clickhouse_type(name, kind.storage_type)
    if types.is_fixed_size_binary(kind):
        return BYTES
    if types.is_dictionary(kind):
        return clickhouse_type(name, kind.value_type)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind) or types.is_list_view(kind):
        return array_of(clickhouse_type(name, kind.value_type).as_nullable())
    if types.is_struct(kind) and kind.num_fields:
        return DataType("Tuple", tuple((field.name, clickhouse_type(name, field.type).as_nullable()) for field in kind))
    if types.is_map(kind):
        key, item = clickhouse_type(name, kind.key_type), clickhouse_type(name, kind.item_type)
        return DataType("Map", (key.required(), item.as_nullable()))
    raise ConversionError(
        f"Column {name!r} has the Arrow type {kind}, which ClickHouse cannot hold.", remedy="Convert it first."
    )


def _zone(zone: str | None) -> str:
    """Arrow's fixed offsets (+02:00) are no zones in ClickHouse: their moments are kept in UTC."""
    if not zone:
        return ""
    return "UTC" if zone[0] in "+-" else zone


def arrow_type(kind: DataType) -> pa.DataType:
    """The Arrow type in which values of a ClickHouse type travel, in and out."""
    if kind.name in _PLAIN:
        return _PLAIN[kind.name]
    if kind.name == "String":
        return pa.binary() if kind.logical == "bytes" else pa.string()
    if kind.name == "FixedString":
        return pa.binary(kind.args[0])
    if kind.name in ("DateTime64", "DateTime"):
        digits = precision_of(kind)
        return pa.timestamp(_UNITS.get(digits, "us" if digits < 6 else "ns"), zone_of(kind) or None)
    if kind.name == "Decimal":
        precision, scale = kind.args
        return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
    if kind.name == "UUID":
        return pa.uuid()
    if kind.name == "Array":
        return pa.list_(arrow_type(kind.element))
    if kind.name == "Map":
        return pa.map_(arrow_type(kind.args[0]), arrow_type(kind.args[1]))
    if kind.name == "Tuple":
        pairs = [arg if isinstance(arg, tuple) else (str(i + 1), arg) for i, arg in enumerate(kind.args)]
        return pa.struct([pa.field(label, arrow_type(inner)) for label, inner in pairs])  # pyright: ignore[reportUnknownArgumentType]
    return pa.string()


def fits(name: str, array: pa.ChunkedArray, kind: DataType) -> None:
    """Refuse moments that ClickHouse would clamp to its own range."""
    if not kind.is_temporal or len(array) == array.null_count:
        return
    span = cast("Any", pc).min_max(array)
    first, last = span["min"].as_py(), span["max"].as_py()
    if kind.is_date:
        inside = first >= FIRST_DAY and last <= LAST_DAY
    else:
        zone = UTC if isinstance(first, datetime) and first.tzinfo is not None else None
        inside = datetime(1900, 1, 1, tzinfo=zone) <= first and last < datetime(2300, 1, 1, tzinfo=zone)
    if not inside:
        raise ConversionError(
            f"Column {name!r} goes from {first} to {last}; ClickHouse holds 1900 to 2299.",
            remedy="Store it as text, or as a number.",
        )
