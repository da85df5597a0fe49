"""Incident pages: open incidents, one incident with its cause, and acknowledge, snooze and close."""

from __future__ import annotations

from starlette.responses import Response

from aaiclick.errors import DeliveryError
from aaiclick.operations import incidents as operations
from aaiclick.operations import notifications
from aaiclick.operations.actor import Permission
from aaiclick.server.ui.pages.job import parse_path_id
from aaiclick.server.ui.routing import PageRequest, Pages

pages = Pages()

MAX_ROWS = 100
SNOOZE_SECONDS = {"1h": 3600.0, "8h": 8 * 3600.0, "1d": 86_400.0}


@pages.get("/incidents", Permission.READER)
async def list_incidents(page: PageRequest) -> Response:
    closed = page.query_param("closed") == "1"
    listed = await page.call.perform(
        operations.list_incidents, closed=closed, cursor=page.query_param("cursor") or None, limit=MAX_ROWS
    )
    return page.render(
        "incidents.html",
        incidents=listed.items,
        next_cursor=listed.next,
        closed=closed,
        channels=await page.call.perform(notifications.list_notification_channels),
        rules=await page.call.perform(notifications.list_notification_rules),
    )


@pages.post("/incidents/channels/{name}/test", Permission.ADMIN)
async def test_channel(page: PageRequest) -> Response:
    name = str(page.request.path_params["name"])
    try:
        await page.call.perform(notifications.test_notification_channel, name)
    except DeliveryError as error:
        return page.redirect_back(f"The channel {name} did not accept the message: {error.what}", is_error=True)
    return page.redirect_back(f"The channel {name} accepted a test message.")


@pages.get("/incidents/{incident_id:id}", Permission.READER)
async def show_incident(page: PageRequest) -> Response:
    return page.render(
        "incident.html",
        incident=await page.call.perform(operations.get_incident, parse_path_id(page, "incident_id")),
        snooze_options=list(SNOOZE_SECONDS),
    )


@pages.post("/incidents/{incident_id:id}/acknowledge", Permission.WRITER)
async def acknowledge_incident(page: PageRequest) -> Response:
    await page.call.perform(operations.acknowledge_incident, parse_path_id(page, "incident_id"))
    return page.redirect_back("Incident acknowledged.")


@pages.post("/incidents/{incident_id:id}/snooze", Permission.WRITER)
async def snooze_incident(page: PageRequest) -> Response:
    seconds = SNOOZE_SECONDS.get(page.form_field("for", "1h"), 3600.0)
    await page.call.perform(operations.snooze_incident, parse_path_id(page, "incident_id"), seconds)
    return page.redirect_back("Incident snoozed.")


@pages.post("/incidents/{incident_id:id}/close", Permission.WRITER)
async def close_incident(page: PageRequest) -> Response:
    await page.call.perform(operations.close_incident, parse_path_id(page, "incident_id"))
    return page.redirect_back("Incident closed. Another occurrence opens a new one.")
