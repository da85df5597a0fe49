"""Reader and writer of Avro files."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, cast

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
from fastavro.write import Writer

from aaiclick.data.errors import ConversionError, DataError, IngestError
from aaiclick.data.io.arrow_types import arrow_type, clickhouse_type
from aaiclick.data.io.byte_streams import OpenFile
from aaiclick.data.io.file_readers import FileReader
from aaiclick.data.io.from_arrow import uuids_as_text
from aaiclick.data.io.nested_arrays import field_names, inner_types
from aaiclick.data.io.text_type_inference import convert_nested
from aaiclick.data.runtime.tables import Columns
from aaiclick.data.types import UUID_TYPE, DataType, map_inner_types, precision_of, zone_of

BATCH_ROWS = 10_000
CODEC = "deflate"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
AvroType = Any
"""A part of an Avro schema: the name of a type, a dict, or a list of the members of a union."""

_PLAIN: dict[str, pa.DataType] = {
    "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64(),
    "bytes": pa.binary(), "string": pa.string(), "enum": pa.string(), "null": pa.null(),
}  # fmt: skip
_LOGICAL: dict[str, pa.DataType] = {
    "date": pa.date32(), "timestamp-millis": pa.timestamp("ms", "UTC"), "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"), "local-timestamp-micros": pa.timestamp("us"),
}  # fmt: skip


class AvroReader(FileReader):
    def __init__(self, path: Path, compression: str | None) -> None:
        self._path = path
        self._compression = compression
        with OpenFile(path, compression) as file:
            schema = self._open(file).writer_schema
        if not isinstance(schema, dict) or cast("dict[str, Any]", schema)["type"] != "record":
            raise IngestError("its rows are not records")
        self._names: dict[str, AvroType] = {}
        fields = cast("list[dict[str, Any]]", schema["fields"])
        self._types = {str(field["name"]): self._convert_type(str(field["name"]), field["type"]) for field in fields}
        self.columns = tuple(
            (name, dtype.as_nullable(_is_nullable(field["type"])))
            for (name, dtype), field in zip(self._types.items(), fields, strict=True)
        )

    def _open(self, file: OpenFile) -> Any:
        try:
            return fastavro.reader(io.BufferedReader(file.stream))
        except (ValueError, EOFError, KeyError) as error:
            raise IngestError(str(error)) from None

    def iter_tables(self, columns: Mapping[str, DataType]) -> Iterator[pa.Table]:  # noqa: ARG002
        with OpenFile(self._path, self._compression) as file:
            rows = iter(self._open(file))
            while batch := _next_rows(rows):
                yield pa.table({name: self._to_array(name, dtype, batch) for name, dtype in self._types.items()})

    def _to_array(self, name: str, dtype: DataType, rows: list[dict[str, Any]]) -> pa.Array:
        values = [uuids_as_text(row[name]) for row in rows]
        return convert_nested(name, pa.array(values, arrow_type(_uuid_as_string(dtype))), dtype)

    def _convert_type(self, column: str, schema: AvroType) -> DataType:
        """Return the type of a part of the schema; raise ConversionError for a union of several types."""
        if isinstance(schema, list):
            members = [member for member in cast("list[AvroType]", schema) if member != "null"]
            if len(members) != 1:
                raise ConversionError(f"Column {column!r} is a union of several types.", remedy="Convert it first.")
            return self._convert_type(column, members[0])
        if isinstance(schema, str):
            if schema in self._names:
                return self._convert_type(column, self._names[schema])
            return clickhouse_type(column, _PLAIN[schema])
        return self._convert_complex(column, cast("dict[str, Any]", schema))

    def _convert_complex(self, column: str, schema: dict[str, Any]) -> DataType:
        if "name" in schema:
            self._names[schema["name"]] = schema
        logical = schema.get("logicalType", "")
        if logical == "uuid":
            return UUID_TYPE
        if logical == "decimal":
            return clickhouse_type(column, pa.decimal256(schema["precision"], schema.get("scale", 0)))
        if logical in _LOGICAL:
            return clickhouse_type(column, _LOGICAL[logical])
        if logical.startswith("time-"):
            raise ConversionError(f"Column {column!r} is a time of day, which ClickHouse cannot hold.")
        match schema["type"]:
            case "array":
                return DataType("Array", (self._inner_type(column, schema["items"]),))
            case "map":
                return DataType("Map", (DataType("String"), self._inner_type(column, schema["values"])))
            case "record":
                fields = cast("list[dict[str, Any]]", schema["fields"])
                return DataType("Tuple", tuple((f["name"], self._inner_type(column, f["type"])) for f in fields))
            case "fixed":
                return clickhouse_type(column, pa.binary())
            case inner:
                return self._convert_type(column, inner)

    def _inner_type(self, column: str, schema: AvroType) -> DataType:
        return self._convert_type(column, schema).as_nullable(_is_nullable(schema))


def _is_nullable(schema: AvroType) -> bool:
    return schema == "null" or (isinstance(schema, list) and "null" in schema)


def _next_rows(rows: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    try:
        return list(islice(rows, BATCH_ROWS))
    except (ValueError, EOFError, KeyError) as error:
        raise IngestError(f"damaged data: {error}") from None


def _uuid_as_string(dtype: DataType) -> DataType:
    return DataType("String") if dtype.name == "UUID" else map_inner_types(dtype, _uuid_as_string)


# --- writer ------------------------------------------------------------------------------------------------------


class AvroWriter:
    """Encoder of batches as an Avro file."""

    def __init__(self, columns: Columns) -> None:
        self._records = 0
        self._sink = io.BytesIO()
        fields = [{"name": _check_name(name, name), "type": self._schema_of(name, dtype)} for name, dtype in columns]
        self._writer: Any = Writer(self._sink, {"type": "record", "name": "row", "fields": fields}, CODEC)

    def write(self, batch: pa.RecordBatch) -> bytes:
        for name, array in zip(batch.schema.names, batch.columns, strict=True):
            if array.type == pa.uint64() and (pc.max(array).as_py() or 0) >= 1 << 63:
                raise DataError(
                    f"Column {name!r} has integers of 2**63 or more, which avro cannot hold.", remedy="Use Parquet."
                )
        for row in batch.to_pylist(maps_as_pydicts="strict"):
            try:
                self._writer.write(row)
            except (ValueError, TypeError, OverflowError) as error:
                raise DataError(f"A row cannot be written as avro: {error}.", remedy="Use Parquet.") from None
        self._writer.flush()
        return self._take()

    def close(self) -> bytes:
        self._writer.flush()
        return self._take()

    def _take(self) -> bytes:
        data = self._sink.getvalue()
        self._sink.seek(0)
        self._sink.truncate()
        return data

    def _schema_of(self, column: str, dtype: DataType) -> AvroType:
        schema = self._required_schema(column, dtype)
        return ["null", schema] if dtype.nullable else schema

    def _required_schema(self, column: str, dtype: DataType) -> AvroType:
        match dtype.name:
            case "Array":
                return {"type": "array", "items": self._schema_of(column, dtype.element)}
            case "Map" if dtype.args[0].name == "String":
                return {"type": "map", "values": self._schema_of(column, dtype.args[1])}
            case "Tuple":
                self._records += 1
                name = f"record_{self._records}"
                fields = zip(field_names(dtype), inner_types(dtype), strict=True)
                return {
                    "type": "record",
                    "name": name,
                    "fields": [
                        {"name": _check_name(column, field), "type": self._schema_of(column, inner)}
                        for field, inner in fields
                    ],
                }
            case _:
                return _scalar_schema(column, dtype)


def _check_name(column: str, name: str) -> str:
    if not _NAME.fullmatch(name):
        raise DataError(
            f"Column {column!r} cannot be written as avro: {name!r} is not a name in Avro.",
            remedy="Rename it to letters, digits and _, or use Parquet.",
        )
    return name


def refuse_json(column: str, dtype: DataType, format_name: str) -> None:
    """Refuse values of different structures, which are stored as JSON text."""
    if dtype.logical == "json":
        raise DataError(
            f"Column {column!r} has values of different structures, which {format_name} cannot hold.",
            remedy='Use Parquet, Arrow or JSON, or write their JSON text: .cast("String").',
        )


def _scalar_schema(column: str, dtype: DataType) -> AvroType:
    refuse_json(column, dtype, "avro")
    arrow = arrow_type(dtype)
    if pa.types.is_timestamp(arrow):
        if precision_of(dtype) > 6:
            raise DataError(
                f"Column {column!r} has nanoseconds, which Avro cannot hold.", remedy="Truncate it, or use Parquet."
            )
        prefix, unit = "" if zone_of(dtype) else "local-", "millis" if arrow.unit == "ms" else "micros"
        return {"type": "long", "logicalType": f"{prefix}timestamp-{unit}"}
    if pa.types.is_decimal(arrow):
        return {"type": "bytes", "logicalType": "decimal", "precision": arrow.precision, "scale": arrow.scale}
    if pa.types.is_integer(arrow):
        return "long" if arrow.bit_width == 64 or arrow == pa.uint32() else "int"
    if dtype.name == "UUID":
        return {"type": "string", "logicalType": "uuid"}
    if pa.types.is_date(arrow):
        return {"type": "int", "logicalType": "date"}
    if pa.types.is_fixed_size_binary(arrow):
        return "bytes"
    name = next((name for name, plain in _PLAIN.items() if plain == arrow), None)
    if name is None:
        raise DataError(f"Column {column!r} is {dtype}, which Avro cannot hold.", remedy="Use Parquet.")
    return name
