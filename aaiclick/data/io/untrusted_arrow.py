"""Reader of Arrow streams that an untrusted process wrote: invalid ones and small ones of huge tables are refused."""

from __future__ import annotations

import struct

import pyarrow as pa

from aaiclick.data.errors import ConversionError

MAX_ROWS_PER_BYTE = 8
"""Rows of the smallest column, of booleans, in a byte."""
_HEADER_SLOT = 2
_COMPRESSION_SLOT = 3


def read_foreign_stream(data: bytes) -> pa.Table:
    """Read an Arrow stream; raises ConversionError if it is invalid, compressed or has more rows than bytes allow."""
    buffer = pa.py_buffer(data)
    try:
        for message in pa.ipc.MessageReader.open_stream(buffer):
            if message.type != "schema" and _is_compressed(message.metadata.to_pybytes()):
                raise _invalid_error("it is compressed")
        with pa.ipc.open_stream(buffer) as reader:
            for field in reader.schema:
                _check_type(field.type)
            table = reader.read_all()
        table.validate(full=True)
    except (pa.ArrowException, struct.error, IndexError, OSError) as error:
        raise _invalid_error(str(error)) from error
    if table.num_rows > MAX_ROWS_PER_BYTE * len(data):
        raise _invalid_error(f"it has {table.num_rows:,} rows in {len(data):,} bytes")
    return table


def _is_compressed(metadata: bytes) -> bool:
    """Whether a record batch has the field `compression` (format/Message.fbs of Arrow, a flatbuffer)."""
    (message,) = struct.unpack_from("<I", metadata, 0)
    header = message + _field_offset(metadata, message, _HEADER_SLOT)
    header += struct.unpack_from("<I", metadata, header)[0]
    return _field_offset(metadata, header, _COMPRESSION_SLOT) != 0


def _field_offset(metadata: bytes, table: int, slot: int) -> int:
    """Offset of a field in a flatbuffer's table; 0 if the table lacks it."""
    fields = table - struct.unpack_from("<i", metadata, table)[0]
    (size,) = struct.unpack_from("<H", metadata, fields)
    position = 4 + 2 * slot
    return struct.unpack_from("<H", metadata, fields + position)[0] if position < size else 0


def _check_type(dtype: pa.DataType) -> None:
    """Refuse types with which a few bytes stand for many values."""
    if (
        pa.types.is_null(dtype)
        or pa.types.is_run_end_encoded(dtype)
        or str(dtype).startswith(("list_view", "large_list_view"))
    ):
        raise _invalid_error(f"the type {dtype} is not supported")
    for i in range(dtype.num_fields):
        _check_type(dtype.field(i).type)


def _invalid_error(reason: str) -> ConversionError:
    return ConversionError(
        f"The stored rows cannot be read: {reason}.", remedy="Run the task that returned them again."
    )
