"""News for open pages: which jobs changed, a few times a second at most, and fewer the more pages are open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.responses import Response

from aaiclick.server.permissions import Permission
from aaiclick.server.sse import Event, EventStream
from aaiclick.server.ui.routing import Pages, Visit

pages = Pages()

NAMED = 100
SOONEST_SECONDS = 0.3


@pages.get("/live", Permission.READER)
async def live(visit: Visit) -> Response:
    last = visit.request.headers.get("last-event-id")
    return EventStream(_news(visit, last[:100] if last else None), visit.service.closing)


async def _news(visit: Visit, last_event_id: str | None) -> AsyncGenerator[Event | None]:
    house = visit.house
    house.pace.listeners += 1
    changed: set[str] = set()
    last: str | None = None
    try:
        async with aclosing(house.service.live.listen(visit.who.org_id, last_event_id, None)) as events:
            async for event in events:
                if event is not None and event.kind == "job":
                    changed.add(event.data["id"])
                    last = event.id
                elif event is not None:
                    yield event
                else:  # everything that there was has been said
                    if changed:
                        named = sorted(changed) if len(changed) <= NAMED else None
                        yield Event("changed", {"jobs": named}, last)
                        changed.clear()
                        await asyncio.sleep(max(SOONEST_SECONDS, house.pace.seconds / 2))
                    yield None
    finally:
        house.pace.listeners -= 1
