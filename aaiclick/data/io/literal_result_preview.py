"""Columns, rows and files of literals, without ClickHouse."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import datetime

import pyarrow as pa

from aaiclick.data.io.bounded_reads import to_json_rows
from aaiclick.data.io.export import encode_batches
from aaiclick.data.io.from_arrow import normalise
from aaiclick.data.io.literal_result_codec import EncodedLiteral
from aaiclick.data.runtime.inspect import ObjectDescription, ObjectInfo


async def describe_literal(literal: EncodedLiteral, changed: datetime) -> ObjectDescription:
    """Size and columns of a literal; `changed` is when its task completed."""
    rows = await asyncio.to_thread(literal.rows)
    info = ObjectInfo(literal.table_id, rows.table.num_rows, len(literal.text), changed)
    return ObjectDescription(info, rows.shape, rows.columns)


async def preview_literal(literal: EncodedLiteral, *, offset: int = 0, limit: int = 100) -> list[dict[str, object]]:
    """Rows of a literal in order, as JSON-compatible values."""

    def convert_rows() -> list[dict[str, object]]:
        rows = literal.rows()
        return to_json_rows(normalise(rows.table.slice(offset, limit), rows.columns))

    return await asyncio.to_thread(convert_rows)


async def export_literal(literal: EncodedLiteral, chosen: str) -> AsyncGenerator[bytes]:
    """All rows of a literal in order, in a file format."""
    rows = await asyncio.to_thread(literal.rows)

    async def iterate_batches() -> AsyncGenerator[pa.RecordBatch]:
        for batch in normalise(rows.table, rows.columns).to_batches():
            yield batch

    async with aclosing(encode_batches(iterate_batches(), rows.columns, chosen)) as pieces:
        async for piece in pieces:
            yield piece
