"""Concurrent writes of many processes to one table, with retries.

Every writer has a number, which determines the order. Its rows store that number and the attempt (`aai_source`), and
the key they would have if every writer wrote the expected number of rows. The caller decides which attempts are valid;
`seal_parts` then attaches the rows to a new table without writers and deletes those of other attempts. If all row
counts are as expected nothing is copied (`ATTACH PARTITION` links the files).

The columns are those of the first rows that arrive; until then the table has none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa

from aaiclick.data.compile.join_columns import cast_for_insert, check_columns_exist
from aaiclick.data.compile.relation_nodes import Scan
from aaiclick.data.compile.select_builder import KEY
from aaiclick.data.compile.statements import compile_insert
from aaiclick.data.context import DataContext, get_data_context
from aaiclick.data.errors import DataError
from aaiclick.data.io.to_arrow import ArrowRows, Schema, conform_batch, parse_schema, to_arrow_rows
from aaiclick.data.object import Object
from aaiclick.data.runtime.execute import prepare_relation, strip_identity
from aaiclick.data.runtime.tables import ADD_SOURCE, SOURCE, Columns, Shape, Table, comment_for, shape_of_many
from aaiclick.data.types import DataType, declared_text, is_type, parse_type, quote_name, quote_text, storage_type

ATTEMPT_BITS = 20
ROWS_PER_INSERT = 500_000
ROWS_PER_COPY = 1_000_000

_defining: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


@dataclass(frozen=True)
class Part:
    """Expected and written rows of one writer; `attempt` is the valid one."""

    number: int
    attempt: int
    start: int
    expected: int
    rows: int

    @property
    def source(self) -> int:
        return source_of(self.number, self.attempt)


def source_of(number: int, attempt: int) -> int:
    return number << ATTEMPT_BITS | attempt


async def create_parallel_table() -> Object:
    """Create an empty table without columns, for many writers."""
    context = get_data_context()

    async def fill(name: str) -> None:
        await context.client.layout.alter_table(name, ADD_SOURCE)

    table, _ = await context.create_table((), "table", fill)
    return Object.from_table(table)


def get_table(obj: Object) -> Table:
    return cast("Scan", strip_identity(obj.relation)).table


def describe_value(value: object, schema: Schema | None = None) -> tuple[Columns, Shape]:
    """Return the columns of a value as one of many parts; nullable, since other parts may have NULLs."""
    if isinstance(value, Object):
        requested = parse_schema(schema)
        check_columns_exist(requested, value.relation.schema)
        dtypes = {name: requested.get(name, dtype.as_nullable()) for name, dtype in value.relation.schema.items()}
        return tuple(dtypes.items()), value.shape
    rows = to_arrow_rows(value, schema, streamed=True)
    return rows.columns, rows.shape


async def write_part(obj: Object, value: object, source: int, start: int, schema: Schema | None = None) -> int:
    """Write rows marked with `source` and numbered from `start`; returns their number. No rows define no columns."""
    context = get_data_context()
    table = get_table(obj)
    if isinstance(value, Object):
        return await _write_object(context, table, value, source, start, schema)
    rows = to_arrow_rows(value, schema, streamed=True) if not table.columns else None
    size = rows.table.num_rows if rows is not None else None
    if size == 0:
        return 0
    columns = table.columns or await _define_columns(
        context, table.name, cast("ArrowRows", rows).columns, cast("ArrowRows", rows).shape
    )
    same = rows is not None and rows.columns == columns
    arrow = (
        cast("ArrowRows", rows).table if same else await asyncio.to_thread(conform_batch, value, columns, "The chunk")
    )
    for offset in range(0, arrow.num_rows, ROWS_PER_INSERT):
        piece = arrow.slice(offset, ROWS_PER_INSERT)
        body = await asyncio.to_thread(_encode_rows, piece, source, start + offset)
        await context.client.insert_arrow(
            table.name, [KEY, SOURCE, *arrow.schema.names], body, query_id=context.query_id()
        )
    return arrow.num_rows


async def _write_object(
    context: DataContext, table: Table, value: Object, source: int, start: int, schema: Schema | None
) -> int:
    rows = await value.count()
    if rows:
        context.check_relation(value.relation)
        columns = table.columns or await _define_columns(context, table.name, *describe_value(value, schema))
        relation = cast_for_insert(await prepare_relation(context, value.relation), columns)
        query = compile_insert(relation, table.name, start, (SOURCE, source))
        await context.client.run(query.text, query.parameters, query.settings, context.query_id())
    return rows


async def _define_columns(context: DataContext, name: str, columns: Columns, shape: Shape) -> Columns:
    """Add the columns unless another writer has; returns the table's columns."""
    async with _defining.setdefault(asyncio.get_running_loop(), asyncio.Lock()):  # waiting is cheaper than an ALTER
        existing, _ = await context.describe_table(name)
        if existing:
            return existing
        shape = shape_of_many(shape)
        added = [f"ADD COLUMN IF NOT EXISTS {quote_name(column)} {storage_type(dtype)}" for column, dtype in columns]
        comment = quote_text(comment_for(columns, shape))
        await context.client.layout.alter_table(name, f"{', '.join(added)}, MODIFY COMMENT {comment}")
        return (await context.describe_table(name))[0]


def _encode_rows(rows: pa.Table, source: int, start: int) -> bytes:
    keys = pa.array(np.arange(start, start + rows.num_rows, dtype=np.uint64))
    sources = pa.array(np.full(rows.num_rows, source, dtype=np.uint64))
    marked = rows.add_column(0, SOURCE, sources).add_column(0, KEY, keys)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, marked.schema) as writer:
        writer.write_table(marked)
    return sink.getvalue().to_pybytes()


# --- sealing ------------------------------------------------------------------------------------------------------


async def seal_parts(obj: Object, parts: Sequence[Part], spare: tuple[Columns, Shape] | None = None) -> Object:
    """Return an Object with exactly the rows of `parts`, in order; `spare` are its columns if no row was written."""
    context = get_data_context()
    source_table = get_table(obj).name
    columns, shape = await context.describe_table(source_table)
    if not columns:
        if spare is None:
            raise DataError("No part has any columns.", remedy="Return a table, a list or a dict of columns.")
        columns, shape = spare[0], shape_of_many(spare[1])

    async def attach_parts(name: str) -> None:
        await context.client.layout.alter_table(name, ADD_SOURCE)
        await context.client.layout.attach_rows(name, source_table)
        await _delete_stale_attempts(context, name, parts)

    if not any(part.rows for part in parts):
        table, _ = await context.create_table(columns, shape, _leave_empty)
        return Object.from_table(table)
    merged, _ = await context.create_table(columns, shape, attach_parts)
    if all(part.rows == part.expected for part in parts):
        return Object.from_table(merged)

    async def copy_parts(name: str) -> None:
        start = 0
        for batch in _group_parts(parts):
            await _copy_parts(context, merged.name, name, columns, batch, start)
            start += sum(part.rows for part in batch)

    table, _ = await context.create_table(columns, shape, copy_parts)
    merged.release()
    return Object.from_table(table)


async def _leave_empty(_: str) -> None:
    """Fill nothing."""


async def _delete_stale_attempts(context: DataContext, name: str, parts: Sequence[Part]) -> None:
    """Delete the rows of invalid attempts; raises DataError if rows of a valid one are missing."""
    counts = await context.client.read_text(
        f"SELECT {quote_name(SOURCE)} AS source, count() AS n FROM {quote_name(name)} GROUP BY source"  # noqa: S608
    )
    written: dict[int, int] = {row["source"]: row["n"] for row in counts.to_pylist()}
    for part in parts:
        row_count = written.pop(part.source, 0)
        if row_count != part.rows:
            raise DataError(
                f"Part {part.number} has {row_count:,} rows, but {part.rows:,} were written.",
                remedy="ClickHouse has lost rows: run the operator again.",
            )
    if written:
        condition = f"{quote_name(SOURCE)} IN {{stale:Array(UInt64)}}"
        await context.client.layout.delete_rows(name, condition, {"stale": sorted(written)})


def _group_parts(parts: Sequence[Part]) -> list[list[Part]]:
    batches: list[list[Part]] = [[]]
    size = 0
    for part in parts:
        if size and size + part.rows > ROWS_PER_COPY:
            batches.append([])
            size = 0
        batches[-1].append(part)
        size += part.rows
    return batches


async def _copy_parts(
    context: DataContext, source: str, target: str, columns: Columns, parts: Sequence[Part], start: int
) -> None:
    """Copy the rows of some parts with new numbers. Their old keys bound the scan, and may overlap other parts'."""
    names = ", ".join(quote_name(name) for name, _ in columns)
    key, mark = quote_name(KEY), quote_name(SOURCE)
    statement = (
        f"INSERT INTO {quote_name(target)} ({key}, {names}) "  # noqa: S608
        f"SELECT rowNumberInAllBlocks() + {{start:UInt64}}, {names} FROM ("
        f"SELECT {names} FROM {quote_name(source)} WHERE {key} >= {{low:UInt64}} AND {key} < {{high:UInt64}} "
        f"AND {mark} >= {{first:UInt64}} AND {mark} <= {{last:UInt64}} ORDER BY {mark}, {key})"
    )
    bounds = {
        "start": start,
        "low": parts[0].start,
        "high": max(part.start + part.rows for part in parts),
        "first": parts[0].source,
        "last": parts[-1].source,
    }
    settings = {"max_insert_threads": 1, "query_plan_remove_redundant_sorting": 0}
    await context.client.run(statement, bounds, settings, context.query_id())


# --- columns as JSON ----------------------------------------------------------------------------------------------


def columns_to_json(columns: Columns, shape: Shape) -> Mapping[str, object]:
    return {"shape": shape, "columns": [[name, declared_text(dtype), dtype.logical] for name, dtype in columns]}


def columns_from_json(data: Mapping[str, Any]) -> tuple[Columns, Shape]:
    columns = tuple((name, _parse_column_type(type_text, logical)) for name, type_text, logical in data["columns"])
    return columns, data["shape"]


def _parse_column_type(type_text: str, logical: str) -> DataType:
    if not is_type(type_text):  # it comes from a task's result and becomes part of a statement
        raise DataError(f"{type_text!r:.60} is not a type.", remedy="Run the operator again.")
    parsed = parse_type(type_text)
    return parsed if not logical else DataType(parsed.name, parsed.args, parsed.nullable, logical)
