"""Objects: which there are, their columns, their first rows."""

from __future__ import annotations

from starlette.responses import Response

from aaiclick.server.permissions import Permission
from aaiclick.server.routes import objects as api
from aaiclick.server.ui.routing import Pages, Visit

pages = Pages()

LISTED = 100
ROWS = 50


@pages.get("/objects", Permission.READER)
async def index(visit: Visit) -> Response:
    found = await api.index(visit.call, visit.query("cursor") or None, LISTED)
    return visit.page("objects.html", found=found, first=not visit.query("cursor"))


@pages.get("/objects/{table_id}", Permission.READER)
async def show(visit: Visit) -> Response:
    table = str(visit.request.path_params["table_id"])
    offset = int(visit.query("offset")) if visit.query("offset").isdecimal() else 0
    seen = await api.show(visit.call, table)
    rows = (await api.preview(visit.call, table, min(offset, 2**53), ROWS)).rows
    return visit.page("object.html", seen=seen, rows=rows, offset=offset, shown=ROWS)
