"""Queries over datasets by name, and their lineage. A reader sees only datasets that its roles allow."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aaiclick.api.datasets import LineageDirection
from aaiclick.catalog import sql_yaml_analysis
from aaiclick.catalog.errors import DatasetError
from aaiclick.catalog.execution.dataset_tables import DatasetLayout
from aaiclick.catalog.execution.definition_context import parse_files
from aaiclick.catalog.queries.table_rewrite import PhysicalTable, PreparedQuery, QueryLimits
from aaiclick.catalog.system_datasets import MAX_QUERY_BYTES, insert_rows, load_system_datasets
from aaiclick.data.io.bounded_reads import PREVIEW as PREVIEW_SIZE
from aaiclick.data.io.bounded_reads import ReadLimits, read_bounded, to_json_rows
from aaiclick.data.runtime.clickhouse_client import ClickHouseClient
from aaiclick.store.catalog import datasets as store
from aaiclick.store.catalog.datasets import Reader, ServedDataset

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

PREVIEW = QueryLimits(seconds=5, result_rows=1_000)


async def run_query(
    connection: Connection, clickhouse: ClickHouseClient, reader: Reader, text: str, limits: QueryLimits | None = None
) -> Any:
    """Run a query over datasets; return its rows as a pyarrow Table."""
    return await run_prepared(clickhouse, await prepare_query(connection, reader, text, limits), limits)


async def prepare_query(
    connection: Connection, reader: Reader, text: str, limits: QueryLimits | None = None
) -> PreparedQuery:
    """Return the query as ClickHouse runs it.

    The generations of all names are resolved once, at the start, so that a concurrent deploy is seen as a whole or not
    at all. A query beyond the limits fails; its result is never truncated.
    """
    names = sorted(await sql_yaml_analysis.find_datasets_read(text))
    system_tables = await load_system_datasets(connection, reader, names)
    tables = await _resolve_tables(connection, reader, [name for name in names if name not in system_tables])
    names_only = {name: replace(table, source="") for name, table in system_tables.items()}
    prepared = await sql_yaml_analysis.prepare_query(text, tables | names_only, limits)
    if not system_tables:
        return prepared
    text = await asyncio.to_thread(insert_rows, prepared.text, system_tables.values())
    return replace(prepared, text=text, settings=prepared.settings | {"max_query_size": MAX_QUERY_BYTES})


async def run_prepared(clickhouse: ClickHouseClient, prepared: PreparedQuery, limits: QueryLimits | None = None) -> Any:
    """Run a prepared query without PostgreSQL; return its rows as a pyarrow Table."""
    limits = limits or QueryLimits()
    bounds = ReadLimits(limits.result_rows, limits.result_bytes, limits.result_values)
    return await read_bounded(clickhouse, prepared.text, None, prepared.settings, bounds)


async def _resolve_tables(connection: Connection, reader: Reader, names: Sequence[str]) -> dict[str, PhysicalTable]:
    tables: dict[str, PhysicalTable] = {}
    rows = await store.list_visible_datasets(connection, reader, names)
    missing = sorted(set(names) - {row.name for row in rows})
    if missing:
        raise await store.unknown_visible_dataset(connection, reader, missing[0])
    for row in rows:
        table = get_physical_table(row)
        if table is None:
            raise DatasetError(
                f"The dataset {row.name!r} has no rows yet.", remedy="They are written by its first update."
            )
        tables[row.name] = table
    return tables


def get_physical_table(dataset: ServedDataset) -> PhysicalTable | None:
    """Return the table or files of a dataset; None if it was never updated."""
    layout = parse_layout(dataset)
    return None if layout is None else layout.physical(dataset.storage_location, files=parse_files(dataset.files))


def parse_layout(dataset: ServedDataset) -> DatasetLayout | None:
    """Return the layout of a dataset; None if it was never updated."""
    return None if dataset.columns is None else DatasetLayout.from_json(json.loads(dataset.columns))


async def count_rows(clickhouse: ClickHouseClient, dataset: ServedDataset) -> int | None:
    """Return the recorded number of rows of a dataset; count them if none is recorded."""
    table = get_physical_table(dataset)
    if dataset.rows is not None or table is None:
        return dataset.rows
    result = await clickhouse.read_text(f"SELECT count() FROM ({table.select()})")  # noqa: S608
    return int(result.column(0)[0].as_py())


async def preview_rows(clickhouse: ClickHouseClient, dataset: ServedDataset, count: int) -> list[dict[str, object]]:
    """Return up to `count` rows of a dataset; [] if it was never updated. The caller checks access."""
    table = get_physical_table(dataset)
    if table is None:
        return []
    text = f"SELECT * FROM ({table.select()}) LIMIT {int(count)}"  # noqa: S608
    result = await read_bounded(clickhouse, text, None, PREVIEW.settings(), PREVIEW_SIZE)
    return await asyncio.to_thread(to_json_rows, result)


@dataclass(frozen=True, slots=True, order=True)
class LineageEdge:
    """A dataset is computed from another one by a definition of a DAG."""

    source: str
    job: str
    target: str


@dataclass(frozen=True, slots=True, order=True)
class ColumnEdge:
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class LineageGraph:
    """Upstream or downstream edges of a dataset, each once, nearest first."""

    edges: tuple[LineageEdge, ...] = ()
    columns: tuple[ColumnEdge, ...] = field(default=())

    @property
    def datasets(self) -> list[str]:
        return sorted({name for edge in self.edges for name in (edge.source, edge.target)})


async def trace_lineage(
    connection: Connection, reader: Reader, name: str, direction: LineageDirection = "up"
) -> LineageGraph:
    """Return everything upstream or downstream of a dataset that the reader may see."""
    dataset = await store.find_dataset(connection, reader, name)
    names: dict[UUID, str] = {row.id: row.name for row in await store.list_visible_datasets(connection, reader)}
    steps: dict[UUID, list[tuple[str, UUID]]] = {}
    for row in await store.list_serving_edges(connection, reader.org_id):
        for source in _visible_ids(row.inputs, names):
            for target in _visible_ids(row.outputs, names):
                start, end = (target, source) if direction == "up" else (source, target)
                steps.setdefault(start, []).append((f"{row.dag_name}.{row.job}", end))
    visited, edges, queue = {dataset.id}, list[LineageEdge](), deque([dataset.id])
    while queue:
        current = queue.popleft()
        for job, neighbour in sorted(steps.get(current, ())):
            source, target = (neighbour, current) if direction == "up" else (current, neighbour)
            edges.append(LineageEdge(names[source], job, names[target]))
            if neighbour not in visited:
                visited.add(neighbour)
                queue.append(neighbour)
    columns = tuple(
        ColumnEdge(
            f"{names[edge.input_dataset]}.{edge.input_column}", f"{names[edge.output_dataset]}.{edge.output_column}"
        )
        for edge in await store.list_column_edges(connection, sorted(visited))
    )
    return LineageGraph(tuple(dict.fromkeys(edges)), columns)


def _visible_ids(ids: Iterable[str], names: dict[UUID, str]) -> list[UUID]:
    return [dataset_id for dataset_id in map(UUID, ids) if dataset_id in names]
