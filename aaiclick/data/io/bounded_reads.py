"""Read query results with limits on bytes, rows and values, and convert them to JSON in small pieces.

ClickHouse applies max_result_rows and max_result_bytes to blocks that it reads, not to constants such as `range(1e8)`,
so the limits are applied here: to bytes as they arrive, then to values. pyarrow and json hold the interpreter's lock
while they convert; pieces of PIECE_VALUES keep that short, so that other threads run in between.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa

from aaiclick.data.compile.statements import CompiledQuery
from aaiclick.data.errors import QueryError
from aaiclick.data.io.json_values import to_json
from aaiclick.data.runtime.clickhouse_client import ClickHouseClient

PIECE_VALUES = 10_000
ROW_VALUES = 50_000
ROW_BYTES = 8 << 20
ARROW_SETTINGS = {
    "output_format_arrow_compression_method": "none",  # so that bytes received are bytes in memory
    "output_format_arrow_string_as_string": 1,
    "output_format_arrow_low_cardinality_as_dictionary": 0,
}
REDUCE_ROWS = "Select fewer or smaller rows."


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Limits of a result in the reader's memory."""

    rows: int
    bytes: int = 32 << 20
    values: int = 2_000_000
    json_bytes: int = 64 << 20


PREVIEW = ReadLimits(rows=1_000, bytes=8 << 20, values=100_000)


async def read_bounded(
    client: ClickHouseClient,
    text: str,
    parameters: Mapping[str, object] | None,
    settings: Mapping[str, object],
    limits: ReadLimits,
    query_id: str = "",
) -> pa.Table:
    """Return the result of a query; beyond the limits, cancel the query and raise QueryError."""
    data = bytearray()
    query = CompiledQuery(text, parameters or {}, settings, ())
    async with aclosing(client.stream_bytes(query, "ArrowStream", ARROW_SETTINGS, query_id)) as stream:
        async for piece in stream:
            data += piece
            if len(data) > limits.bytes:
                raise QueryError(f"The result is larger than {limits.bytes:,} bytes.", remedy=REDUCE_ROWS)
    return await asyncio.to_thread(_parse_result, data, limits)


def _parse_result(data: bytearray, limits: ReadLimits) -> pa.Table:
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        table = reader.read_all()
    if table.num_rows > limits.rows:
        raise QueryError(f"The result has more than {limits.rows:,} rows.", remedy=REDUCE_ROWS)
    if sum(_count_values(column) for batch in table.to_batches() for column in batch.columns) > limits.values:
        raise QueryError(f"The result has more than {limits.values:,} values.", remedy=REDUCE_ROWS)
    return table


def to_json_rows(table: pa.Table) -> list[dict[str, object]]:
    """Convert rows to JSON-compatible values."""
    return [row for rows in _iter_pieces(table) for row in rows]


def encode_rows(table: pa.Table, limits: ReadLimits) -> bytes:
    """Encode rows as a JSON array."""
    parts: list[bytes] = []
    size = 0
    for rows in _iter_pieces(table):
        text = ",".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows).encode()
        parts.append(text)
        size += len(text)
        if size > limits.json_bytes:
            raise QueryError(f"The result is larger than {limits.json_bytes:,} bytes as JSON.", remedy=REDUCE_ROWS)
    return b"[" + b",".join(parts) + b"]"


def _iter_pieces(table: pa.Table) -> Iterator[list[dict[str, object]]]:
    for batch in table.to_batches():
        if batch.num_rows:
            yield from _split_batch(batch)


def _split_batch(batch: pa.RecordBatch) -> Iterator[list[dict[str, object]]]:
    values = sum(_count_values(column) for column in batch.columns)
    if batch.num_rows > 1 and (values > PIECE_VALUES or batch.nbytes > ROW_BYTES):
        half = batch.num_rows // 2
        yield from _split_batch(batch.slice(0, half))
        yield from _split_batch(batch.slice(half))
        return
    if values > ROW_VALUES or batch.nbytes > ROW_BYTES:
        raise QueryError(
            f"A row has more than {ROW_VALUES:,} values or {ROW_BYTES:,} bytes.", remedy="Select parts of its arrays."
        )
    yield [cast("dict[str, Any]", to_json(row)) for row in batch.to_pylist()]


def _count_values(array: pa.Array) -> int:
    """Count the values of a column, including those in lists, maps and tuples."""
    if isinstance(array, pa.MapArray):
        size = int(array.offsets[len(array)].as_py()) - int(array.offsets[0].as_py()) if len(array) else 0
        start = int(array.offsets[0].as_py()) if len(array) else 0
        parts = (array.keys.slice(start, size), array.items.slice(start, size))
        return len(array) + sum(_count_values(part) for part in parts)
    if isinstance(array, pa.ListArray | pa.LargeListArray | pa.FixedSizeListArray):
        return len(array) + _count_values(array.flatten())
    if isinstance(array, pa.StructArray):
        return len(array) + sum(_count_values(part) for part in array.flatten())
    return len(array)
