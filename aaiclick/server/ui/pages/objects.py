"""Object pages: list, columns and rows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from starlette.responses import Response

from aaiclick.operations.actor import Permission
from aaiclick.server.routes import objects as api
from aaiclick.server.routes.common import tenant_connection
from aaiclick.server.ui.routing import PageRequest, Pages
from aaiclick.snowflake import extract_timestamp
from aaiclick.store.ui import job_queries

pages = Pages()

MAX_OBJECTS = 100
PREVIEW_ROWS = 50


@pages.get("/objects", Permission.READER)
async def list_objects(page: PageRequest) -> Response:
    listing = await api.list_objects(page.call, page.query_param("cursor") or None, MAX_OBJECTS)
    tables = [item.table_id for item in listing.items]
    return page.render("objects.html", listing=listing, **await _load_origins(page, tables))


@pages.get("/objects/{table_id}", Permission.READER)
async def show_object(page: PageRequest) -> Response:
    table = str(page.request.path_params["table_id"])
    details = await api.get_object(page.call, table)
    rows = (await api.preview_object(page.call, table, page.offset, PREVIEW_ROWS)).rows
    return page.render(
        "object.html", details=details, rows=rows, shown=PREVIEW_ROWS, **await _load_origins(page, [table])
    )


async def _load_origins(page: PageRequest, tables: Sequence[str]) -> dict[str, object]:
    """Load the owners of tables, and their creation times from the ids in their names."""
    async with tenant_connection(page.call) as connection:
        owners = await job_queries.load_table_owners(connection, tables)
    ids = {table: int(table[1:]) for table in tables if table[:1] == "t" and table[1:].isdecimal()}
    created_at = {table: datetime.fromtimestamp(extract_timestamp(key) / 1000, UTC) for table, key in ids.items()}
    return {"owners": owners, "created_at": created_at}
