"""Looking at Objects from outside of any context: which there are, what is in them. Changes nothing, keeps nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from aaiclick.data.bounded_reads import PREVIEW, read_bounded, to_json_rows
from aaiclick.data.client import connect
from aaiclick.data.errors import ObjectNotFoundError
from aaiclick.data.export import format_settings
from aaiclick.data.formats import FORMATS
from aaiclick.data.frame import KEY
from aaiclick.data.statements import Compiled
from aaiclick.data.tables import NAMED, Shape, is_temporary, read_definition
from aaiclick.data.types import quote_name
from aaiclick.targets import ClickHouseTarget

_OBJECTS = """
SELECT name, comment, toString(coalesce(total_rows, 0)) AS rows, toString(coalesce(total_bytes, 0)) AS bytes,
    toString(toUnixTimestamp(metadata_modification_time)) AS changed
FROM {catalog}
WHERE database = {d:String} AND name > {after:String}
    AND (match(name, '^t[0-9]{1,19}$') OR startsWith(name, {named:String}))
ORDER BY name LIMIT {limit:UInt32}
"""
_COLUMNS = "SELECT name, type FROM system.columns WHERE database = {d:String} AND table = {t:String} ORDER BY position"
_ONE = """
SELECT name, comment, toString(coalesce(total_rows, 0)) AS rows, toString(coalesce(total_bytes, 0)) AS bytes,
    toString(toUnixTimestamp(metadata_modification_time)) AS changed
FROM {catalog} WHERE database = {d:String} AND name = {t:String}
"""
EXPORT_LIMITS = {"readonly": 2, "max_execution_time": 6 * 3600}
LIMITS = {"readonly": 2, "max_execution_time": 20, "max_result_bytes": 64_000_000, "result_overflow_mode": "throw"}


@dataclass(frozen=True, slots=True)
class Seen:
    """One Object as ClickHouse has it."""

    table: str
    rows: int
    bytes: int
    changed: datetime

    @property
    def name(self) -> str | None:
        """The name of a named Object."""
        return self.table.removeprefix(NAMED) if self.table.startswith(NAMED) else None


@dataclass(frozen=True, slots=True)
class Described:
    """An Object with its columns."""

    seen: Seen
    shape: Shape
    columns: tuple[tuple[str, str], ...]


async def list_objects(target: ClickHouseTarget, *, after: str = "", limit: int = 100) -> list[Seen]:
    """Objects of a database, by the name of their table."""
    client = await connect(target.with_database("default"))  # an org that has made nothing yet has no database
    parameters = {"d": target.database, "after": after, "named": NAMED, "limit": limit}
    found = await client.read_text(client.layout.listing(_OBJECTS), parameters, LIMITS)
    return [_seen(row) for row in cast("list[dict[str, str]]", found.to_pylist())]


async def describe_object(target: ClickHouseTarget, table: str) -> Described:
    """One Object; raises ObjectNotFoundError."""
    if not is_temporary(table) and not table.startswith(NAMED):
        raise missing(table)
    client = await connect(target.with_database("default"))
    parameters = {"d": target.database, "t": table}
    found = await client.read_text(client.layout.listing(_ONE), parameters, LIMITS)
    heads = cast("list[dict[str, str]]", found.to_pylist())
    if not heads:
        raise missing(table)
    rows = cast("list[dict[str, str]]", (await client.read_text(_COLUMNS, parameters, LIMITS)).to_pylist())
    columns, shape = read_definition(heads[0]["comment"], ((row["name"], row["type"]) for row in rows))
    return Described(_seen(heads[0]), shape, tuple((name, str(kind)) for name, kind in columns))


async def preview_object(
    target: ClickHouseTarget, table: str, *, offset: int = 0, limit: int = 100
) -> list[dict[str, Any]]:
    """Rows of an Object in their order, as values that JSON has."""
    described = await describe_object(target, table)
    client = await connect(target.with_database("default"))
    key = quote_name(KEY)
    part = f"{_select(target, described)} WHERE {key} >= {{first:UInt64}} AND {key} < {{last:UInt64}} ORDER BY {key}"
    found = await read_bounded(client, part, {"first": offset, "last": offset + limit}, LIMITS, PREVIEW)
    return await asyncio.to_thread(to_json_rows, found)


async def export_object(target: ClickHouseTarget, table: str, chosen: str) -> AsyncGenerator[bytes, None]:
    """All rows of an Object in their order, in a file format, as they are read; raises ObjectNotFoundError."""
    described = await describe_object(target, table)
    client = await connect(target.with_database("default"))
    query = Compiled(f"{_select(target, described)} ORDER BY {quote_name(KEY)}", {}, EXPORT_LIMITS, ())
    async with aclosing(client.stream_bytes(query, FORMATS[chosen].writes, format_settings(chosen))) as stream:
        async for piece in stream:
            yield piece


def _select(target: ClickHouseTarget, described: Described) -> str:
    names = ", ".join(quote_name(name) for name, _ in described.columns) or "1"
    return f"SELECT {names} FROM {quote_name(target.database)}.{quote_name(described.seen.table)}"  # noqa: S608


def _seen(row: dict[str, str]) -> Seen:
    return Seen(row["name"], int(row["rows"]), int(row["bytes"]), datetime.fromtimestamp(int(row["changed"]), UTC))


def missing(table: str) -> ObjectNotFoundError:
    """What is said of an Object that is not there, or not there for who asks."""
    return ObjectNotFoundError(f"There is no Object {table!r}.", remedy="It was dropped, or is another organisation's.")
