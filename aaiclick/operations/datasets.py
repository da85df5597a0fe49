"""Operations on datasets. Datasets that the actor's roles may not read are not found."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from aaiclick.api.datasets import (
    ColumnLineageEdge,
    Dataset,
    DatasetDetail,
    DatasetRun,
    Generation,
    LineageDirection,
    LineageEdge,
    LineageResponse,
    RegisteredVersion,
    RegisterVersionRequest,
)
from aaiclick.api.field_types import CreatedResponse
from aaiclick.api.objects import ColumnSchema, RowsResponse
from aaiclick.catalog.dataset_visibility import redact_tasks
from aaiclick.lazy_modules import LazyModule
from aaiclick.operations.actor import Actor, Permission
from aaiclick.operations.database_access import Databases
from aaiclick.operations.dataset_reader import dataset_reader
from aaiclick.operations.operation import databases_operation, operation, write_audit
from aaiclick.store.catalog import datasets as store
from aaiclick.store.catalog.datasets import VersionRange

if TYPE_CHECKING:
    import pyarrow as pa

    from aaiclick.catalog import dataset_queries as catalog
    from aaiclick.catalog import dataset_range_registration
    from aaiclick.catalog.queries import table_rewrite
    from aaiclick.data.io import bounded_reads
    from aaiclick.data.runtime import clickhouse_client
    from aaiclick.store.postgres_connections import Connection
else:  # ClickHouse, Arrow and the SQL parser: a list of datasets needs none of them
    catalog = LazyModule("aaiclick.catalog.dataset_queries")
    dataset_range_registration = LazyModule("aaiclick.catalog.dataset_range_registration")
    table_rewrite = LazyModule("aaiclick.catalog.queries.table_rewrite")
    bounded_reads = LazyModule("aaiclick.data.io.bounded_reads")
    clickhouse_client = LazyModule("aaiclick.data.runtime.clickhouse_client")

LOCAL_RESULT_SIZE = 1 << 30
"""Bytes and values of a result for the local command line, which shares its memory with no other user."""


@operation(Permission.READER, changes=False)
async def list_datasets(connection: Connection, actor: Actor) -> list[Dataset]:
    """List the datasets that the actor may read."""
    datasets = await store.list_visible_datasets(connection, await dataset_reader(connection, actor))
    return [Dataset.model_validate(dataset) for dataset in datasets]


@databases_operation(Permission.READER)
async def get_dataset(databases: Databases, actor: Actor, name: str) -> DatasetDetail:
    """Get a dataset with its columns, generations and the latest tasks that wrote it."""
    async with databases.connect() as connection:
        reader = await dataset_reader(connection, actor)
        dataset = await store.find_dataset(connection, reader, name)
        generations = await store.list_generations(connection, dataset.id)
        runs = await redact_tasks(connection, reader, await store.list_dataset_runs(connection, dataset.id))
    layout = catalog.parse_layout(dataset)
    columns = () if layout is None else layout.columns
    if layout is not None and dataset.rows is None:
        clickhouse = await clickhouse_client.connect(await databases.clickhouse())
        dataset = replace(dataset, rows=await catalog.count_rows(clickhouse, dataset))
    return DatasetDetail(
        **Dataset.model_validate(dataset).model_dump(),
        columns=[ColumnSchema(name=column, type=column_type) for column, column_type in columns],
        generations=[Generation.model_validate(generation) for generation in generations],
        runs=[DatasetRun(**{field: run[field] for field in DatasetRun.model_fields}) for run in runs],
    )


@operation(Permission.READER, changes=False)
async def get_lineage(
    connection: Connection, actor: Actor, name: str, direction: LineageDirection = "up"
) -> LineageResponse:
    """Get the upstream or (`down`) downstream lineage of a dataset."""
    graph = await catalog.trace_lineage(connection, await dataset_reader(connection, actor), name, direction)
    return LineageResponse(
        edges=[LineageEdge.model_validate(edge) for edge in graph.edges],
        columns=[ColumnLineageEdge.model_validate(edge) for edge in graph.columns],
    )


@databases_operation(Permission.READER)
async def query_datasets(
    databases: Databases, actor: Actor, sql: str, *, max_rows: int = 10_000, seconds: float = 30.0
) -> RowsResponse:
    """Run one SELECT over datasets by their names; a result beyond the limits is an error and is never truncated."""
    table = await read_query(databases, actor, sql, max_rows=max_rows, seconds=seconds)
    return RowsResponse(rows=await asyncio.to_thread(bounded_reads.to_json_rows, table))


async def read_query(databases: Databases, actor: Actor, sql: str, *, max_rows: int, seconds: float) -> pa.Table:
    """Run a query of `query_datasets`. PostgreSQL is only used before it runs."""
    sizes = (LOCAL_RESULT_SIZE, LOCAL_RESULT_SIZE) if actor.is_local else ()
    limits = table_rewrite.QueryLimits(seconds, max_rows, *sizes)
    clickhouse = await clickhouse_client.connect(await databases.clickhouse())
    async with databases.connect() as connection:
        prepared = await catalog.prepare_query(connection, await dataset_reader(connection, actor), sql, limits)
    return await catalog.run_prepared(clickhouse, prepared, limits)


@operation(Permission.ADMIN)
async def set_dataset_readers(connection: Connection, actor: Actor, name: str, roles: Sequence[str]) -> None:
    """Set the roles that may read a dataset; without roles, only admins may."""
    slugs = sorted(set(roles))
    await store.set_read_roles(connection, actor.org_id, name, slugs)
    await write_audit(connection, actor, "dataset.readers", name, {"roles": slugs})


@operation(Permission.WRITER)
async def rematerialize_dataset(connection: Connection, actor: Actor, name: str) -> CreatedResponse:
    """Rebuild a dataset and everything downstream. Readers see the old rows until the new ones are published."""
    dataset = await store.find_dataset(connection, await dataset_reader(connection, actor), name)
    job_id = await store.rematerialize(connection, actor.org_id, dataset.id, name)
    await write_audit(connection, actor, "dataset.rematerialize", name, {"job": str(job_id)})
    return CreatedResponse(id=job_id)


@operation(Permission.WRITER)
async def register_dataset_version(
    connection: Connection, actor: Actor, name: str, version: RegisterVersionRequest
) -> RegisteredVersion:
    """Register a version of a dataset by its range; registering it again changes nothing."""
    bounds = VersionRange(version.range_start, version.range_end)
    reader = await dataset_reader(connection, actor)
    registered = await dataset_range_registration.register_range(
        connection, reader, name, bounds, version.storage_location
    )
    if registered.created:
        detail = {"version": str(registered.id), "range": str(bounds), "location": version.storage_location}
        await write_audit(connection, actor, "dataset.register", name, detail)
    return RegisteredVersion.model_validate(registered)
