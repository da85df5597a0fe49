"""Queues: what waits in them, how much of them may run, pause and resume."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from starlette.responses import Response

from aaiclick.errors import RequestError
from aaiclick.server import shapes
from aaiclick.server.permissions import Permission
from aaiclick.server.routes import queues as api
from aaiclick.server.routes.common import reading
from aaiclick.server.ui.routing import Pages, Visit
from aaiclick.store import ui_reads

if TYPE_CHECKING:
    import asyncpg

pages = Pages()

LISTED = 100


@pages.get("/queues", Permission.READER)
async def index(visit: Visit) -> Response:
    org, after = visit.who.org_id, visit.query("after").replace("\x00", "")
    async with reading(visit.call) as connection:
        rows = await visit.house.kept.get(
            ("queues", org, after), lambda: ui_reads.queues_of(connection, org, after=after, limit=LISTED + 1)
        )
    shown = rows[:LISTED]
    return visit.page(
        "queues.html",
        queues=shown,
        following=shown[-1]["name"] if len(rows) > LISTED else None,
        bound=ui_reads.COUNTED,
        now=datetime.now(UTC),
        change=visit.query("change"),
        shares=await _shares(visit) if visit.may("operator") else None,
        bound_each=ui_reads.COUNTED_EACH,
        minutes=ui_reads.RATE_MINUTES,
    )


async def _shares(visit: Visit) -> list[dict[str, Any]]:
    """Every organisation with its part of what runs, and the part that is its due while it has something waiting."""

    async def ask() -> list[asyncpg.Record]:
        async with visit.service.owner() as connection:
            return await ui_reads.org_shares(connection)

    rows = await visit.house.kept.get("shares", ask, seconds=1)
    running = sum(row["running"] for row in rows)
    weights = sum(row["weight"] for row in rows if _takes_turns(row))
    return [
        dict(row)
        | {
            "part": row["running"] / running if running else None,
            "due": row["weight"] / weights if _takes_turns(row) else None,
        }
        for row in rows
    ]


def _takes_turns(row: asyncpg.Record) -> bool:
    return bool(row["ready"]) and row["paused_at"] is None


@pages.post("/queues/pause", Permission.WRITER)
async def pause(visit: Visit) -> Response:
    name = _name(visit)
    await api.pause(visit.call, name)
    return visit.back(f"Queue {name} is paused.", undo="/queues/resume", name=name)


@pages.post("/queues/resume", Permission.WRITER)
async def resume(visit: Visit) -> Response:
    name = _name(visit)
    await api.resume(visit.call, name)
    return visit.back(f"Queue {name} goes on.", undo="/queues/pause", name=name)


@pages.post("/queues/limits", Permission.WRITER)
async def limit(visit: Visit) -> Response:
    name = _name(visit)
    fields = {field: visit.sent(field).strip() or None for field in ("max_running", "rate_per_second", "rate_burst")}
    try:
        body = shapes.LimitsIn.model_validate({**fields, "weight": visit.sent("weight").strip() or 1})
    except ValidationError as error:
        first = error.errors()[0]
        raise RequestError(f"{first['loc'][-1]}: {first['msg']}.", remedy="Go back and correct it.") from None
    await api.limit(visit.call, name, body)
    return visit.go("/queues", f"Limits of the queue {name} are set.")


def _name(visit: Visit) -> str:
    name = visit.sent("name")
    if not 0 < len(name) <= 200 or "\x00" in name:
        raise RequestError("This is no name of a queue.")
    return name
