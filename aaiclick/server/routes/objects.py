"""Objects: which there are, their columns, their first rows."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Literal

from fastapi import Path, Query
from starlette.responses import StreamingResponse

from aaiclick.data import inspect
from aaiclick.server import shapes
from aaiclick.server.paging import Cursor, Limit, Page, page, read_cursor
from aaiclick.server.permissions import Permission
from aaiclick.server.routing import Caller, Routes

routes = Routes("objects")

TableId = Annotated[shapes.Name, Path(description="`t` and a snowflake, or `named_` and a name")]

Format = Literal["arrow", "avro", "csv", "json", "jsonl", "orc", "parquet", "tsv"]
FILE = "application/octet-stream"


@routes.get("/v1/objects", Permission.READER)
async def index(call: Caller, cursor: Cursor = None, limit: Limit = 100) -> Page[shapes.ObjectHead]:
    """List the Objects of the organisation."""
    target = await call.service.clickhouse(call.principal.org_id)
    after = str(read_cursor(cursor) or "")
    found = await inspect.list_objects(target, after=after, limit=limit + 1)
    return page(found, limit, _head, lambda seen: seen.table)


@routes.get("/v1/objects/{table_id:path}/rows", Permission.READER)
async def preview(
    call: Caller,
    table_id: TableId,
    offset: Annotated[int, Query(ge=0, le=2**53)] = 0,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
) -> shapes.Preview:
    """Show rows of an Object in their order."""
    target = await call.service.clickhouse(call.principal.org_id)
    return shapes.Preview(rows=await inspect.preview_object(target, table_id, offset=offset, limit=limit))


@routes.get(
    "/v1/objects/{table_id:path}/export",
    Permission.READER,
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "A file; one that breaks off is not whole",
            "content": {FILE: {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def export(
    call: Caller,
    table_id: TableId,
    chosen: Annotated[Format, Query(alias="format")] = "jsonl",
) -> StreamingResponse:
    """Stream all rows of an Object in their order as a file."""
    target = await call.service.clickhouse(call.principal.org_id)
    pieces = inspect.export_object(target, table_id, chosen)
    first = await anext(pieces, b"")  # what cannot be begun is answered like any other error
    return StreamingResponse(_from(first, pieces), media_type=FILE)


async def _from(first: bytes, pieces: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    async with aclosing(pieces):
        yield first
        async for piece in pieces:
            yield piece


@routes.get("/v1/objects/{table_id:path}", Permission.READER)
async def show(call: Caller, table_id: TableId) -> shapes.ObjectSchema:
    """Show an Object with its columns."""
    target = await call.service.clickhouse(call.principal.org_id)
    described = await inspect.describe_object(target, table_id)
    columns = [shapes.ColumnOut(name=name, type=kind) for name, kind in described.columns]
    return shapes.ObjectSchema(**_head(described.seen).model_dump(), shape=described.shape, columns=columns)


def _head(seen: inspect.Seen) -> shapes.ObjectHead:
    return shapes.ObjectHead(
        table_id=seen.table, name=seen.name, rows=seen.rows, bytes=seen.bytes, changed_at=seen.changed
    )
