"""Sources: what starts by itself, when next, and how it went last."""

from __future__ import annotations

from starlette.responses import Response

from aaiclick.server.permissions import Permission
from aaiclick.server.routes.common import reading
from aaiclick.server.ui.pages.dags import source_words
from aaiclick.server.ui.routing import Pages, Visit
from aaiclick.store import ui_dags

pages = Pages()

LISTED = 100


@pages.get("/schedules", Permission.READER)
async def index(visit: Visit) -> Response:
    async with reading(visit.call) as connection:
        rows = await ui_dags.sources(connection, visit.who.org_id, limit=LISTED + 1, offset=visit.offset)
    shown = [(row, source_words(row["source"])) for row in rows[:LISTED]]
    return visit.page("schedules.html", sources=shown, more=len(rows) > LISTED)
