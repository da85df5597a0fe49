"""Schedule page: sources with their next and last runs."""

from __future__ import annotations

from starlette.responses import Response

from aaiclick.operations.actor import Permission
from aaiclick.server.routes.common import tenant_connection
from aaiclick.server.ui.pages.dags import describe_source
from aaiclick.server.ui.routing import PageRequest, Pages
from aaiclick.store.ui import dag_queries

pages = Pages()

MAX_ROWS = 100


@pages.get("/schedules", Permission.READER)
async def list_schedules(page: PageRequest) -> Response:
    async with tenant_connection(page.call) as connection:
        rows = await dag_queries.list_dag_sources(
            connection, page.caller.org_id, limit=MAX_ROWS + 1, offset=page.offset
        )
    shown = [(row, describe_source(row["source"])) for row in rows[:MAX_ROWS]]
    return page.render("schedules.html", sources=shown, more=len(rows) > MAX_ROWS)
