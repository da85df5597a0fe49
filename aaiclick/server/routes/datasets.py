"""Routes of datasets. Datasets that the caller's roles may not read are not found."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Path
from starlette.responses import Response

from aaiclick.api.datasets import (
    ColumnLineageEdge,
    Dataset,
    DatasetDetail,
    DatasetRun,
    Generation,
    LineageEdge,
    LineageResponse,
    QueryRequest,
    ReadersRequest,
    RegisteredVersion,
    RegisterVersionRequest,
)
from aaiclick.api.field_types import CreatedResponse, Name
from aaiclick.api.objects import ColumnSchema, RowsResponse
from aaiclick.catalog import datasets as catalog
from aaiclick.catalog.queries.table_rewrite import QueryLimits
from aaiclick.catalog.range_registration import register_range
from aaiclick.catalog.visibility import redact_tasks
from aaiclick.data.io.bounded_reads import ReadLimits, encode_rows
from aaiclick.data.runtime.clickhouse_client import connect as connect_clickhouse
from aaiclick.operations.actor import Permission
from aaiclick.operations.visibility import dataset_reader
from aaiclick.server.routes.common import tenant_connection, tenant_transaction, text_id, write_audit
from aaiclick.server.routing import Context, Routes
from aaiclick.store.catalog import datasets as store
from aaiclick.store.catalog.datasets import VersionRange

routes = Routes("datasets")

DatasetName = Annotated[Name, Path(description="The name of a dataset")]


@routes.get("/v1/datasets", Permission.READER)
async def list_datasets(context: Context) -> list[Dataset]:
    """List the datasets that the caller may read."""
    async with tenant_connection(context) as connection:
        return [
            Dataset(**_summary_fields(row))
            for row in await store.list_visible_datasets(connection, await dataset_reader(connection, context.actor))
        ]


@routes.post("/v1/datasets/query", Permission.READER, response_model=RowsResponse)
async def query_datasets(context: Context, body: QueryRequest) -> Response:
    """Run one SELECT over datasets by their names."""
    limits = QueryLimits(seconds=body.seconds, result_rows=body.max_rows)
    clickhouse = await connect_clickhouse(await context.app_state.clickhouse_endpoint(context.actor.org_id))
    async with context.app_state.query_limiter.acquire_slot(str(context.actor.org_id)):
        async with tenant_connection(context) as connection:
            prepared = await catalog.prepare_query(
                connection, await dataset_reader(connection, context.actor), body.sql, limits
            )
        result = await catalog.run_prepared(clickhouse, prepared, limits)
        rows = await asyncio.to_thread(encode_rows, result, ReadLimits(body.max_rows))
    return Response(b'{"rows":' + rows + b"}", media_type="application/json")


@routes.get("/v1/datasets/{dataset}", Permission.READER)
async def get_dataset(context: Context, dataset: DatasetName) -> DatasetDetail:
    """Get a dataset with its columns, generations and the latest tasks that wrote it."""
    async with tenant_connection(context) as connection:
        reader = await dataset_reader(connection, context.actor)
        row = await store.find_dataset(connection, reader, dataset)
        generations = await store.list_generations(connection, row["id"])
        runs = await redact_tasks(connection, reader, await store.list_dataset_runs(connection, row["id"]))
    summary, layout = _summary_fields(row), catalog.parse_layout(row)
    if layout is not None and row["rows"] is None:
        clickhouse = await connect_clickhouse(await context.app_state.clickhouse_endpoint(context.actor.org_id))
        summary["rows"] = await catalog.count_rows(clickhouse, row)
    return DatasetDetail(
        **summary,
        columns=[ColumnSchema(name=name, type=column_type) for name, column_type in (layout.columns if layout else ())],
        generations=[
            Generation(**{name: generation[name] for name in Generation.model_fields}) for generation in generations
        ],
        runs=[_to_dataset_run(run) for run in runs],
    )


@routes.get("/v1/datasets/{dataset}/lineage", Permission.READER)
async def get_lineage(context: Context, dataset: DatasetName, direction: catalog.Direction = "up") -> LineageResponse:
    """Get the upstream or downstream lineage of a dataset."""
    async with tenant_connection(context) as connection:
        graph = await catalog.trace_lineage(
            connection, await dataset_reader(connection, context.actor), dataset, direction
        )
    return LineageResponse(
        edges=[LineageEdge(source=edge.source, job=edge.job, target=edge.target) for edge in graph.edges],
        columns=[ColumnLineageEdge(source=edge.source, target=edge.target) for edge in graph.columns],
    )


@routes.put("/v1/datasets/{dataset}/readers", Permission.ADMIN, status_code=HTTPStatus.NO_CONTENT)
async def set_readers(context: Context, dataset: DatasetName, body: ReadersRequest) -> None:
    """Set the roles that may read a dataset."""
    async with tenant_transaction(context) as connection:
        await store.set_read_roles(connection, context.actor.org_id, dataset, body.roles)
        await write_audit(context, connection, "dataset.readers", dataset, {"roles": body.roles})


@routes.post("/v1/datasets/{dataset}/rematerialize", Permission.WRITER, status_code=HTTPStatus.CREATED)
async def rematerialize_dataset(context: Context, dataset: DatasetName) -> CreatedResponse:
    """Rebuild a dataset and everything downstream. Readers see the old rows until the new ones are published."""
    async with tenant_transaction(context) as connection:
        row = await store.find_dataset(connection, await dataset_reader(connection, context.actor), dataset)
        job_id = await store.rematerialize(connection, context.actor.org_id, row["id"], dataset)
        await write_audit(context, connection, "dataset.rematerialize", dataset, {"job": str(job_id)})
    return CreatedResponse(id=job_id)


@routes.post("/v1/datasets/{dataset}/versions", Permission.WRITER)
async def register_version(context: Context, dataset: DatasetName, body: RegisterVersionRequest) -> RegisteredVersion:
    """Register a version of a dataset by its range; registering it again changes nothing."""
    bounds = VersionRange(body.range_start, body.range_end)
    async with tenant_transaction(context) as connection:
        reader = await dataset_reader(connection, context.actor)
        registered = await register_range(connection, reader, dataset, bounds, body.storage_location)
        if registered.created:
            detail = {"version": str(registered.id), "range": str(bounds), "location": body.storage_location}
            await write_audit(context, connection, "dataset.register", dataset, detail)
    return RegisteredVersion(id=registered.id, created=registered.created, job_id=text_id(registered.job_id))


def _summary_fields(row: Any) -> dict[str, Any]:
    fields = {name: row[name] for name in ("name", "rows", "updated_at")}
    return fields | {
        "dag": row["producer_dag_name"],
        "job": row["producer_job_name"],
        "read_roles": list(row["read_roles"]),
    }


def _to_dataset_run(row: Any) -> DatasetRun:
    fields = {name: row[name] for name in ("status", "started_at", "completed_at", "error")}
    return DatasetRun(**fields, id=str(row["id"]), job_id=None if row["job_id"] is None else str(row["job_id"]))
