"""Reading datasets: queries by name, and what they come from. A reader sees what its roles may read, and no trace of
anything else.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from aaiclick.catalog import analysis
from aaiclick.catalog.errors import DatasetError
from aaiclick.catalog.queries.dataset_sql import Limits, PhysicalTable, PreparedQuery
from aaiclick.catalog.running.storage import Layout
from aaiclick.catalog.running.work import files_of
from aaiclick.data.bounded_reads import PREVIEW as PREVIEW_SIZE
from aaiclick.data.bounded_reads import ReadLimits, read_bounded, to_json_rows
from aaiclick.data.client import Client
from aaiclick.store import catalog_datasets as store
from aaiclick.store.catalog_datasets import Reader

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.engine import Connection

Direction = Literal["up", "down"]

PREVIEW = Limits(seconds=5, result_rows=1_000)


async def query(
    connection: Connection, clickhouse: Client, reader: Reader, text: str, limits: Limits | None = None
) -> Any:
    """The rows of a query over datasets, as a pyarrow Table."""
    return await run(clickhouse, await prepare(connection, reader, text, limits), limits)


async def prepare(connection: Connection, reader: Reader, text: str, limits: Limits | None = None) -> PreparedQuery:
    """The query over datasets as ClickHouse gets it.

    Which generation each name stands for is decided once, at the start, for all of them: a deploy in between is seen as
    a whole or not at all. Limits end a query with an error; they never cut its result short.
    """
    tables = await _tables(connection, reader, sorted(await analysis.datasets_read(text)))
    return await analysis.prepare_query(text, tables, limits)


async def run(clickhouse: Client, prepared: PreparedQuery, limits: Limits | None = None) -> Any:
    """The rows of a prepared query, as a pyarrow Table; needs no connection to PostgreSQL."""
    limits = limits or Limits()
    bounds = ReadLimits(limits.result_rows, limits.result_bytes, limits.result_values)
    return await read_bounded(clickhouse, prepared.text, None, prepared.settings, bounds)


async def _tables(connection: Connection, reader: Reader, names: Sequence[str]) -> dict[str, PhysicalTable]:
    tables: dict[str, PhysicalTable] = {}
    found = await store.visible(connection, reader, names)
    missing = sorted(set(names) - {row["name"] for row in found})
    if missing:
        raise store.no_dataset(missing[0])
    for row in found:
        table = physical_of(row)
        if table is None:
            raise DatasetError(f"The dataset {row['name']!r} has no rows yet.", remedy="Its first update makes it.")
        tables[row["name"]] = table
    return tables


def physical_of(row: asyncpg.Record) -> PhysicalTable | None:
    """Where the rows of a generation are; None if it was never updated."""
    layout = layout_of(row)
    return None if layout is None else layout.physical(row["storage_location"], files=files_of(row))


def layout_of(row: asyncpg.Record) -> Layout | None:
    """How a generation is kept; None if it was never updated."""
    return None if row["columns"] is None else Layout.from_json(json.loads(row["columns"]))


async def count_rows(clickhouse: Client, row: asyncpg.Record) -> int | None:
    """How many rows a dataset has: as recorded, else counted now."""
    table = physical_of(row)
    if row["rows"] is not None or table is None:
        return row["rows"]
    found = await clickhouse.read_text(f"SELECT count() FROM ({table.select()})")  # noqa: S608
    return int(found.column(0)[0].as_py())


async def preview(clickhouse: Client, row: asyncpg.Record, count: int) -> list[dict[str, Any]]:
    """Some rows of a dataset that the caller found it may read; none if it was never updated."""
    table = physical_of(row)
    if table is None:
        return []
    text = f"SELECT * FROM ({table.select()}) LIMIT {int(count)}"  # noqa: S608
    found = await read_bounded(clickhouse, text, None, PREVIEW.settings(), PREVIEW_SIZE)
    return await asyncio.to_thread(to_json_rows, found)


@dataclass(frozen=True, slots=True, order=True)
class Edge:
    """A dataset is made from another by a job of a DAG."""

    source: str
    job: str
    target: str


@dataclass(frozen=True, slots=True, order=True)
class ColumnEdge:
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Graph:
    """What a dataset comes from, or what comes from it: each edge once, the nearest first."""

    edges: tuple[Edge, ...] = ()
    columns: tuple[ColumnEdge, ...] = field(default=())

    @property
    def datasets(self) -> list[str]:
        return sorted({name for edge in self.edges for name in (edge.source, edge.target)})


async def lineage(connection: Connection, reader: Reader, name: str, direction: Direction = "up") -> Graph:
    """Everything up or down from a dataset, as far as the reader may see."""
    found = await store.find_dataset(connection, reader, name)
    names: dict[UUID, str] = {row["id"]: row["name"] for row in await store.visible(connection, reader)}
    steps: dict[UUID, list[tuple[str, UUID]]] = {}
    for row in await store.edges(connection, reader.org_id):
        for source in _known(row["inputs"], names):
            for target in _known(row["outputs"], names):
                start, end = (target, source) if direction == "up" else (source, target)
                steps.setdefault(start, []).append((f"{row['dag_name']}.{row['job']}", end))
    seen, edges, border = {found["id"]}, list[Edge](), deque([found["id"]])
    while border:
        here = border.popleft()
        for job, there in sorted(steps.get(here, ())):
            source, target = (there, here) if direction == "up" else (here, there)
            edges.append(Edge(names[source], job, names[target]))
            if there not in seen:
                seen.add(there)
                border.append(there)
    columns = tuple(
        ColumnEdge(
            f"{names[row['input_dataset_uuid']]}.{row['input_column']}",
            f"{names[row['output_dataset_uuid']]}.{row['output_column']}",
        )
        for row in await store.column_edges(connection, sorted(seen))
    )
    return Graph(tuple(dict.fromkeys(edges)), columns)


def _known(ids: Iterable[str], names: dict[UUID, str]) -> list[UUID]:
    return [each for each in map(UUID, ids) if each in names]
