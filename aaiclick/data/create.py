"""Ways in: Python values, batches, queries; and Objects that keep a name."""

# pyarrow and clickhouse-connect ship no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportUnknownLambdaType=false

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any, cast

import numpy as np
import pyarrow as pa

from aaiclick.data.append import NoLockError, append, count, locked
from aaiclick.data.context import DataContext, get_data_context
from aaiclick.data.errors import ConversionError, DataError, ObjectExistsError, ObjectNotFoundError, nearest
from aaiclick.data.execute import is_table, prepare, store, strip
from aaiclick.data.frame import KEY
from aaiclick.data.matching import taken_as
from aaiclick.data.object import Object
from aaiclick.data.relations import Scan
from aaiclick.data.statements import compile_insert
from aaiclick.data.tables import NAMED, Columns, Table, check_column_names, many, named_table
from aaiclick.data.types import parse_type, quote_name
from aaiclick.data.values import Schema, conform, rows_of

ROWS_PER_INSERT = 500_000
ROWS_PER_BATCH = 250_000
"""Smaller batches of an iterator are gathered up to this size: every insert makes a part on disk."""

_LIST = (
    "SELECT name FROM system.tables"
    " WHERE database = currentDatabase() AND startsWith(name, {prefix:String}) ORDER BY name"
)


async def create_object_from_value(
    value: Any, *, name: str | None = None, schema: Schema | None = None, replace: bool = False
) -> Object:
    """Store a value: a scalar, a list, a dict of columns, a list of dicts, Arrow, pandas, polars, NumPy, or an
    iterator of these.

    `schema` gives columns other types than their values suggest. With `name` the Object outlives the context, and is
    opened again
    with `open_object(name)`.

    >>> obj = await create_object_from_value([1, 2, 3])  # doctest: +SKIP
    """
    context = get_data_context()
    if name is not None:
        named_table(name)
    if isinstance(value, Object):
        return await value if name is None else await keep(context, await _copied(context, value), name, replace)
    if isinstance(value, AsyncIterable | Iterator) or inspect.isgenerator(value):
        return await _from_batches(context, _batches(value), name, schema, replace)
    rows = await asyncio.to_thread(rows_of, value, schema) if _is_large(value) else rows_of(value, schema)

    async def fill(table: str) -> int:
        return await append_arrow(context, table, rows.table, 0)

    table, _ = await context.create_table(rows.columns, rows.shape, fill)
    return await keep(context, Object.from_table(table), name, replace)


async def _copied(context: DataContext, value: Object) -> Object:
    """A table of its own: the one given stays what and where it is."""
    context.check(value.relation)
    return Object.from_table(await store(context, await prepare(context, value.relation), value.shape))


def _is_large(value: Any) -> bool:
    return hasattr(value, "__len__") and len(value) > 10_000


async def _from_batches(
    context: DataContext, batches: AsyncIterator[Any], name: str | None, schema: Schema | None, replace: bool
) -> Object:
    first = await anext(batches, None)
    if first is None:
        raise ConversionError(
            "The iterator gave no batch, so there are no columns.",
            remedy="Yield at least one, or pass an empty dict of lists.",
        )
    rows = rows_of(first, schema, streamed=True)

    async def fill(table: str) -> int:
        pending, total, number = [rows.table], 0, 0
        async for batch in batches:
            number += 1
            pending.append(conform(batch, rows.columns, f"Batch {number}"))
            if sum(each.num_rows for each in pending) >= ROWS_PER_BATCH:
                total += await append_arrow(context, table, pa.concat_tables(pending), total)
                pending = []
        if pending:
            total += await append_arrow(context, table, pa.concat_tables(pending), total)
        return total

    table, _ = await context.create_table(rows.columns, many(rows.shape), fill)
    return await keep(context, Object.from_table(table), name, replace)


async def _batches(value: Any) -> AsyncIterator[Any]:
    if isinstance(value, AsyncIterable):
        async for batch in value:  # pyright: ignore[reportUnknownVariableType]
            yield batch
        return
    end = object()
    while (batch := await asyncio.to_thread(next, value, end)) is not end:
        yield batch


async def append_arrow(context: DataContext, table: str, rows: pa.Table, start: int) -> int:
    """Append rows numbered from `start`; returns how many."""
    for offset in range(0, rows.num_rows, ROWS_PER_INSERT):
        piece = rows.slice(offset, ROWS_PER_INSERT)
        body = (
            await asyncio.to_thread(_encoded, piece, start + offset)
            if piece.num_rows > 10_000
            else _encoded(piece, start + offset)
        )
        await context.client.insert(table, [KEY, *rows.schema.names], body, query_id=context.query_id())
    return rows.num_rows


def _encoded(rows: pa.Table, start: int) -> bytes:
    keys = pa.array(np.arange(start, start + rows.num_rows, dtype=np.uint64))
    numbered = rows.add_column(0, KEY, keys)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, numbered.schema) as writer:
        writer.write_table(numbered)
    return sink.getvalue().to_pybytes()


async def create_object_from_query(
    query: str, parameters: Mapping[str, Any] | None = None, *, name: str | None = None, replace: bool = False
) -> Object:
    """Store the result of a ClickHouse SELECT, in its order; `{p:Type}` in the text takes values from `parameters`."""
    context = get_data_context()
    text = query.strip().rstrip(";")
    describe = f"DESCRIBE TABLE (\n{text}\n)"
    described = (await context.client.read_text(describe, parameters, query_id=context.query_id())).to_pylist()
    columns: Columns = tuple((row["name"], parse_type(row["type"])) for row in described)
    check_column_names(column for column, _ in columns)

    async def fill(table: str) -> None:
        names = ", ".join(quote_name(column) for column, _ in columns)
        # The text is the user's own statement, with the rights of the user's own credential.
        target = f"{quote_name(table)} ({quote_name(KEY)}, {names})"
        insert = f"INSERT INTO {target} SELECT rowNumberInAllBlocks(), {names} FROM (\n{text}\n)"  # noqa: S608
        settings = {"max_insert_threads": 1, "query_plan_remove_redundant_sorting": 0}
        await context.client.run(insert, parameters, settings, context.query_id())

    table, _ = await context.create_table(columns, "table", fill)
    return await keep(context, Object.from_table(table), name, replace)


async def insert(target: Object, value: Any) -> int:
    """Append rows to an Object that is a table: a value of the same columns, or another Object. Returns the new length.

    Any number of writers, in any number of processes, may append at once: each one's rows stay together, in its order.
    If it fails, the Object is as before.
    """
    relation = strip(target.relation)
    if not isinstance(relation, Scan) or not is_table(relation):
        raise DataError(
            "Rows are appended to a table, and this Object is an expression.", remedy="Use `obj = await obj` first."
        )
    table = relation.table
    if table.shape == "scalar":
        raise DataError("Rows are appended to a table or a column, and this Object is one value.")
    context = target.context
    context.check(relation)
    fill = await _filling(context, table, value)
    async with context.append_locks.setdefault(table.name, asyncio.Lock()):
        try:
            return await append(context, table, fill)
        except NoLockError:
            return await _append_alone(context, table.name, fill)


async def _filling(context: DataContext, table: Table, value: Any) -> Callable[[str, int], Awaitable[None]]:
    """What writes the value to a table, numbered from a start."""
    if isinstance(value, Object):
        names = [name for name, _ in table.columns]
        if len(names) > 1 and sorted(value.columns) != sorted(names):
            raise ConversionError(
                f"The columns differ: {names} and {value.columns}.", remedy="Select or rename them first."
            )
        context.check(value.relation)
        shown = taken_as(value.relation, table.columns)

        async def compute(name: str, start: int) -> None:
            query = compile_insert(await prepare(context, shown), name, start)
            await context.client.run(query.text, query.parameters, query.settings, context.query_id())

        return compute
    rows = conform(value, table.columns, "The value")

    async def send(name: str, start: int) -> None:
        await append_arrow(context, name, rows, start)

    return send


async def _append_alone(context: DataContext, table: str, fill: Callable[[str, int], Awaitable[None]]) -> int:
    """For the engines that have no locks: this process alone may append."""
    await fill(table, await count(context, table))
    return await count(context, table)


# --- names -------------------------------------------------------------------------------------------------------


async def keep(context: DataContext, made: Object, name: str | None, replace: bool) -> Object:
    """Give a freshly made table its name in one step: nobody ever sees it half filled."""
    if name is None:
        return made
    target = named_table(name)
    table = cast("Scan", strip(made.relation)).table
    exists = name in await list_objects()
    if exists and not replace:
        raise ObjectExistsError(
            f"There is an Object named {name!r} already.", remedy="Open it, delete it, or pass replace=True."
        )
    if exists:
        await _exchange(context, table.name, target)
    else:
        rename = f"RENAME TABLE {quote_name(table.name)} TO {quote_name(target)}"
        await context.client.run(rename, query_id=context.query_id())
    await context.lifecycle.name(target, name)
    table.release()
    return Object.from_table(await context.open_table(target))


async def _exchange(context: DataContext, table: str, target: str) -> None:
    """Under the lock of appends: rows that were numbered for the old table must not arrive in the new one."""
    exchange = f"EXCHANGE TABLES {quote_name(table)} AND {quote_name(target)}"
    try:
        async with locked(context, target, table):
            await context.client.run(exchange, query_id=context.query_id())
    except NoLockError:
        await context.client.run(exchange, query_id=context.query_id())


async def open_object(name: str) -> Object:
    """A named Object."""
    context = get_data_context()
    try:
        return Object.from_table(await context.open_table(named_table(name)))
    except ObjectNotFoundError:
        raise await _unknown(name) from None


async def list_objects() -> list[str]:
    """The names of all named Objects."""
    context = get_data_context()
    rows = await context.client.read_text(_LIST, {"prefix": NAMED}, query_id=context.query_id())
    return [each.removeprefix(NAMED) for each in rows.column(0).to_pylist()]


async def delete_object(name: str) -> None:
    """Delete a named Object and its rows."""
    if name not in await list_objects():
        raise await _unknown(name)
    context, table = get_data_context(), named_table(name)
    await context.lifecycle.unname(table, name)
    await context.client.layout.drop(table, context.query_id())


async def _unknown(name: str) -> ObjectNotFoundError:
    return ObjectNotFoundError(f"There is no Object named {name!r}.", remedy=nearest(name, await list_objects()))
