"""Routes of datasets. Datasets that the caller's roles may not read are not found."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Annotated

from fastapi import Path
from starlette.responses import Response

from aaiclick.api.datasets import (
    Dataset,
    DatasetDetail,
    LineageDirection,
    LineageResponse,
    QueryRequest,
    ReadersRequest,
    RegisteredVersion,
    RegisterVersionRequest,
)
from aaiclick.api.field_types import CreatedResponse, Name
from aaiclick.api.objects import RowsResponse
from aaiclick.data.io.bounded_reads import ReadLimits, encode_rows
from aaiclick.operations import datasets as operations
from aaiclick.operations.actor import Permission
from aaiclick.server.routing import Context, Routes

routes = Routes("datasets")

DatasetName = Annotated[Name, Path(description="The name of a dataset")]


@routes.get("/v1/datasets", Permission.READER)
async def list_datasets(context: Context) -> list[Dataset]:
    """List the datasets that the caller may read."""
    return await context.perform(operations.list_datasets)


@routes.post("/v1/datasets/query", Permission.READER, response_model=RowsResponse)
async def query_datasets(context: Context, body: QueryRequest) -> Response:
    """Run one SELECT over datasets by their names."""
    async with context.app_state.query_limiter.acquire_slot(str(context.actor.org_id)):
        result = await operations.read_query(
            context.databases, context.actor, body.sql, max_rows=body.max_rows, seconds=body.seconds
        )
        rows = await asyncio.to_thread(encode_rows, result, ReadLimits(body.max_rows))  # not on the event loop
    return Response(b'{"rows":' + rows + b"}", media_type="application/json")


@routes.get("/v1/datasets/{dataset}", Permission.READER)
async def get_dataset(context: Context, dataset: DatasetName) -> DatasetDetail:
    """Get a dataset with its columns, generations and the latest tasks that wrote it."""
    return await context.perform(operations.get_dataset, dataset)


@routes.get("/v1/datasets/{dataset}/lineage", Permission.READER)
async def get_lineage(context: Context, dataset: DatasetName, direction: LineageDirection = "up") -> LineageResponse:
    """Get the upstream or downstream lineage of a dataset."""
    return await context.perform(operations.get_lineage, dataset, direction)


@routes.put("/v1/datasets/{dataset}/readers", Permission.ADMIN, status_code=HTTPStatus.NO_CONTENT)
async def set_readers(context: Context, dataset: DatasetName, body: ReadersRequest) -> None:
    """Set the roles that may read a dataset."""
    await context.perform(operations.set_dataset_readers, dataset, body.roles)


@routes.post("/v1/datasets/{dataset}/rematerialize", Permission.WRITER, status_code=HTTPStatus.CREATED)
async def rematerialize_dataset(context: Context, dataset: DatasetName) -> CreatedResponse:
    """Rebuild a dataset and everything downstream. Readers see the old rows until the new ones are published."""
    return await context.perform(operations.rematerialize_dataset, dataset)


@routes.post("/v1/datasets/{dataset}/versions", Permission.WRITER)
async def register_version(context: Context, dataset: DatasetName, body: RegisterVersionRequest) -> RegisteredVersion:
    """Register a version of a dataset by its range; registering it again changes nothing."""
    return await context.perform(operations.register_dataset_version, dataset, body)
