"""Encoders of rows as files: CSV, TSV, JSON, JSON lines, Parquet, ORC, Arrow and Avro.

A type that a format cannot hold is refused with the name of the column, except where every value of the column fits
another type, such as UInt64 in Avro.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.orc as orc
import pyarrow.parquet as pq

from aaiclick.data.errors import DataError
from aaiclick.data.io.arrow_json_text import check_json_type, json_lines, to_json_text, to_written_form
from aaiclick.data.io.arrow_types import arrow_type
from aaiclick.data.io.avro import AvroWriter, refuse_json
from aaiclick.data.io.file_readers import LOGICAL
from aaiclick.data.io.from_arrow import uuids_to_text
from aaiclick.data.runtime.tables import Columns
from aaiclick.data.types import DataType, iter_types

ROW_GROUP_BYTES = 64 << 20


class FileWriter(Protocol):
    """Encoder of one file; `write` and `close` return the next bytes."""

    def write(self, batch: pa.RecordBatch) -> bytes: ...

    def close(self) -> bytes: ...


def create_writer(format_name: str, columns: Columns) -> FileWriter:
    """Return the encoder of a format (a key of FORMATS); raise DataError for a column that it cannot hold."""
    writers: dict[str, Callable[[Columns], FileWriter]] = {
        "csv": lambda columns: CsvWriter(columns, ","),
        "tsv": lambda columns: CsvWriter(columns, "\t"),
        "json": lambda columns: JsonWriter(columns, is_array=True),
        "jsonl": lambda columns: JsonWriter(columns, is_array=False),
        "parquet": ParquetWriter,
        "orc": OrcWriter,
        "arrow": ArrowWriter,
        "avro": AvroWriter,
    }
    if format_name not in ("parquet", "arrow"):
        for name, dtype in columns:
            _refuse_duration(name, dtype, format_name)
    return writers[format_name](columns)


def _refuse_duration(name: str, dtype: DataType, format_name: str) -> None:
    if any(part.is_duration for part in iter_types(dtype)):
        raise DataError(
            f"Column {name!r} is {dtype}, and {format_name} has no durations.",
            remedy="Use Parquet or Arrow, or write a number: .dt.total_microseconds().",
        )


def arrow_schema(columns: Columns) -> pa.Schema:
    """Return the Arrow schema of columns, with their nullability."""
    return pa.schema(
        [
            pa.field(name, arrow_type(dtype), dtype.nullable, {LOGICAL: b"json"} if dtype.logical == "json" else None)
            for name, dtype in columns
        ]
    )


class _Sink:
    """A writable file from which the bytes are taken as they are written."""

    def __init__(self) -> None:
        self._buffer = io.BytesIO()
        self._position = 0
        self.closed = False

    def write(self, data: bytes) -> int:
        self._position += len(data)
        return self._buffer.write(data)

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        """Do nothing: the bytes are taken by `take`."""

    def close(self) -> None:
        self.closed = True

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def take(self) -> bytes:
        data = self._buffer.getvalue()
        self._buffer = io.BytesIO()
        return data


class _ArrowBasedWriter:
    """Base class of the encoders of pyarrow."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.schema = self.make_schema()
        self.sink = _Sink()
        self.file = pa.PythonFile(self.sink, "w")
        self.writer = self.open_writer()

    def make_schema(self) -> pa.Schema:
        return arrow_schema(self.columns)

    def open_writer(self) -> Any:
        raise NotImplementedError

    def convert(self, batch: pa.RecordBatch) -> pa.Table:
        return pa.Table.from_arrays(batch.columns, schema=self.schema)

    def write(self, batch: pa.RecordBatch) -> bytes:
        self.writer.write_table(self.convert(batch))
        return self.sink.take()

    def close(self) -> bytes:
        self.writer.close()
        self.file.flush()
        return self.sink.take()


class ParquetWriter(_ArrowBasedWriter):
    """Batches are combined to row groups of ROW_GROUP_BYTES."""

    def open_writer(self) -> Any:
        self._pending: list[pa.Table] = []
        self._pending_bytes = 0
        return pq.ParquetWriter(self.file, self.schema, compression="zstd")

    def write(self, batch: pa.RecordBatch) -> bytes:
        table = self.convert(batch)
        self._pending.append(table)
        self._pending_bytes += table.nbytes
        return self._write_group() if self._pending_bytes >= ROW_GROUP_BYTES else b""

    def close(self) -> bytes:
        return self._write_group() + super().close()

    def _write_group(self) -> bytes:
        if not self._pending:
            return b""
        group = pa.concat_tables(self._pending)
        self.writer.write_table(group, row_group_size=max(group.num_rows, 1))
        self._pending, self._pending_bytes = [], 0
        return self.sink.take()


class ArrowWriter(_ArrowBasedWriter):
    def open_writer(self) -> Any:
        return pa.ipc.new_file(self.file, self.schema)


class OrcWriter(_ArrowBasedWriter):
    """ORC has no unsigned integers, no UUID, and Decimals of at most 38 digits."""

    def make_schema(self) -> pa.Schema:
        for name, dtype in self.columns:
            _check_orc_type(name, dtype)
        return pa.schema([(name, _orc_type(arrow_type(dtype))) for name, dtype in self.columns])

    def open_writer(self) -> Any:
        return orc.ORCWriter(self.file)

    def convert(self, batch: pa.RecordBatch) -> pa.Table:
        arrays: list[pa.ChunkedArray] = []
        for (name, _), array, field in zip(self.columns, batch.columns, self.schema, strict=True):
            try:
                arrays.append(pa.chunked_array([array.cast(field.type)]))
            except pa.ArrowInvalid as error:
                raise DataError(f"Column {name!r} cannot be written as orc: {error}.", remedy="Use Parquet.") from None
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def write(self, batch: pa.RecordBatch) -> bytes:
        self.writer.write(self.convert(batch))
        return self.sink.take()


def _check_orc_type(name: str, dtype: DataType) -> None:
    refuse_json(name, dtype, "orc")
    for part in iter_types(dtype):
        if part.name == "UUID" or pa.types.is_decimal256(arrow_type(part)):
            raise DataError(
                f"Column {name!r} is {dtype}, and orc has no UUID and Decimals of at most 38 digits.",
                remedy='Use Parquet or Arrow, or cast it: .cast("String").',
            )


_SIGNED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.int64()}


def _orc_type(arrow: pa.DataType) -> pa.DataType:
    if pa.types.is_list(arrow):
        return pa.list_(_orc_type(arrow.value_type))
    if pa.types.is_struct(arrow):
        return pa.struct([pa.field(field.name, _orc_type(field.type)) for field in arrow])
    if pa.types.is_map(arrow):
        return pa.map_(_orc_type(arrow.key_type), _orc_type(arrow.item_type))
    if pa.types.is_timestamp(arrow):
        return pa.timestamp("ns", arrow.tz)
    return _SIGNED.get(arrow, arrow)


class CsvWriter:
    """CSV with a header: text is quoted and NULL is empty, so that an empty text and a number as text stay text."""

    def __init__(self, columns: Columns, separator: str) -> None:
        for name, dtype in columns:
            check_json_type(name, dtype, "csv")
        self._columns = columns
        self._sink = _Sink()
        self._options = csv.WriteOptions(include_header=False, delimiter=separator)
        names = [name.replace('"', '""') for name, _ in columns]
        self._sink.write((separator.join(f'"{name}"' for name in names) + "\n").encode())

    def write(self, batch: pa.RecordBatch) -> bytes:
        arrays = [_cell_values(name, batch.column(i), dtype) for i, (name, dtype) in enumerate(self._columns)]
        csv.write_csv(
            pa.Table.from_arrays(arrays, names=[name for name, _ in self._columns]), self._sink, self._options
        )
        return self._sink.take()

    def close(self) -> bytes:
        return self._sink.take()


def _cell_values(name: str, array: pa.Array, dtype: DataType) -> pa.Array:
    if dtype.is_structure:
        return to_json_text(name, array, dtype)
    if isinstance(array.type, pa.UuidType):
        return uuids_to_text(name, pa.chunked_array([array])).combine_chunks()
    return to_written_form(array)


class JsonWriter:
    def __init__(self, columns: Columns, *, is_array: bool) -> None:
        for name, dtype in columns:
            check_json_type(name, dtype, "json")
        self._columns = columns
        self._is_array = is_array
        self._has_rows = False

    def write(self, batch: pa.RecordBatch) -> bytes:
        if not batch.num_rows:
            return b""
        separator = ",\n" if self._is_array else "\n"
        lines = json_lines(batch, self._columns)
        text = str(pc.binary_join(pa.ListArray.from_arrays([0, len(lines)], lines), separator)[0].as_py())
        start = ("[\n" if not self._has_rows else ",\n") if self._is_array else ""
        self._has_rows = True
        return (start + text + ("" if self._is_array else "\n")).encode()

    def close(self) -> bytes:
        if not self._is_array:
            return b""
        return b"\n]\n" if self._has_rows else b"[]\n"
