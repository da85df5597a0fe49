"""Create Objects from Python values, batches and queries; named Objects."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any, cast

import pyarrow as pa

from aaiclick.data.argument_checks import check_arguments
from aaiclick.data.compile.join_columns import cast_for_insert
from aaiclick.data.compile.relation_nodes import Scan
from aaiclick.data.compile.select_builder import KEY
from aaiclick.data.compile.statements import compile_insert
from aaiclick.data.context import DataContext, get_data_context
from aaiclick.data.errors import ConversionError, DataError, ObjectExistsError, ObjectNotFoundError, suggest_name
from aaiclick.data.io.to_arrow import ArrowRows, Schema, conform_batch, to_arrow_rows
from aaiclick.data.object import Object
from aaiclick.data.pending_result import explain_await
from aaiclick.data.runtime.append import NoLockError, append_lock, append_rows, count_rows
from aaiclick.data.runtime.execute import is_table, prepare_relation, store_table, strip_identity
from aaiclick.data.runtime.literal_result_rows import LiteralRows, encode_numbered_rows
from aaiclick.data.runtime.tables import (
    NAMED,
    Columns,
    Table,
    check_column_names,
    check_columns,
    named_table,
    shape_of_many,
)
from aaiclick.data.types import parse_type, quote_name

ROWS_PER_INSERT = 500_000
ROWS_PER_BATCH = 250_000
"""Batches of an iterator are combined up to this size, since every INSERT creates a part on disk."""

_LIST_TABLES = (
    "SELECT name FROM system.tables"
    " WHERE database = currentDatabase() AND startsWith(name, {prefix:String}) ORDER BY name"
)


@check_arguments
@explain_await
async def create_object_from_value(
    value: Any, *, name: str | None = None, schema: Schema | None = None, replace: bool = False
) -> Object:
    """Store a value as an Object.

    The value is a scalar, a list, a dict of columns, a list of dicts, Arrow, pandas, polars, NumPy, or an iterator of
    these.

    `schema` overrides inferred column types. With `name` the Object outlives the context and can be opened with
    `open_object(name)`.

    ```python
    await (await create_object_from_value([1, 2, 3])).sum().data()  # 6
    ```
    """
    context = get_data_context()
    if name is not None:
        named_table(name)
    if isinstance(value, Object):
        return (
            await value
            if name is None
            else await assign_name(context, await _copy_object(context, value), name, replace)
        )
    if isinstance(value, AsyncIterable | Iterator) or inspect.isgenerator(value):
        return await _from_batches(context, _iter_batches(value), name, schema, replace)
    rows = await asyncio.to_thread(to_arrow_rows, value, schema) if _is_large(value) else to_arrow_rows(value, schema)

    return await assign_name(context, await create_object_from_rows(rows), name, replace)


async def create_object_from_rows(rows: ArrowRows) -> Object:
    """Store converted rows as an Object: a literal if the context allows it, else a table."""
    context = get_data_context()
    if rows.table.nbytes <= context.max_literal_bytes:
        check_columns(rows.columns)
        return Object.from_table(context.add_literal(rows.columns, rows.shape, LiteralRows(rows.table, rows.columns)))

    async def fill_table(table: str) -> int:
        return await append_arrow(context, table, rows.table, 0)

    table, _ = await context.create_table(rows.columns, rows.shape, fill_table)
    return Object.from_table(table)


async def _copy_object(context: DataContext, value: Object) -> Object:
    """Copy the rows of an Object to a new table."""
    context.check_relation(value.relation)
    return Object.from_table(await store_table(context, await prepare_relation(context, value.relation), value.shape))


def _is_large(value: Any) -> bool:
    return hasattr(value, "__len__") and len(value) > 10_000


async def _from_batches(
    context: DataContext, batches: AsyncIterator[object], name: str | None, schema: Schema | None, replace: bool
) -> Object:
    first = await anext(batches, None)
    if first is None:
        raise ConversionError(
            "The iterator yielded no batch, so the columns are unknown.",
            remedy="Yield at least one, or pass an empty dict of lists.",
        )
    rows = to_arrow_rows(first, schema, streamed=True)

    async def fill_table(table: str) -> int:
        pending, total, number = [rows.table], 0, 0
        async for batch in batches:
            number += 1
            pending.append(conform_batch(batch, rows.columns, f"Batch {number}"))
            if sum(rows.num_rows for rows in pending) >= ROWS_PER_BATCH:
                total += await append_arrow(context, table, pa.concat_tables(pending), total)
                pending = []
        if pending:
            total += await append_arrow(context, table, pa.concat_tables(pending), total)
        return total

    table, _ = await context.create_table(rows.columns, shape_of_many(rows.shape), fill_table)
    return await assign_name(context, Object.from_table(table), name, replace)


async def _iter_batches(value: Any) -> AsyncIterator[Any]:
    if isinstance(value, AsyncIterable):
        async for batch in value:  # pyright: ignore[reportUnknownVariableType]
            yield batch
        return
    end = object()
    while (batch := await asyncio.to_thread(next, value, end)) is not end:
        yield batch


async def append_arrow(context: DataContext, table: str, rows: pa.Table, start: int) -> int:
    """Append rows numbered from `start` and return their number."""
    for offset in range(0, rows.num_rows, ROWS_PER_INSERT):
        chunk = rows.slice(offset, ROWS_PER_INSERT)
        body = (
            await asyncio.to_thread(encode_numbered_rows, chunk, start + offset)
            if chunk.num_rows > 10_000
            else encode_numbered_rows(chunk, start + offset)
        )
        await context.client.insert_arrow(table, [KEY, *rows.schema.names], body, query_id=context.query_id())
    return rows.num_rows


@check_arguments
@explain_await
async def create_object_from_query(
    query: str, parameters: Mapping[str, object] | None = None, *, name: str | None = None, replace: bool = False
) -> Object:
    """Store the result of a ClickHouse SELECT, keeping its order; `{p:Type}` placeholders are bound to `parameters`.

    ```python
    await create_object_from_query("SELECT number FROM numbers({n:UInt8})", {"n": 3}, name="three")
    ```
    """
    context = get_data_context()
    text = query.strip().rstrip(";")
    describe = f"DESCRIBE TABLE (\n{text}\n)"
    described = (await context.client.read_text(describe, parameters, query_id=context.query_id())).to_pylist()
    columns: Columns = tuple((row["name"], parse_type(row["type"])) for row in described)
    check_column_names(column for column, _ in columns)

    async def fill_table(table: str) -> None:
        names = ", ".join(quote_name(column) for column, _ in columns)
        # The user's own statement, run with the permissions of the user's credential.
        target = f"{quote_name(table)} ({quote_name(KEY)}, {names})"
        insert = f"INSERT INTO {target} SELECT rowNumberInAllBlocks(), {names} FROM (\n{text}\n)"  # noqa: S608
        settings = {"max_insert_threads": 1, "query_plan_remove_redundant_sorting": 0}
        await context.client.run(insert, parameters, settings, context.query_id())

    table, _ = await context.create_table(columns, "table", fill_table)
    return await assign_name(context, Object.from_table(table), name, replace)


@check_arguments
@explain_await
async def insert(target: Object, value: object) -> int:
    """Append rows (a value with the same columns, or another Object) to a stored Object; return its new length.

    Safe for concurrent writers in any number of processes: the rows of one call stay together and in order. If it
    fails, the Object is unchanged.

    ```python
    pair = await (await create_object_from_value([1, 2]))
    await insert(pair, [3])  # 3
    ```
    """
    relation = strip_identity(target.relation)
    if not isinstance(relation, Scan) or not is_table(relation):
        raise DataError(
            "Rows can be appended to a table only, and this Object is a lazy expression.",
            remedy="Use `obj = await obj` first.",
        )
    table = relation.table
    if table.shape == "scalar":
        raise DataError("Rows can be appended to a table or a column, not to a scalar.")
    context = target.context
    context.check_relation(relation)
    context.check_writable("rows that it has received", table.name)
    await context.store_literal(table)
    fill = await _prepare_write(context, table, value)
    async with context.append_locks.setdefault(table.name, asyncio.Lock()):
        try:
            return await append_rows(context, table, fill)
        except NoLockError:
            return await _append_without_lock(context, table.name, fill)


async def _prepare_write(context: DataContext, table: Table, value: object) -> Callable[[str, int], Awaitable[None]]:
    """Validate the value and return a function that writes it to a table, numbered from a start."""
    if isinstance(value, Object):
        names = [name for name, _ in table.columns]
        if len(names) > 1 and sorted(value.columns) != sorted(names):
            raise ConversionError(
                f"The columns differ: {names} and {value.columns}.", remedy="Select or rename them first."
            )
        context.check_relation(value.relation)
        shown = cast_for_insert(value.relation, table.columns)

        async def write_query(name: str, start: int) -> None:
            query = compile_insert(await prepare_relation(context, shown), name, start)
            await context.client.run(query.text, query.parameters, query.settings, context.query_id())

        return write_query
    rows = conform_batch(value, table.columns, "The value")

    async def write_rows(name: str, start: int) -> None:
        await append_arrow(context, name, rows, start)

    return write_rows


async def _append_without_lock(context: DataContext, table: str, fill: Callable[[str, int], Awaitable[None]]) -> int:
    """Append on an engine without table locks; only one process may append to such a table."""
    await fill(table, await count_rows(context, table))
    return await count_rows(context, table)


# --- names -------------------------------------------------------------------------------------------------------


async def assign_name(context: DataContext, obj: Object, name: str | None, replace: bool) -> Object:
    """Rename or exchange a new table to its final name, so that readers never see it partly filled."""
    if name is None:
        return obj
    target = named_table(name)
    context.check_writable(f"the named Object {name!r}")
    table = cast("Scan", strip_identity(obj.relation)).table
    await context.store_literal(table)
    exists = name in await list_objects()
    if exists and not replace:
        raise ObjectExistsError(
            f"An Object named {name!r} already exists.", remedy="Open it, delete it, or pass replace=True."
        )
    if exists:
        await _exchange_tables(context, table.name, target)
    else:
        rename = f"RENAME TABLE {quote_name(table.name)} TO {quote_name(target)}"
        await context.client.run(rename, query_id=context.query_id())
    await context.lifecycle.name_table(target, name)
    table.release()
    return Object.from_table(await context.open_table(target))


async def _exchange_tables(context: DataContext, table: str, target: str) -> None:
    """Swap two tables under the append lock: rows numbered for the old table must not be added to the new one."""
    exchange = f"EXCHANGE TABLES {quote_name(table)} AND {quote_name(target)}"
    try:
        async with append_lock(context, target, table):
            await context.client.run(exchange, query_id=context.query_id())
    except NoLockError:
        await context.client.run(exchange, query_id=context.query_id())


@check_arguments
@explain_await
async def open_object(name: str) -> Object:
    """Open a named Object.

    ```python
    await create_object_from_value([1, 2], name="pair")
    await (await open_object("pair")).data()  # [1, 2]
    ```
    """
    context = get_data_context()
    try:
        return Object.from_table(await context.open_table(named_table(name)))
    except ObjectNotFoundError:
        raise await _unknown_object_error(name) from None


@check_arguments
@explain_await
async def list_objects() -> list[str]:
    """List the names of all named Objects.

    ```python
    await create_object_from_value([1, 2], name="pairs", replace=True)
    "pairs" in await list_objects()  # True
    ```
    """
    context = get_data_context()
    rows = await context.client.read_text(_LIST_TABLES, {"prefix": NAMED}, query_id=context.query_id())
    return [table.removeprefix(NAMED) for table in rows.column(0).to_pylist()]


@check_arguments
@explain_await
async def delete_object(name: str) -> None:
    """Delete a named Object and its rows.

    ```python
    await create_object_from_value([1, 2], name="old pair")
    await delete_object("old pair")
    ```
    """
    get_data_context().check_writable(f"the named Object {name!r}")
    if name not in await list_objects():
        raise await _unknown_object_error(name)
    context, table = get_data_context(), named_table(name)
    await context.lifecycle.unname_table(table, name)
    await context.client.layout.drop_table(table, context.query_id())


async def _unknown_object_error(name: str) -> ObjectNotFoundError:
    return ObjectNotFoundError(f"There is no Object named {name!r}.", remedy=suggest_name(name, await list_objects()))
