"""Read-only access to Objects without a DataContext: list, describe, preview, export."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import cast

import pyarrow as pa

from aaiclick.data.compile import sql
from aaiclick.data.compile.select_builder import KEY
from aaiclick.data.compile.statements import CompiledQuery, cast_for_arrow
from aaiclick.data.errors import ObjectNotFoundError
from aaiclick.data.io.bounded_reads import PREVIEW, read_bounded, to_json_rows
from aaiclick.data.io.export import encode_batches
from aaiclick.data.io.from_arrow import normalise, normalise_batch
from aaiclick.data.runtime.clickhouse_client import connect
from aaiclick.data.runtime.tables import NAMED, Columns, Shape, is_temporary, read_definition
from aaiclick.data.types import quote_name
from aaiclick.server_addresses import ClickHouseEndpoint

_OBJECTS = """
SELECT name, comment, toString(coalesce(total_rows, 0)) AS rows, toString(coalesce(total_bytes, 0)) AS bytes,
    toString(toUnixTimestamp(metadata_modification_time)) AS changed
FROM {catalog}
WHERE database = {d:String} AND name > {after:String}
    AND (match(name, '^t[0-9]{1,19}$') OR startsWith(name, {named:String}))
    AND NOT position(comment, {marker:String}) AND ({any:Bool} OR name IN {names:Array(String)})
ORDER BY name LIMIT {limit:UInt32}
"""
_COLUMNS = "SELECT name, type FROM system.columns WHERE database = {d:String} AND table = {t:String} ORDER BY position"
_ONE = """
SELECT name, comment, toString(coalesce(total_rows, 0)) AS rows, toString(coalesce(total_bytes, 0)) AS bytes,
    toString(toUnixTimestamp(metadata_modification_time)) AS changed
FROM {catalog} WHERE database = {d:String} AND name = {t:String}
"""
SESSION_MARKER = '"aaiclick": "session"'
"""Part of the comment of tables that mark live sessions; they are no Objects."""

EXPORT_LIMITS = {"readonly": 2, "max_execution_time": 6 * 3600}
LIMITS = {"readonly": 2, "max_execution_time": 20, "max_result_bytes": 64_000_000, "result_overflow_mode": "throw"}


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """Table, size and modification time of an Object."""

    table: str
    rows: int
    bytes: int
    changed: datetime

    @property
    def name(self) -> str | None:
        """The name of a named Object."""
        return self.table.removeprefix(NAMED) if self.table.startswith(NAMED) else None


@dataclass(frozen=True, slots=True)
class ObjectDescription:
    """An Object with its columns."""

    info: ObjectInfo
    shape: Shape
    types: Columns

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        return tuple((name, str(dtype)) for name, dtype in self.types)


async def list_objects(
    endpoint: ClickHouseEndpoint, *, after: str = "", limit: int = 100, names: Sequence[str] | None = None
) -> list[ObjectInfo]:
    """List the Objects of a database, ordered by table name; optionally only some of them."""
    client = await connect(endpoint.with_database("default"))  # an org without Objects has no database yet
    parameters = {
        "d": endpoint.database, "after": after, "named": NAMED, "limit": limit, "any": names is None,
        "names": list(names or ()), "marker": SESSION_MARKER,
    }  # fmt: skip
    result = await client.read_text(client.layout.with_catalog(_OBJECTS), parameters, LIMITS)
    return [_to_info(row) for row in cast("list[dict[str, str]]", result.to_pylist())]


async def describe_object(endpoint: ClickHouseEndpoint, table: str) -> ObjectDescription:
    """Return one Object's size and columns; raises ObjectNotFoundError."""
    if not is_temporary(table) and not table.startswith(NAMED):
        raise object_not_found(table)
    client = await connect(endpoint.with_database("default"))
    parameters = {"d": endpoint.database, "t": table}
    result = await client.read_text(client.layout.with_catalog(_ONE), parameters, LIMITS)
    heads = cast("list[dict[str, str]]", result.to_pylist())
    if not heads:
        raise object_not_found(table)
    rows = cast("list[dict[str, str]]", (await client.read_text(_COLUMNS, parameters, LIMITS)).to_pylist())
    columns, shape = read_definition(heads[0]["comment"], ((row["name"], row["type"]) for row in rows))
    return ObjectDescription(_to_info(heads[0]), shape, columns)


async def preview_object(
    endpoint: ClickHouseEndpoint, table: str, *, offset: int = 0, limit: int = 100
) -> list[dict[str, object]]:
    """Return rows of an Object in order, as JSON-compatible values."""
    description = await describe_object(endpoint, table)
    client = await connect(endpoint.with_database("default"))
    key = quote_name(KEY)
    select = _select_statement(endpoint, description)
    part = f"{select} WHERE {key} >= {{first:UInt64}} AND {key} < {{last:UInt64}} ORDER BY {key}"
    arrow_table = await read_bounded(client, part, {"first": offset, "last": offset + limit}, LIMITS, PREVIEW)
    return await asyncio.to_thread(to_json_rows, normalise(arrow_table, description.types))


async def export_object(endpoint: ClickHouseEndpoint, table: str, chosen: str) -> AsyncGenerator[bytes, None]:
    """Stream all rows of an Object in order, in a file format; raises ObjectNotFoundError."""
    description = await describe_object(endpoint, table)
    client = await connect(endpoint.with_database("default"))
    text = f"{_select_statement(endpoint, description)} ORDER BY {quote_name(KEY)}"
    query = CompiledQuery(text, {}, EXPORT_LIMITS, description.types)
    batches = _normalised(client.read_batches(query), description.types)
    async with aclosing(encode_batches(batches, description.types, chosen)) as stream:
        async for piece in stream:
            yield piece


async def _normalised(
    batches: AsyncGenerator[pa.RecordBatch, None], columns: Columns
) -> AsyncGenerator[pa.RecordBatch, None]:
    async with aclosing(batches):
        async for batch in batches:
            yield normalise_batch(batch, columns)


def _select_statement(endpoint: ClickHouseEndpoint, description: ObjectDescription) -> str:
    table = description.info.table
    outputs = [
        sql.with_alias(cast_for_arrow(sql.column(table, name), dtype), name) for name, dtype in description.types
    ]
    select = ", ".join(sql.to_text(output) for output in outputs) or "1"
    return f"SELECT {select} FROM {quote_name(endpoint.database)}.{quote_name(table)}"  # noqa: S608


def _to_info(row: dict[str, str]) -> ObjectInfo:
    return ObjectInfo(
        row["name"], int(row["rows"]), int(row["bytes"]), datetime.fromtimestamp(int(row["changed"]), UTC)
    )


def object_not_found(table: str) -> ObjectNotFoundError:
    """Return the error for an Object that does not exist or is not visible to the caller."""
    return ObjectNotFoundError(f"There is no Object {table!r}.", remedy="It was dropped, or is another organisation's.")
