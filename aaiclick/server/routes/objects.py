"""Routes of Objects: list, schema, rows and export."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated

from fastapi import Path, Query
from starlette.responses import StreamingResponse

from aaiclick.api.field_types import MAX_ID, Name, Page
from aaiclick.api.objects import FileFormat, ObjectSchema, ObjectState, ObjectSummary, RowsResponse
from aaiclick.operations import objects as operations
from aaiclick.operations.actor import Permission
from aaiclick.server.pagination import Cursor, Limit
from aaiclick.server.routing import Context, Routes

routes = Routes("objects")

TableId = Annotated[Name, Path(description="`t` and a snowflake, or `named_` and a name")]

FILE_MEDIA_TYPE = "application/octet-stream"


@routes.get("/v1/objects", Permission.READER)
async def list_objects(
    context: Context,
    job_id: Annotated[int | None, Query(ge=1, le=MAX_ID, description="Only Objects that a job refers to")] = None,
    state: ObjectState | None = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Page[ObjectSummary]:
    """List the Objects of the organisation. Missing ones are listed for a job, or with `state=missing`."""
    return await context.perform(operations.list_objects, job_id=job_id, state=state, cursor=cursor, limit=limit)


@routes.get("/v1/objects/{table_id:path}/rows", Permission.READER)
async def preview_object(
    context: Context,
    table_id: TableId,
    offset: Annotated[int, Query(ge=0, le=2**53)] = 0,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
) -> RowsResponse:
    """Get rows of an Object in their order."""
    return await context.perform(operations.preview_object, table_id, offset=offset, limit=limit)


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
    file_format: Annotated[FileFormat, Query(alias="format")] = "jsonl",
) -> StreamingResponse:
    """Stream all rows of an Object in their order as a file."""
    chunks = await context.perform(operations.export_object, table_id, file_format)
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
    return await context.perform(operations.get_object, table_id)
