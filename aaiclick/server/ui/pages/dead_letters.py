"""Dead letters: by what went wrong, started over or given up, one, a group, or all of them."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from starlette.responses import Response

from aaiclick.errors import RequestError
from aaiclick.server import shapes
from aaiclick.server.permissions import Permission
from aaiclick.server.routes import dead_letters as api
from aaiclick.server.routes import outbox
from aaiclick.server.routes.common import reading
from aaiclick.server.routes.datasets import reader
from aaiclick.server.ui.routing import Pages, Visit

pages = Pages()

SHOWN = 100


@pages.get("/dead-letters", Permission.READER)
async def index(visit: Visit) -> Response:
    fingerprint, kind = visit.query("fingerprint") or None, visit.query("type") or None
    async with reading(visit.call) as connection:
        who = await reader(visit.call, connection)
    groups = await visit.house.kept.get(("dead", who), lambda: api.groups(visit.call))
    letters: Any = None
    if fingerprint or kind or visit.query("list"):
        letters = await api.index(visit.call, kind, fingerprint, visit.query("cursor") or None, SHOWN)
    failed_events: Any = None
    if visit.may("admin"):
        failed_events = await outbox.index(visit.call, "Failed", None, SHOWN)
    return visit.page(
        "dead_letters.html",
        failed_events=failed_events,
        groups=groups,
        total=sum(group.count for group in groups),
        letters=letters,
        fingerprint=fingerprint,
        type=kind,
        first=not visit.query("cursor"),
    )


@pages.post("/dead-letters/redrive", Permission.WRITER)
async def redrive(visit: Visit) -> Response:
    choice = _choice(visit, per_second=visit.sent("per_second").strip() or None)
    done = await api.redrive(visit.call, shapes.Redrive.model_validate(choice))
    if not done.count:
        return visit.back("Nothing was started over: no such dead letter is left.", bad=True)
    more = " What waited for dead letters comes back with them." if done.count > 1 else ""
    return visit.back(f"{done.count} {'task' if done.count == 1 else 'tasks'} started over.{more}")


@pages.post("/dead-letters/discard", Permission.WRITER)
async def discard(visit: Visit) -> Response:
    done = await api.discard(visit.call, shapes.Choice.model_validate(_choice(visit)))
    if not done.count:
        return visit.back("Nothing was given up: no such dead letter is left.", bad=True)
    return visit.back(f"{done.count} {'task' if done.count == 1 else 'tasks'} given up.")


@pages.post("/dead-letters/events/retry", Permission.ADMIN)
async def retry_events(visit: Visit) -> Response:
    ids = visit.form.get("id") or None
    done = await outbox.retry(visit.call, shapes.OutboxRetry(ids=ids, all=ids is None))
    if not done.count:
        return visit.back("No event was retried: none has failed.", bad=True)
    return visit.back(f"{done.count} {'event' if done.count == 1 else 'events'} routed again.")


def _choice(visit: Visit, **more: Any) -> dict[str, Any]:
    choice = {
        "ids": visit.form.get("id") or None,
        "type": visit.sent("type") or None,
        "fingerprint": visit.sent("fingerprint") or None,
        "all": visit.sent("all") == "yes",
        **more,
    }
    try:
        shapes.Redrive.model_validate(choice)
    except ValidationError:
        raise RequestError("Nothing was picked.", remedy="Pick dead letters by the boxes on the left.") from None
    return choice
