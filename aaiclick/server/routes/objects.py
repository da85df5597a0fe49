"""Objects: which there are, their columns, their first rows."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Literal

from fastapi import Path, Query
from starlette.responses import StreamingResponse

from aaiclick.catalog.readable import untold_tables
from aaiclick.data import inspect
from aaiclick.server import shapes
from aaiclick.server.paging import Cursor, Limit, Page, page, read_cursor
from aaiclick.server.permissions import Permission
from aaiclick.server.routes.common import reading
from aaiclick.server.routes.datasets import reader
from aaiclick.server.routing import Call, Caller, Routes

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
    listed = page(found, limit, _head, lambda seen: seen.table)
    hidden = await _hidden(call, [each.table_id for each in listed.items])
    return listed.model_copy(update={"items": [each for each in listed.items if each.table_id not in hidden]})


@routes.get("/v1/objects/{table_id:path}/rows", Permission.READER)
async def preview(
    call: Caller,
    table_id: TableId,
    offset: Annotated[int, Query(ge=0, le=2**53)] = 0,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
) -> shapes.Preview:
    """Show rows of an Object in their order."""
    await _must_see(call, table_id)
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
    await _must_see(call, table_id)
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
    await _must_see(call, table_id)
    target = await call.service.clickhouse(call.principal.org_id)
    described = await inspect.describe_object(target, table_id)
    columns = [shapes.ColumnOut(name=name, type=kind) for name, kind in described.columns]
    return shapes.ObjectSchema(**_head(described.seen).model_dump(), shape=described.shape, columns=columns)


async def _hidden(call: Call, names: list[str]) -> set[str]:
    """Those of the tables that the caller may not see: tasks of DAGs made them of datasets that it may not read."""
    async with reading(call) as connection:
        who = await reader(call, connection)
    if who.roles is None:
        return set()
    async with call.service.owner() as owner:  # who holds which table is not in the API's sight
        return await untold_tables(owner, who, names)


async def _must_see(call: Call, table_id: str) -> None:
    if await _hidden(call, [table_id]):
        raise inspect.missing(table_id)


def _head(seen: inspect.Seen) -> shapes.ObjectHead:
    return shapes.ObjectHead(
        table_id=seen.table, name=seen.name, rows=seen.rows, bytes=seen.bytes, changed_at=seen.changed
    )
