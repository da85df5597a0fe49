"""Routes of Objects: list, schema, rows and export."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Literal

from fastapi import Path, Query
from starlette.responses import StreamingResponse

from aaiclick.api.field_types import Name, Page
from aaiclick.api.objects import ColumnSchema, ObjectSchema, ObjectSummary, RowsResponse
from aaiclick.catalog.visibility import hidden_tables
from aaiclick.data.runtime import inspect
from aaiclick.operations.actor import Permission
from aaiclick.operations.pagination import make_page, read_cursor
from aaiclick.operations.visibility import dataset_reader
from aaiclick.server.pagination import Cursor, Limit
from aaiclick.server.routes.common import tenant_connection
from aaiclick.server.routing import Context, RequestContext, Routes

routes = Routes("objects")

TableId = Annotated[Name, Path(description="`t` and a snowflake, or `named_` and a name")]

Format = Literal["arrow", "avro", "csv", "json", "jsonl", "orc", "parquet", "tsv"]
FILE_MEDIA_TYPE = "application/octet-stream"


@routes.get("/v1/objects", Permission.READER)
async def list_objects(context: Context, cursor: Cursor = None, limit: Limit = 100) -> Page[ObjectSummary]:
    """List the Objects of the organisation."""
    endpoint = await context.app_state.clickhouse_endpoint(context.actor.org_id)
    after = str(read_cursor(cursor) or "")
    summaries = await inspect.list_objects(endpoint, after=after, limit=limit + 1)
    objects_page = make_page(summaries, limit, _to_object_summary, lambda summary: summary.table)
    hidden = await _hidden_tables(context, [item.table_id for item in objects_page.items])
    return objects_page.model_copy(
        update={"items": [item for item in objects_page.items if item.table_id not in hidden]}
    )


@routes.get("/v1/objects/{table_id:path}/rows", Permission.READER)
async def preview_object(
    context: Context,
    table_id: TableId,
    offset: Annotated[int, Query(ge=0, le=2**53)] = 0,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
) -> RowsResponse:
    """Get rows of an Object in their order."""
    await _require_visible(context, table_id)
    endpoint = await context.app_state.clickhouse_endpoint(context.actor.org_id)
    return RowsResponse(rows=await inspect.preview_object(endpoint, table_id, offset=offset, limit=limit))


@routes.get(
    "/v1/objects/{table_id:path}/export",
    Permission.READER,
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "A file; one that ends early is incomplete",
            "content": {FILE_MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def export_object(
    context: Context,
    table_id: TableId,
    file_format: Annotated[Format, Query(alias="format")] = "jsonl",
) -> StreamingResponse:
    """Stream all rows of an Object in their order as a file."""
    await _require_visible(context, table_id)
    endpoint = await context.app_state.clickhouse_endpoint(context.actor.org_id)
    chunks = inspect.export_object(endpoint, table_id, file_format)
    first = await anext(chunks, b"")  # an error at the start becomes a problem response
    return StreamingResponse(_prepend_chunk(first, chunks), media_type=FILE_MEDIA_TYPE)


async def _prepend_chunk(first: bytes, chunks: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    async with aclosing(chunks):
        yield first
        async for chunk in chunks:
            yield chunk


@routes.get("/v1/objects/{table_id:path}", Permission.READER)
async def get_object(context: Context, table_id: TableId) -> ObjectSchema:
    """Get an Object with its columns."""
    await _require_visible(context, table_id)
    endpoint = await context.app_state.clickhouse_endpoint(context.actor.org_id)
    description = await inspect.describe_object(endpoint, table_id)
    columns = [ColumnSchema(name=name, type=column_type) for name, column_type in description.columns]
    return ObjectSchema(**_to_object_summary(description.info).model_dump(), shape=description.shape, columns=columns)


async def _hidden_tables(context: RequestContext, names: list[str]) -> set[str]:
    """Tables that the caller may not see: tasks of DAGs wrote them from datasets that it may not read."""
    async with tenant_connection(context) as connection:
        reader = await dataset_reader(connection, context.actor)
    if reader.roles is None:
        return set()
    async with context.app_state.owner_connection() as owner:  # row-level security hides table references
        return await hidden_tables(owner, reader, names)


async def _require_visible(context: RequestContext, table_id: str) -> None:
    if await _hidden_tables(context, [table_id]):
        raise inspect.object_not_found(table_id)


def _to_object_summary(info: inspect.ObjectInfo) -> ObjectSummary:
    return ObjectSummary(table_id=info.table, name=info.name, rows=info.rows, bytes=info.bytes, changed_at=info.changed)
