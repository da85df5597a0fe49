"""Read the result of a query with limits of bytes, rows and values, and convert it to JSON in small pieces.

ClickHouse applies max_result_rows and max_result_bytes to blocks that it reads, not to constants such as `range(1e8)`,
so the limits are applied here: to bytes as they arrive, then to values. pyarrow and json hold the interpreter's lock
while they convert; pieces of PIECE_VALUES keep that short, so that other threads run in between.
"""

# pyarrow ships no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa

from aaiclick.data.client import Client
from aaiclick.data.errors import QueryError
from aaiclick.data.inspect_values import to_json
from aaiclick.data.statements import Compiled

PIECE_VALUES = 10_000
ROW_VALUES = 50_000
ROW_BYTES = 8 << 20
ARROW_SETTINGS = {
    "output_format_arrow_compression_method": "none",  # so that bytes received are bytes in memory
    "output_format_arrow_string_as_string": 1,
    "output_format_arrow_low_cardinality_as_dictionary": 0,
}
FEWER = "Select fewer or smaller rows."


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """What a result may hold in the memory of the reader."""

    rows: int
    bytes: int = 32 << 20
    values: int = 2_000_000
    json_bytes: int = 64 << 20


PREVIEW = ReadLimits(rows=1_000, bytes=8 << 20, values=100_000)


async def read_bounded(
    client: Client,
    text: str,
    parameters: Mapping[str, Any] | None,
    settings: Mapping[str, Any],
    limits: ReadLimits,
    query_id: str = "",
) -> Any:
    """The result of a query as a pyarrow Table; QueryError beyond the limits, which ends the query."""
    data = bytearray()
    query = Compiled(text, parameters or {}, settings, ())
    async with aclosing(client.stream_bytes(query, "ArrowStream", ARROW_SETTINGS, query_id)) as stream:
        async for piece in stream:
            data += piece
            if len(data) > limits.bytes:
                raise QueryError(f"The result is larger than {limits.bytes:,} bytes.", remedy=FEWER)
    return await asyncio.to_thread(_parse, data, limits)


def _parse(data: bytearray, limits: ReadLimits) -> Any:
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        table: pa.Table = reader.read_all()
    if table.num_rows > limits.rows:
        raise QueryError(f"The result has more than {limits.rows:,} rows.", remedy=FEWER)
    if sum(_count_values(column) for batch in table.to_batches() for column in batch.columns) > limits.values:
        raise QueryError(f"The result has more than {limits.values:,} values.", remedy=FEWER)
    return table


def to_json_rows(table: Any) -> list[dict[str, Any]]:
    """Rows as values that JSON has."""
    return [row for rows in _pieces(table) for row in rows]


def encode_rows(table: Any, limits: ReadLimits) -> bytes:
    """Rows as the JSON text of a list."""
    parts: list[bytes] = []
    size = 0
    for rows in _pieces(table):
        text = ",".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows).encode()
        parts.append(text)
        size += len(text)
        if size > limits.json_bytes:
            raise QueryError(f"The result is larger than {limits.json_bytes:,} bytes as JSON.", remedy=FEWER)
    return b"[" + b",".join(parts) + b"]"


def _pieces(table: Any) -> Iterator[list[dict[str, Any]]]:
    for batch in table.to_batches():
        if batch.num_rows:
            yield from _split(batch)


def _split(batch: pa.RecordBatch) -> Iterator[list[dict[str, Any]]]:
    values = sum(_count_values(column) for column in batch.columns)
    if batch.num_rows > 1 and (values > PIECE_VALUES or batch.nbytes > ROW_BYTES):
        half = batch.num_rows // 2
        yield from _split(batch.slice(0, half))
        yield from _split(batch.slice(half))
        return
    if values > ROW_VALUES or batch.nbytes > ROW_BYTES:
        raise QueryError(
            f"A row has more than {ROW_VALUES:,} values or {ROW_BYTES:,} bytes.", remedy="Select parts of its arrays."
        )
    yield [cast("dict[str, Any]", to_json(row)) for row in batch.to_pylist()]


def _count_values(array: pa.Array) -> int:
    """The values of a column, with those within lists, maps and tuples."""
    kind = array.type
    if pa.types.is_map(kind):
        size = int(array.offsets[len(array)].as_py()) - int(array.offsets[0].as_py()) if len(array) else 0
        start = int(array.offsets[0].as_py()) if len(array) else 0
        parts = (array.keys.slice(start, size), array.items.slice(start, size))
        return len(array) + sum(_count_values(part) for part in parts)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return len(array) + _count_values(array.flatten())
    if pa.types.is_struct(kind):
        return len(array) + sum(_count_values(part) for part in array.flatten())
    return len(array)
