"""ClickHouse tables of datasets: one per generation, changed only by whole updates.

An update is staged in a temporary table (counted and swept like an Object's), then published by one atomic statement:

- *append*: the parts are attached. The table keeps the newest row of each key (ReplacingMergeTree, by the ticket of the
  update), so repeating an update adds nothing;
- *replace*: the tables are exchanged;
- *replace* of one slice (PerPartition): the partition is replaced. A hidden column holds the slice of each row.

Readers select columns by name, so hidden columns stay hidden, and see the table before or after an update. Generations
of Parquet files are staged in the same way; `parquet_storage` manages the files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal
from uuid import uuid4

from aaiclick.catalog.errors import DatasetError
from aaiclick.catalog.execution import parquet_storage
from aaiclick.catalog.execution.parquet_storage import DataFile
from aaiclick.catalog.queries.table_rewrite import PhysicalTable
from aaiclick.data.context import DataContext
from aaiclick.data.io.bounded_reads import ReadLimits, read_bounded
from aaiclick.data.runtime.clickhouse_client import ClickHouseClient
from aaiclick.data.runtime.tables import new_table_name
from aaiclick.data.types import quote_name, quote_text

VERSION = "aai_version"
SLICE = "aai_slice"
RESERVED = "aai_"
PARTITION, ROWS, DIGEST = "aai_partition", "aai_rows", "aai_digest"
"""Aliases in queries over datasets; reserved, since a column of the same name would be ambiguous."""

NO_VALUE = "\\N"
"""The partition of rows with NULL in the partition column."""

MAX_PARTITIONS = 10_000
PARTITIONS_READ = ReadLimits(rows=MAX_PARTITIONS + 1, bytes=16 << 20)

Mode = Literal["append", "replace", "slice"]
Columns = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class DatasetLayout:
    """How a generation is stored, as far as its readers need to know."""

    columns: tuple[tuple[str, str], ...]
    mode: Mode
    unique_key: tuple[str, ...] = ()
    partition_by: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "columns": [list(column) for column in self.columns],
            "mode": self.mode,
            "unique_key": list(self.unique_key),
            "partition_by": self.partition_by,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> DatasetLayout:
        columns = tuple((str(name), str(type_name)) for name, type_name in data["columns"])
        return cls(columns, data["mode"], tuple(data["unique_key"]), data["partition_by"])

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.columns)

    @property
    def schema_hash(self) -> str:
        return hashlib.sha256(json.dumps([list(column) for column in self.columns]).encode()).hexdigest()

    @property
    def stored_columns(self) -> tuple[tuple[str, str], ...]:
        """The columns, plus the version column in append mode."""
        return (*self.columns, (VERSION, "UInt64")) if self.mode == "append" else self.columns

    def physical(self, table: str, partition: str | None = None, files: Sequence[DataFile] = ()) -> PhysicalTable:
        """Return the table or files for queries: all rows, or the rows of one partition."""
        only = (self.partition_by, partition) if self.partition_by is not None and partition else None
        if parquet_storage.is_external(table):
            source = parquet_storage.build_select("", files, self.columns, (), VERSION)
            return PhysicalTable(f"files {uuid4().hex}", self.names, hidden=True, only=only, source=source)
        if parquet_storage.is_own_prefix(table):
            keys = self.unique_key if self.mode == "append" else ()
            source = parquet_storage.build_select(table, files, self.columns, keys, VERSION)
            return PhysicalTable(f"files {uuid4().hex}", self.names, hidden=True, only=only, source=source)
        return PhysicalTable(table, self.names, final=self.mode == "append", hidden=self.mode != "replace", only=only)

    def select(self, table: str, partition: str | None = None, files: Sequence[DataFile] = ()) -> str:
        """Return a SELECT of the columns."""
        return self.physical(table, partition, files).select()


def partition_expression(column: str) -> str:
    """Return the SQL expression of a row's partition, as text."""
    return f"ifNull(toString({quote_name(column)}), {quote_text(NO_VALUE)})"


async def list_partitions(client: ClickHouseClient, partition_by: str, select: str, query_id: str = "") -> set[str]:
    """Return every partition in the rows of a SELECT."""
    result = await client.read_text(
        f"SELECT DISTINCT {partition_expression(partition_by)} AS {PARTITION} FROM ({select})",  # noqa: S608
        query_id=query_id,
    )
    return set(result.column(0).to_pylist())


@dataclass(frozen=True, slots=True)
class StagedRows:
    """Staged rows that are not published yet, with rows and digest of each partition."""

    table: str
    layout: DatasetLayout
    rows: int
    partitions: dict[str, tuple[int, str]]
    file: DataFile | None = None
    """The file with the rows of a file-based generation; None if there are no rows."""
    merged: tuple[str, ...] = ()
    """Files that were compacted into `file`."""
    attached: tuple[DataFile, ...] = ()
    """Locations of external files."""


async def describe_select(context: DataContext, select: str, settings: str = "") -> tuple[tuple[str, str], ...]:
    """Return columns and types of a SELECT."""
    settings_clause = f" SETTINGS {settings}" if settings else ""
    result = await context.client.read_text(
        f"DESCRIBE TABLE (\n{select}\n){settings_clause}", query_id=context.query_id()
    )
    return tuple((row["name"], row["type"]) for row in result.to_pylist())


async def list_columns(context: DataContext, table: str) -> tuple[tuple[str, str], ...]:
    """Return the columns of a table without hidden ones; () if there is no such table."""
    result = await context.client.read_text(
        "SELECT name, type FROM system.columns WHERE database = currentDatabase() AND table = {t:String}"
        " ORDER BY position",
        {"t": table},
        query_id=context.query_id(),
    )
    return tuple((row["name"], row["type"]) for row in result.to_pylist() if not row["name"].startswith(RESERVED))


@asynccontextmanager
async def stage_rows(
    context: DataContext,
    select: str,
    layout: DatasetLayout,
    existing_columns: tuple[tuple[str, str], ...],
    ticket: int,
    slice_key: str = "",
) -> AsyncGenerator[StagedRows]:
    """Stage the rows of a SELECT in a temporary table; `existing_columns` are the columns of the rows they join."""
    if existing_columns:
        if {name for name, _ in existing_columns} != set(layout.names):
            raise DatasetError(
                f"The rows have the columns {', '.join(layout.names)}, and the dataset has "
                f"{', '.join(name for name, _ in existing_columns)}.",
                remedy="Change the definition (python: its version) to build a new generation, or keep the columns.",
            )
        layout = replace(layout, columns=existing_columns)
    name = new_table_name()
    await context.lifecycle.reserve(name)
    try:
        await context.client.run(_create_statement(name, layout), query_id=context.query_id())
        await context.client.run(
            _insert_statement(name, select, layout, ticket, slice_key), query_id=context.query_id()
        )
        rows, partitions = await _summarize_partitions(context, name, layout)
        yield StagedRows(name, layout, rows, partitions)
    finally:
        try:
            await context.client.run(f"DROP TABLE IF EXISTS {quote_name(name)}", query_id=context.query_id())
        finally:
            context.lifecycle.decref(name)


def _create_statement(name: str, layout: DatasetLayout) -> str:
    fields = [f"{quote_name(column)} {type_name}" for column, type_name in layout.columns]
    if layout.mode == "append":
        keys = ", ".join(quote_name(key) for key in layout.unique_key)
        fields.append(f"{VERSION} UInt64")
        engine = f"ReplacingMergeTree({VERSION}) ORDER BY ({keys}) SETTINGS allow_nullable_key = 1"
    elif layout.mode == "slice":
        fields.append(f"{SLICE} String")
        engine = f"MergeTree ORDER BY tuple() PARTITION BY {SLICE}"
    else:
        engine = "MergeTree ORDER BY tuple()"
    return f"CREATE TABLE {quote_name(name)} ({', '.join(fields)}) ENGINE = {engine}"


def _insert_statement(name: str, select: str, layout: DatasetLayout, ticket: int, slice_key: str) -> str:
    columns = [quote_name(column) for column in layout.names]
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


async def _summarize_partitions(
    context: DataContext, name: str, layout: DatasetLayout
) -> tuple[int, dict[str, tuple[int, str]]]:
    """Return the number of rows, and rows and digest of each partition."""
    key = quote_text("") if layout.partition_by is None else partition_expression(layout.partition_by)
    values = ", ".join(quote_name(column) for column in layout.names)
    text = (
        f"SELECT {key} AS {PARTITION}, count() AS {ROWS}, hex(sum(cityHash64(tuple({values})))) AS {DIGEST} "  # noqa: S608
        f"FROM {quote_name(name)} GROUP BY {PARTITION} ORDER BY {PARTITION} LIMIT {MAX_PARTITIONS + 1}"
    )
    result = await read_bounded(context.client, text, None, {}, PARTITIONS_READ, context.query_id())
    partitions = parse_partitions(result.to_pylist(), layout)
    return sum(count for count, _ in partitions.values()), partitions


def parse_partitions(rows: Sequence[Mapping[str, Any]], layout: DatasetLayout) -> dict[str, tuple[int, str]]:
    """Return rows and digest of each partition; raises DatasetError if there are too many."""
    partitions = {row[PARTITION]: (row[ROWS], f"{row[ROWS]}:{row[DIGEST]}") for row in rows}
    if len(partitions) > MAX_PARTITIONS:
        raise DatasetError(
            f"The column {layout.partition_by!r} has more than {MAX_PARTITIONS:,} values.",
            remedy="Partition by something with fewer, for example a day.",
        )
    return partitions


async def find_replaced_partitions(context: DataContext, existing_select: str, rows: StagedRows) -> set[str]:
    """Return the partitions in which the staged rows replace existing ones.

    `existing_select` selects the same slice.
    """
    layout = rows.layout
    if layout.mode == "replace" or layout.partition_by is None or not existing_select:
        return set()
    where = "true"
    if layout.mode == "append":
        keys = ", ".join(quote_name(key) for key in layout.unique_key)
        where = f"({keys}) IN (SELECT {keys} FROM {quote_name(rows.table)})"  # noqa: S608
    result = await context.client.read_text(
        f"SELECT DISTINCT {partition_expression(layout.partition_by)} AS {PARTITION} "  # noqa: S608
        f"FROM ({existing_select}) WHERE {where}",
        query_id=context.query_id(),
    )
    return set(result.column(0).to_pylist())


def slice_select(layout: DatasetLayout, table: str, slice_key: str) -> str:
    """Return a SELECT of the rows of one slice of a table."""
    names = ", ".join(quote_name(name) for name in layout.names)
    return f"SELECT {names} FROM {quote_name(table)} WHERE {SLICE} = {quote_text(slice_key)}"  # noqa: S608


def stored_select(rows: StagedRows) -> str:
    """Return a SELECT of staged rows for a file; only the newest row of each key."""
    names = ", ".join(quote_name(name) for name, _ in rows.layout.stored_columns)
    final = " FINAL" if rows.layout.mode == "append" else ""
    return f"SELECT {names} FROM {quote_name(rows.table)}{final}"  # noqa: S608


async def insert_file_rows(context: DataContext, rows: StagedRows, location: str, files: Sequence[DataFile]) -> None:
    """Add the rows of files to the staged rows."""
    stored = rows.layout.stored_columns
    names = ", ".join(quote_name(name) for name, _ in stored)
    await _run_statement(
        context,
        f"INSERT INTO {quote_name(rows.table)} ({names}) {parquet_storage.build_rows_select(location, files, stored)}",
    )


async def publish_staged(
    client: ClickHouseClient, target: str, rows: StagedRows, slice_key: str = "", query_id: str = ""
) -> None:
    """Move the staged rows into the target table atomically; idempotent.

    ClickHouse refuses the id of a query that it has answered but not ended yet: every statement has its own.
    """
    target_name, staging_name = quote_name(target), quote_name(rows.table)
    create_id = query_id and f"{query_id}-create"
    await client.run(f"CREATE TABLE IF NOT EXISTS {target_name} AS {staging_name}", query_id=create_id)
    if rows.layout.mode == "replace":
        statement = f"EXCHANGE TABLES {target_name} AND {staging_name}"
    elif rows.layout.mode == "append":
        statement = f"ALTER TABLE {target_name} ATTACH PARTITION tuple() FROM {staging_name}" if rows.rows else ""
    elif rows.rows:
        statement = f"ALTER TABLE {target_name} REPLACE PARTITION {quote_text(slice_key)} FROM {staging_name}"
    else:
        statement = f"ALTER TABLE {target_name} DROP PARTITION {quote_text(slice_key)}"
    if statement:
        await client.run(statement, query_id=query_id)


async def drop_staged(client: ClickHouseClient, table: str) -> None:
    """Drop a staged table; returns after the statements that read it: none publishes its rows later."""
    await client.run(f"DROP TABLE IF EXISTS {quote_name(table)} SYNC")


async def count_rows(context: DataContext, select: str) -> int:
    """Return the number of rows of a SELECT."""
    result = await context.client.read_text(f"SELECT count() FROM ({select})", query_id=context.query_id())  # noqa: S608
    return int(result.column(0)[0].as_py())


async def _run_statement(context: DataContext, text: str) -> None:
    await context.client.run(text, query_id=context.query_id())
