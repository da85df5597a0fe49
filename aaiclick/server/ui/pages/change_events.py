"""Server-sent events with the ids of changed jobs, throttled by the number of open pages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.responses import Response

from aaiclick.operations.actor import Permission
from aaiclick.server.sse import EventStream, ServerSentEvent
from aaiclick.server.ui.routing import PageRequest, Pages

pages = Pages()

MAX_JOB_IDS = 100
MIN_INTERVAL_SECONDS = 0.3


@pages.get("/live", Permission.READER)
async def stream_changes(page: PageRequest) -> Response:
    last = page.request.headers.get("last-event-id")
    return EventStream(_changed_jobs(page, last[:100] if last else None), page.app_state.closing)


async def _changed_jobs(page: PageRequest, last_event_id: str | None) -> AsyncGenerator[ServerSentEvent | None]:
    ui_state = page.ui_state
    ui_state.refresh_interval.open_pages += 1
    changed: set[str] = set()
    last: str | None = None
    try:
        async with aclosing(
            ui_state.app_state.change_feed.subscribe(page.caller.org_id, last_event_id, None)
        ) as events:
            async for event in events:
                if event is not None and event.name == "job":
                    changed.add(event.data["id"])
                    last = event.id
                elif event is not None:
                    yield event
                else:  # no event is pending: flush
                    if changed:
                        job_ids = sorted(changed) if len(changed) <= MAX_JOB_IDS else None
                        yield ServerSentEvent("changed", {"jobs": job_ids}, last)
                        changed.clear()
                        await asyncio.sleep(max(MIN_INTERVAL_SECONDS, ui_state.refresh_interval.seconds / 2))
                    yield None
    finally:
        ui_state.refresh_interval.open_pages -= 1
