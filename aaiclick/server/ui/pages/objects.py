"""Object pages: list, columns and rows."""

from __future__ import annotations

from starlette.responses import Response

from aaiclick.operations import objects as operations
from aaiclick.operations.actor import Permission
from aaiclick.server.routes.common import tenant_connection
from aaiclick.server.ui.routing import PageRequest, Pages
from aaiclick.store.ui import job_queries

pages = Pages()

MAX_OBJECTS = 100
PREVIEW_ROWS = 50


@pages.get("/objects", Permission.READER)
async def list_objects(page: PageRequest) -> Response:
    cursor = page.query_param("cursor") or None
    listing = await page.call.perform(operations.list_objects, cursor=cursor, limit=MAX_OBJECTS)
    async with tenant_connection(page.call) as connection:
        owners = await job_queries.load_table_owners(connection, [item.table_id for item in listing.items])
    return page.render("objects.html", listing=listing, owners=owners)


@pages.get("/objects/{table_id}", Permission.READER)
async def show_object(page: PageRequest) -> Response:
    table = str(page.request.path_params["table_id"])
    details = await page.call.perform(operations.get_object, table)
    preview = await page.call.perform(operations.preview_object, table, offset=page.offset, limit=PREVIEW_ROWS)
    async with tenant_connection(page.call) as connection:
        owners = await job_queries.load_table_owners(connection, [table])
    return page.render("object.html", details=details, rows=preview.rows, shown=PREVIEW_ROWS, owners=owners)
