"""One table that many writers fill at once, in other processes and perhaps more than once each.

Every writer has a number and its place in the order. Its rows carry the number and the attempt (`aai_source`) beside
the key that they would have if every writer gave the rows it was expected to. Whose attempts count is decided
elsewhere; `seal` then takes what was written over into a table of its own, which nobody writes to any more, and
removes the rest. If the numbers of rows are the expected ones nothing is copied (`ATTACH PARTITION` links the files).

Columns are those of the first rows that arrive, so that nobody needs to know them before; until then the table has
none.
"""

# pyarrow ships no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa

from aaiclick.data.context import DataContext, get_data_context
from aaiclick.data.errors import DataError
from aaiclick.data.execute import prepare, strip
from aaiclick.data.frame import KEY
from aaiclick.data.matching import known, taken_as
from aaiclick.data.object import Object
from aaiclick.data.relations import Scan
from aaiclick.data.statements import compile_insert
from aaiclick.data.tables import ADD_SOURCE, SOURCE, Columns, Shape, Table, comment_for, many
from aaiclick.data.types import DataType, is_type, parse_type, quote_name, quote_text
from aaiclick.data.values import Rows, Schema, conform, rows_of, types_of

ATTEMPT_BITS = 20
ROWS_PER_INSERT = 500_000
ROWS_PER_COPY = 1_000_000

_defining: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


@dataclass(frozen=True)
class Part:
    """What one writer was to write and has written; `attempt` is the one that counts."""

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


async def create_gathering() -> Object:
    """An empty table without columns, to be filled by many."""
    context = get_data_context()

    async def fill(name: str) -> None:
        await context.client.layout.define(name, ADD_SOURCE)

    table, _ = await context.create_table((), "table", fill)
    return Object.from_table(table)


def table_of(target: Object) -> Table:
    return cast("Scan", strip(target.relation)).table


def described(value: Any, schema: Schema | None = None) -> tuple[Columns, Shape]:
    """The columns that a value would have as one of many parts; they admit NULL, since other parts may hold some."""
    if isinstance(value, Object):
        wanted = types_of(schema)
        known(wanted, value.relation.schema)
        kinds = {name: wanted.get(name, kind.as_nullable()) for name, kind in value.relation.schema.items()}
        return tuple(kinds.items()), value.shape
    rows = rows_of(value, schema, streamed=True)
    return rows.columns, rows.shape


async def write_part(target: Object, value: Any, source: int, start: int, schema: Schema | None = None) -> int:
    """Add rows under the name `source`, numbered from `start`; returns how many. No rows say nothing about columns."""
    context = get_data_context()
    table = table_of(target)
    if isinstance(value, Object):
        return await _write_object(context, table, value, source, start, schema)
    rows = rows_of(value, schema, streamed=True) if not table.columns else None
    size = rows.table.num_rows if rows is not None else None
    if size == 0:
        return 0
    columns = table.columns or await _define(context, table.name, cast("Rows", rows).columns, cast("Rows", rows).shape)
    same = rows is not None and rows.columns == columns
    arrow = cast("Rows", rows).table if same else await asyncio.to_thread(conform, value, columns, "The chunk")
    for offset in range(0, arrow.num_rows, ROWS_PER_INSERT):
        piece = arrow.slice(offset, ROWS_PER_INSERT)
        body = await asyncio.to_thread(_encoded, piece, source, start + offset)
        await context.client.insert(table.name, [KEY, SOURCE, *arrow.schema.names], body, query_id=context.query_id())
    return arrow.num_rows


async def _write_object(
    context: DataContext, table: Table, value: Object, source: int, start: int, schema: Schema | None
) -> int:
    rows = await value.count()
    if rows:
        context.check(value.relation)
        columns = table.columns or await _define(context, table.name, *described(value, schema))
        relation = taken_as(await prepare(context, value.relation), columns)
        query = compile_insert(relation, table.name, start, (SOURCE, source))
        await context.client.run(query.text, query.parameters, query.settings, context.query_id())
    return rows


async def _define(context: DataContext, name: str, columns: Columns, shape: Shape) -> Columns:
    """Give the table its columns, unless somebody has; returns those it has then."""
    async with _defining.setdefault(asyncio.get_running_loop(), asyncio.Lock()):  # an ALTER costs more than waiting
        there, _ = await context.describe_table(name)
        if there:
            return there
        shape = many(shape)
        added = [f"ADD COLUMN IF NOT EXISTS {quote_name(column)} {kind}" for column, kind in columns]
        comment = quote_text(comment_for(columns, shape))
        await context.client.layout.define(name, f"{', '.join(added)}, MODIFY COMMENT {comment}")
        return (await context.describe_table(name))[0]


def _encoded(rows: pa.Table, source: int, start: int) -> bytes:
    keys = pa.array(np.arange(start, start + rows.num_rows, dtype=np.uint64))
    sources = pa.array(np.full(rows.num_rows, source, dtype=np.uint64))
    marked = rows.add_column(0, SOURCE, sources).add_column(0, KEY, keys)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, marked.schema) as writer:
        writer.write_table(marked)
    return sink.getvalue().to_pybytes()


# --- sealing ------------------------------------------------------------------------------------------------------


async def seal(target: Object, parts: Sequence[Part], spare: tuple[Columns, Shape] | None = None) -> Object:
    """An Object of exactly the rows of `parts`, in their order; `spare` are its columns if nobody wrote any row."""
    context = get_data_context()
    gathering = table_of(target).name
    columns, shape = await context.describe_table(gathering)
    if not columns:
        if spare is None:
            raise DataError("No part has any columns.", remedy="Return a table, a list or a dict of columns.")
        columns, shape = spare[0], many(spare[1])

    async def take_over(name: str) -> None:
        await context.client.layout.define(name, ADD_SOURCE)
        await context.client.layout.attach(name, gathering)
        await _remove_others(context, name, parts)

    if not any(part.rows for part in parts):
        table, _ = await context.create_table(columns, shape, _nothing)
        return Object.from_table(table)
    taken, _ = await context.create_table(columns, shape, take_over)
    if all(part.rows == part.expected for part in parts):
        return Object.from_table(taken)

    async def copy(name: str) -> None:
        start = 0
        for batch in _batches(parts):
            await _copy(context, taken.name, name, columns, batch, start)
            start += sum(part.rows for part in batch)

    table, _ = await context.create_table(columns, shape, copy)
    taken.release()
    return Object.from_table(table)


async def _nothing(_: str) -> None:
    """There is nothing to fill it with."""


async def _remove_others(context: DataContext, name: str, parts: Sequence[Part]) -> None:
    """Only the attempts that count stay; what of theirs is not there is an error."""
    found = await context.client.read_text(
        f"SELECT {quote_name(SOURCE)} AS source, count() AS n FROM {quote_name(name)} GROUP BY source"  # noqa: S608
    )
    written: dict[int, int] = {row["source"]: row["n"] for row in found.to_pylist()}
    for part in parts:
        there = written.pop(part.source, 0)
        if there != part.rows:
            raise DataError(
                f"Part {part.number} has {there:,} rows, and {part.rows:,} were written.",
                remedy="ClickHouse has lost rows: run it again.",
            )
    if written:
        others = f"{quote_name(SOURCE)} IN {{others:Array(UInt64)}}"
        await context.client.layout.delete(name, others, {"others": sorted(written)})


def _batches(parts: Sequence[Part]) -> list[list[Part]]:
    batches: list[list[Part]] = [[]]
    size = 0
    for part in parts:
        if size and size + part.rows > ROWS_PER_COPY:
            batches.append([])
            size = 0
        batches[-1].append(part)
        size += part.rows
    return batches


async def _copy(
    context: DataContext, source: str, target: str, columns: Columns, parts: Sequence[Part], start: int
) -> None:
    """Number the rows of some parts anew. Their old keys bound what is read, and may reach into those of others."""
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


def columns_to_json(columns: Columns, shape: Shape) -> Mapping[str, Any]:
    return {"shape": shape, "columns": [[name, str(kind), kind.logical] for name, kind in columns]}


def columns_from_json(form: Mapping[str, Any]) -> tuple[Columns, Shape]:
    columns = tuple((name, _typed(kind, logical)) for name, kind, logical in form["columns"])
    return columns, form["shape"]


def _typed(kind: str, logical: str) -> DataType:
    if not is_type(kind):  # out of the result of a task, and about to be part of a statement
        raise DataError(f"{kind!r:.60} is not a type.", remedy="Run the operator again.")
    parsed = parse_type(kind)
    return parsed if not logical else DataType(parsed.name, parsed.args, parsed.nullable, logical)
