"""Objects: which there are, their columns, their first rows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from starlette.responses import Response

from aaiclick.server.permissions import Permission
from aaiclick.server.routes import objects as api
from aaiclick.server.routes.common import reading
from aaiclick.server.ui.routing import Pages, Visit
from aaiclick.snowflake import extract_timestamp
from aaiclick.store import ui_reads

pages = Pages()

LISTED = 100
ROWS = 50


@pages.get("/objects", Permission.READER)
async def index(visit: Visit) -> Response:
    found = await api.index(visit.call, visit.query("cursor") or None, LISTED)
    tables = [each.table_id for each in found.items]
    return visit.page("objects.html", found=found, **await _origins(visit, tables))


@pages.get("/objects/{table_id}", Permission.READER)
async def show(visit: Visit) -> Response:
    table = str(visit.request.path_params["table_id"])
    seen = await api.show(visit.call, table)
    rows = (await api.preview(visit.call, table, visit.offset, ROWS)).rows
    return visit.page("object.html", seen=seen, rows=rows, shown=ROWS, **await _origins(visit, [table]))


async def _origins(visit: Visit, tables: Sequence[str]) -> dict[str, Any]:
    """When tables were made, as far as their names tell, and who holds them."""
    async with reading(visit.call) as connection:
        owners = await ui_reads.table_owners(connection, tables)
    ids = {table: int(table[1:]) for table in tables if table[:1] == "t" and table[1:].isdecimal()}
    made = {table: datetime.fromtimestamp(extract_timestamp(key) / 1000, UTC) for table, key in ids.items()}
    return {"owners": owners, "made": made}
