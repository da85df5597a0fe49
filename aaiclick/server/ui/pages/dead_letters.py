"""Dead letter page: tasks grouped by error, with redrive and discard; failed events with retry."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from starlette.responses import Response

from aaiclick.api.dead_letters import DeadLetterSelection, OutboxRetryRequest, RedriveRequest
from aaiclick.errors import RequestError
from aaiclick.operations import dead_letters as operations
from aaiclick.operations import outbox
from aaiclick.operations.actor import Permission
from aaiclick.operations.dataset_reader import dataset_reader
from aaiclick.server.routes.common import tenant_connection
from aaiclick.server.ui.routing import PageRequest, Pages

pages = Pages()

MAX_ROWS = 100


@pages.get("/dead-letters", Permission.READER)
async def list_dead_letters(page: PageRequest) -> Response:
    fingerprint, task_type = page.query_param("fingerprint") or None, page.query_param("type") or None
    async with tenant_connection(page.call) as connection:
        reader = await dataset_reader(connection, page.caller)
    groups = await page.ui_state.cache.get(("dead", reader), lambda: page.call.perform(operations.group_dead_letters))
    letters: Any = None
    if fingerprint or task_type or page.query_param("list"):
        letters = await page.call.perform(
            operations.list_dead_letters,
            type=task_type,
            fingerprint=fingerprint,
            cursor=page.query_param("cursor") or None,
            limit=MAX_ROWS,
        )
    failed_events: Any = None
    if page.has_permission("admin"):
        failed_events = await page.call.perform(outbox.list_outbox_events, status="Failed", limit=MAX_ROWS)
    return page.render(
        "dead_letters.html",
        failed_events=failed_events,
        groups=groups,
        total=sum(group.count for group in groups),
        letters=letters,
        fingerprint=fingerprint,
        type=task_type,
        first=not page.query_param("cursor"),
    )


@pages.post("/dead-letters/redrive", Permission.WRITER)
async def redrive_dead_letters(page: PageRequest) -> Response:
    choice = _parse_selection(page, per_second=page.form_field("per_second").strip() or None)
    redriven = await page.call.perform(operations.redrive_dead_letters, RedriveRequest.model_validate(choice))
    if not redriven.count:
        return page.redirect_back("No dead letter was redriven: none matches.", is_error=True)
    more = " Tasks cancelled because of them run again too." if redriven.count > 1 else ""
    return page.redirect_back(f"{redriven.count} {'task' if redriven.count == 1 else 'tasks'} redriven.{more}")


@pages.post("/dead-letters/discard", Permission.WRITER)
async def discard_dead_letters(page: PageRequest) -> Response:
    discarded = await page.call.perform(
        operations.discard_dead_letters, DeadLetterSelection.model_validate(_parse_selection(page))
    )
    if not discarded.count:
        return page.redirect_back("No dead letter was discarded: none matches.", is_error=True)
    return page.redirect_back(f"{discarded.count} {'task' if discarded.count == 1 else 'tasks'} discarded.")


@pages.post("/dead-letters/events/retry", Permission.ADMIN)
async def retry_events(page: PageRequest) -> Response:
    ids = page.form.get("id") or None
    retried = await page.call.perform(
        outbox.retry_outbox_events, OutboxRetryRequest.model_validate({"ids": ids, "all": ids is None})
    )
    if not retried.count:
        return page.redirect_back("No event was retried: none has failed.", is_error=True)
    return page.redirect_back(f"{retried.count} {'event' if retried.count == 1 else 'events'} queued for retry.")


def _parse_selection(page: PageRequest, **more: object) -> dict[str, object]:
    choice = {
        "ids": page.form.get("id") or None,
        "type": page.form_field("type") or None,
        "fingerprint": page.form_field("fingerprint") or None,
        "all": page.form_field("all") == "yes",
        **more,
    }
    try:
        RedriveRequest.model_validate(choice)
    except ValidationError:
        raise RequestError("Nothing selected.", remedy="Select dead letters with the checkboxes on the left.") from None
    return choice
