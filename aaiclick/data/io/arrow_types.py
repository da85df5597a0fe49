"""Mapping between Arrow types and ClickHouse types."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pyarrow as pa
import pyarrow.compute as pc

from aaiclick.data.errors import ConversionError
from aaiclick.data.io.nested_arrays import field_names, inner_arrays, inner_types
from aaiclick.data.types import (
    BYTES,
    DATE,
    DECIMAL_CLASSES,
    DURATION,
    FLOAT64,
    INT64,
    STRING,
    UUID_TYPE,
    DataType,
    array_of,
    datetime_type,
    decimal_type,
    iter_types,
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


def clickhouse_type(name: str, arrow: pa.DataType) -> DataType:
    """Return the ClickHouse type that holds every value of an Arrow type; not nullable at the top level."""
    if arrow in _FROM_ARROW:
        return DataType(_FROM_ARROW[arrow])
    types = pa.types
    if types.is_null(arrow):
        return INT64  # only NULLs or no rows: any type would do
    if types.is_string(arrow) or types.is_large_string(arrow) or types.is_string_view(arrow):
        return STRING
    if types.is_binary(arrow) or types.is_large_binary(arrow) or types.is_binary_view(arrow):
        return BYTES
    if types.is_float16(arrow):
        return FLOAT64
    if types.is_date64(arrow):
        return DATE
    if types.is_timestamp(arrow):
        digits = {unit: number for number, unit in _UNITS.items()}[arrow.unit]
        return datetime_type(max(digits, 6), _normalise_zone(arrow.tz))
    if types.is_duration(arrow):
        return DURATION
    if types.is_decimal(arrow):
        scale = max(arrow.scale, 0)
        precision = min(arrow.precision - min(arrow.scale, 0), 76)
        return decimal_type(next(size for size in DECIMAL_CLASSES if size >= precision), scale)
    return _nested_type(name, arrow)


def _nested_type(name: str, arrow: pa.DataType) -> DataType:
    types = pa.types
    if isinstance(arrow, pa.UuidType):
        return UUID_TYPE
    if isinstance(arrow, pa.BaseExtensionType) and not arrow.extension_name.startswith("pandas."):
        return clickhouse_type(name, arrow.storage_type)
    if types.is_fixed_size_binary(arrow):
        return BYTES
    if types.is_dictionary(arrow):
        return clickhouse_type(name, arrow.value_type)
    if (
        types.is_list(arrow)
        or types.is_large_list(arrow)
        or types.is_fixed_size_list(arrow)
        or types.is_list_view(arrow)
    ):
        return array_of(_inner_type(name, arrow.value_field))
    if types.is_struct(arrow) and arrow.num_fields:
        return DataType("Tuple", tuple((field.name, _inner_type(name, field)) for field in arrow))
    if types.is_map(arrow):
        return DataType("Map", (clickhouse_type(name, arrow.key_type), _inner_type(name, arrow.item_field)))
    raise ConversionError(
        f"Column {name!r} has the Arrow type {arrow}, which ClickHouse cannot hold.", remedy="Convert it first."
    )


def _inner_type(name: str, field: pa.Field) -> DataType:
    return clickhouse_type(name, field.type).as_nullable(field.nullable)


def _normalise_zone(zone: str | None) -> str:
    """Map Arrow's fixed offsets (+02:00), which ClickHouse does not support, to UTC."""
    if not zone:
        return ""
    return "UTC" if zone[0] in "+-" else zone


def arrow_type(dtype: DataType) -> pa.DataType:
    """Return the Arrow type that is sent and received for a ClickHouse type."""
    if dtype.name in _PLAIN:
        return _PLAIN[dtype.name]
    if dtype.name == "String":
        return pa.binary() if dtype.logical == "bytes" else pa.string()
    if dtype.name == "FixedString":
        return pa.binary(dtype.args[0])
    if dtype.name in ("DateTime64", "DateTime"):
        digits = precision_of(dtype)
        return pa.timestamp(_UNITS.get(digits, "us" if digits < 6 else "ns"), zone_of(dtype) or None)
    if dtype.name == "Decimal":
        precision, scale = dtype.args
        return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
    if dtype.name in ("Int128", "UInt128"):
        return pa.decimal256(39, 0)
    if dtype.is_duration:
        return pa.duration("us")
    if dtype.name == "UUID":
        return pa.uuid()
    if dtype.name == "Array":
        return pa.list_(arrow_type(dtype.element))
    if dtype.name == "Map":
        return pa.map_(arrow_type(dtype.args[0]), arrow_type(dtype.args[1]))
    if dtype.name == "Tuple":
        pairs = zip(field_names(dtype), inner_types(dtype), strict=True)
        return pa.struct([pa.field(label, arrow_type(inner)) for label, inner in pairs])
    return pa.string()


def check_range(name: str, array: pa.ChunkedArray, dtype: DataType) -> None:
    """Raise ConversionError for dates and times that ClickHouse would clamp to its range."""
    if dtype.is_structure and any(part.is_temporal for part in iter_types(dtype)):
        for chunk in array.chunks:
            for inner, inner_type in zip(inner_arrays(chunk), inner_types(dtype), strict=True):
                check_range(name, pa.chunked_array([inner]), inner_type)
    if not dtype.is_temporal or len(array) == array.null_count:
        return
    span = pc.min_max(array)
    first, last = span["min"].as_py(), span["max"].as_py()
    if dtype.is_date:
        in_range = first >= FIRST_DAY and last <= LAST_DAY
    else:
        zone = UTC if isinstance(first, datetime) and first.tzinfo is not None else None
        in_range = datetime(1900, 1, 1, tzinfo=zone) <= first and last < datetime(2300, 1, 1, tzinfo=zone)
    if not in_range:
        raise ConversionError(
            f"Column {name!r} goes from {first} to {last}; ClickHouse supports 1900 to 2299.",
            remedy="Store it as text, or as a number.",
        )
