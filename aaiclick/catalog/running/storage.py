"""The tables of datasets in ClickHouse: one per generation, changed by whole updates only.

An update is staged in a table of its own (counted and swept like an Object's), then put in place by one statement that
ClickHouse does as a whole:

- *append*: the parts are attached. The table keeps the newest row of each key (ReplacingMergeTree, by the ticket of the
  update), so an update that comes twice adds nothing;
- *replace*: the tables change places;
- *replace* of one slice (a job per partition of its input): the partition is replaced. A hidden column says which slice
  a row belongs to.

Readers name the columns they want, so hidden ones stay hidden, and see the table before or after an update. Generations
of Parquet files are staged alike; which files they are `parquet` says.
"""

# pyarrow ships no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal
from uuid import uuid4

from aaiclick.catalog.errors import DatasetError
from aaiclick.catalog.queries.dataset_sql import PhysicalTable
from aaiclick.catalog.running import parquet
from aaiclick.catalog.running.parquet import File
from aaiclick.data.bounded_reads import ReadLimits, read_bounded
from aaiclick.data.client import Client
from aaiclick.data.context import DataContext
from aaiclick.data.tables import new_table_name
from aaiclick.data.types import quote_name, quote_text

VERSION = "aai_version"
SLICE = "aai_slice"
RESERVED = "aai_"
PARTITION, ROWS, DIGEST = "aai_partition", "aai_rows", "aai_digest"
"""What is selected beside columns of a dataset: a column that is called like an alias would be taken for it."""

NO_VALUE = "\\N"
"""The partition of rows whose partition column is NULL."""

MAX_PARTITIONS = 10_000
PARTITIONS_READ = ReadLimits(rows=MAX_PARTITIONS + 1, bytes=16 << 20)

Mode = Literal["append", "replace", "slice"]
Columns = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """How a generation is kept: what its readers have to know."""

    columns: tuple[tuple[str, str], ...]
    mode: Mode
    unique_key: tuple[str, ...] = ()
    partition_by: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "columns": [list(each) for each in self.columns],
            "mode": self.mode,
            "unique_key": list(self.unique_key),
            "partition_by": self.partition_by,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Layout:
        columns = tuple((str(name), str(kind)) for name, kind in data["columns"])
        return cls(columns, data["mode"], tuple(data["unique_key"]), data["partition_by"])

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.columns)

    @property
    def schema_hash(self) -> str:
        return hashlib.sha256(json.dumps([list(each) for each in self.columns]).encode()).hexdigest()

    @property
    def stored(self) -> tuple[tuple[str, str], ...]:
        """The columns with the one that says which row of a key is the newest."""
        return (*self.columns, (VERSION, "UInt64")) if self.mode == "append" else self.columns

    def physical(self, table: str, partition: str | None = None, files: Sequence[File] = ()) -> PhysicalTable:
        """The table, or the files of a prefix, as queries see it: all of it, or the rows of one partition."""
        only = (self.partition_by, partition) if self.partition_by is not None and partition else None
        if parquet.is_foreign(table):
            source = parquet.select_of("", files, self.columns, (), VERSION)
            return PhysicalTable(f"files {uuid4().hex}", self.names, hidden=True, only=only, source=source)
        if parquet.is_prefix(table):
            keys = self.unique_key if self.mode == "append" else ()
            source = parquet.select_of(table, files, self.columns, keys, VERSION)
            return PhysicalTable(f"files {uuid4().hex}", self.names, hidden=True, only=only, source=source)
        return PhysicalTable(table, self.names, final=self.mode == "append", hidden=self.mode != "replace", only=only)

    def select(self, table: str, partition: str | None = None, files: Sequence[File] = ()) -> str:
        """A SELECT of the columns."""
        return self.physical(table, partition, files).select()


def partition_of(column: str) -> str:
    """The partition of a row, as text."""
    return f"ifNull(toString({quote_name(column)}), {quote_text(NO_VALUE)})"


async def partitions(client: Client, partition_by: str, select: str, query_id: str = "") -> set[str]:
    """Every partition that a SELECT of a dataset has rows of."""
    found = await client.read_text(
        f"SELECT DISTINCT {partition_of(partition_by)} AS {PARTITION} FROM ({select})",  # noqa: S608
        query_id=query_id,
    )
    return set(found.column(0).to_pylist())


@dataclass(frozen=True, slots=True)
class Staged:
    """Rows in a table of their own, not in place yet: how many of each partition, and what they are."""

    table: str
    layout: Layout
    rows: int
    partitions: dict[str, tuple[int, str]]
    file: File | None = None
    """The file that has them, if the generation is kept in files; none if there are no rows."""
    merged: tuple[str, ...] = ()
    """Files whose rows are in that one, too."""
    attached: tuple[File, ...] = ()
    """Of files that another program writes: where they are."""


async def describe(context: DataContext, select: str, settings: str = "") -> tuple[tuple[str, str], ...]:
    """Columns and types of a SELECT."""
    given = f" SETTINGS {settings}" if settings else ""
    found = await context.client.read_text(f"DESCRIBE TABLE (\n{select}\n){given}", query_id=context.query_id())
    return tuple((row["name"], row["type"]) for row in found.to_pylist())


async def existing(context: DataContext, table: str) -> tuple[tuple[str, str], ...]:
    """Columns of a table without the hidden ones; none if there is no such table."""
    found = await context.client.read_text(
        "SELECT name, type FROM system.columns WHERE database = currentDatabase() AND table = {t:String}"
        " ORDER BY position",
        {"t": table},
        query_id=context.query_id(),
    )
    return tuple((row["name"], row["type"]) for row in found.to_pylist() if not row["name"].startswith(RESERVED))


@asynccontextmanager
async def staged(
    context: DataContext,
    select: str,
    layout: Layout,
    there: tuple[tuple[str, str], ...],
    ticket: int,
    slice_key: str = "",
) -> AsyncGenerator[Staged]:
    """The rows of a SELECT, in a table that is gone afterwards; `there` are the columns of the rows that they join."""
    if there:
        if {name for name, _ in there} != set(layout.names):
            raise DatasetError(
                f"The rows have the columns {', '.join(layout.names)}, and the dataset has "
                f"{', '.join(name for name, _ in there)}.",
                remedy="Change the job so that a new generation is made (python: its version), or keep the columns.",
            )
        layout = replace(layout, columns=there)
    name = new_table_name()
    await context.lifecycle.reserve(name)
    try:
        await context.client.run(_create(name, layout), query_id=context.query_id())
        await context.client.run(_fill(name, select, layout, ticket, slice_key), query_id=context.query_id())
        rows, partitions = await _look(context, name, layout)
        yield Staged(name, layout, rows, partitions)
    finally:
        try:
            await context.client.run(f"DROP TABLE IF EXISTS {quote_name(name)}", query_id=context.query_id())
        finally:
            context.lifecycle.decref(name)


def _create(name: str, layout: Layout) -> str:
    fields = [f"{quote_name(column)} {kind}" for column, kind in layout.columns]
    if layout.mode == "append":
        keys = ", ".join(quote_name(each) for each in layout.unique_key)
        fields.append(f"{VERSION} UInt64")
        engine = f"ReplacingMergeTree({VERSION}) ORDER BY ({keys}) SETTINGS allow_nullable_key = 1"
    elif layout.mode == "slice":
        fields.append(f"{SLICE} String")
        engine = f"MergeTree ORDER BY tuple() PARTITION BY {SLICE}"
    else:
        engine = "MergeTree ORDER BY tuple()"
    return f"CREATE TABLE {quote_name(name)} ({', '.join(fields)}) ENGINE = {engine}"


def _fill(name: str, select: str, layout: Layout, ticket: int, slice_key: str) -> str:
    columns = [quote_name(each) for each in layout.names]
    values = list(columns)
    if layout.mode == "append":
        columns.append(VERSION)
        values.append(f"toUInt64({int(ticket)})")
    elif layout.mode == "slice":
        columns.append(SLICE)
        values.append(quote_text(slice_key))
    return (
        f"INSERT INTO {quote_name(name)} ({', '.join(columns)}) "  # noqa: S608  (names and texts are quoted)
        f"SELECT {', '.join(values)} FROM (\n{select}\n)"
    )


async def _look(context: DataContext, name: str, layout: Layout) -> tuple[int, dict[str, tuple[int, str]]]:
    """How many rows of which partitions, and a sum that tells two contents apart."""
    key = quote_text("") if layout.partition_by is None else partition_of(layout.partition_by)
    values = ", ".join(quote_name(each) for each in layout.names)
    text = (
        f"SELECT {key} AS {PARTITION}, count() AS {ROWS}, hex(sum(cityHash64({values}))) AS {DIGEST} "  # noqa: S608
        f"FROM {quote_name(name)} GROUP BY {PARTITION} ORDER BY {PARTITION} LIMIT {MAX_PARTITIONS + 1}"
    )
    found = await read_bounded(context.client, text, None, {}, PARTITIONS_READ, context.query_id())
    partitions = partitions_found(found.to_pylist(), layout)
    return sum(count for count, _ in partitions.values()), partitions


def partitions_found(rows: Sequence[Mapping[str, Any]], layout: Layout) -> dict[str, tuple[int, str]]:
    """Rows and digest of each partition; refuses too many."""
    partitions = {row[PARTITION]: (row[ROWS], f"{row[ROWS]}:{row[DIGEST]}") for row in rows}
    if len(partitions) > MAX_PARTITIONS:
        raise DatasetError(
            f"The column {layout.partition_by!r} has more than {MAX_PARTITIONS:,} values.",
            remedy="Partition by something with fewer, for example a day.",
        )
    return partitions


async def touched(context: DataContext, before: str, rows: Staged) -> set[str]:
    """Partitions in which rows are about to be replaced by the staged ones; `before` is a SELECT of those there are,
    of the same slice.
    """
    layout = rows.layout
    if layout.mode == "replace" or layout.partition_by is None or not before:
        return set()
    where = "true"
    if layout.mode == "append":
        keys = ", ".join(quote_name(each) for each in layout.unique_key)
        where = f"({keys}) IN (SELECT {keys} FROM {quote_name(rows.table)})"  # noqa: S608
    found = await context.client.read_text(
        f"SELECT DISTINCT {partition_of(layout.partition_by)} AS {PARTITION} FROM ({before}) WHERE {where}",  # noqa: S608
        query_id=context.query_id(),
    )
    return set(found.column(0).to_pylist())


def slice_select(layout: Layout, table: str, slice_key: str) -> str:
    """A SELECT of the rows of one slice of a table."""
    names = ", ".join(quote_name(each) for each in layout.names)
    return f"SELECT {names} FROM {quote_name(table)} WHERE {SLICE} = {quote_text(slice_key)}"  # noqa: S608


def stored_select(rows: Staged) -> str:
    """A SELECT of staged rows as files keep them; of a key the newest alone."""
    names = ", ".join(quote_name(name) for name, _ in rows.layout.stored)
    final = " FINAL" if rows.layout.mode == "append" else ""
    return f"SELECT {names} FROM {quote_name(rows.table)}{final}"  # noqa: S608


async def join(context: DataContext, rows: Staged, location: str, files: Sequence[File]) -> None:
    """Have the rows of files beside the staged ones."""
    stored = rows.layout.stored
    names = ", ".join(quote_name(name) for name, _ in stored)
    await _run(context, f"INSERT INTO {quote_name(rows.table)} ({names}) {parquet.rows_of(location, files, stored)}")


async def put_in_place(client: Client, target: str, rows: Staged, slice_key: str = "", query_id: str = "") -> None:
    """The staged rows become the target's, all at once; done twice, nothing changes."""
    there, staging = quote_name(target), quote_name(rows.table)
    await client.run(f"CREATE TABLE IF NOT EXISTS {there} AS {staging}", query_id=query_id)
    if rows.layout.mode == "replace":
        change = f"EXCHANGE TABLES {there} AND {staging}"
    elif rows.layout.mode == "append":
        change = f"ALTER TABLE {there} ATTACH PARTITION tuple() FROM {staging}" if rows.rows else ""
    elif rows.rows:
        change = f"ALTER TABLE {there} REPLACE PARTITION {quote_text(slice_key)} FROM {staging}"
    else:
        change = f"ALTER TABLE {there} DROP PARTITION {quote_text(slice_key)}"
    if change:
        await client.run(change, query_id=query_id)


async def empty(context: DataContext, target: str) -> None:
    await _run(context, f"TRUNCATE TABLE IF EXISTS {quote_name(target)}")


async def drop(context: DataContext, tables: Sequence[str]) -> None:
    for table in tables:
        await _run(context, f"DROP TABLE IF EXISTS {quote_name(table)}")


async def count(context: DataContext, select: str) -> int:
    """How many rows readers see."""
    found = await context.client.read_text(f"SELECT count() FROM ({select})", query_id=context.query_id())  # noqa: S608
    return int(found.column(0)[0].as_py())


async def _run(context: DataContext, text: str) -> None:
    await context.client.run(text, query_id=context.query_id())
