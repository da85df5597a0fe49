"""Queue page: depth, throughput, limits, pause and resume; shares of organisations for operators."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from aaiclick.api.field_types import parse_fields
from aaiclick.api.workers import LimitsRequest
from aaiclick.errors import RequestError
from aaiclick.operations.actor import Permission
from aaiclick.server.routes import queues as api
from aaiclick.server.routes.common import tenant_connection
from aaiclick.server.ui.routing import PageRequest, Pages
from aaiclick.store.ui import job_queries

if TYPE_CHECKING:
    import asyncpg

pages = Pages()

MAX_QUEUES = 100


@pages.get("/queues", Permission.READER)
async def list_queues(page: PageRequest) -> Response:
    org, after = page.caller.org_id, page.query_param("after").replace("\x00", "")
    async with tenant_connection(page.call) as connection:
        rows = await page.ui_state.cache.get(
            ("queues", org, after), lambda: job_queries.list_queues(connection, org, after=after, limit=MAX_QUEUES + 1)
        )
    shown = rows[:MAX_QUEUES]
    return page.render(
        "queues.html",
        queues=shown,
        next_name=shown[-1]["name"] if len(rows) > MAX_QUEUES else None,
        max_count=job_queries.MAX_COUNT,
        now=datetime.now(UTC),
        change=page.query_param("change"),
        shares=await _org_shares(page) if page.has_permission("operator") else None,
        max_count_per_org=job_queries.MAX_COUNT_PER_ORG,
        minutes=job_queries.RATE_MINUTES,
    )


async def _org_shares(page: PageRequest) -> list[dict[str, Any]]:
    """Return each organisation with its share of running tasks and its fair share by weight."""

    async def load_shares() -> list[asyncpg.Record]:
        async with page.app_state.owner_connection() as connection:
            return await job_queries.list_org_shares(connection)

    rows = await page.ui_state.cache.get("shares", load_shares, min_ttl_seconds=1)
    running = sum(row["running"] for row in rows)
    weights = sum(row["weight"] for row in rows if _is_scheduled(row))
    return [
        dict(row)
        | {
            "share": row["running"] / running if running else None,
            "fair_share": row["weight"] / weights if _is_scheduled(row) else None,
        }
        for row in rows
    ]


def _is_scheduled(row: asyncpg.Record) -> bool:
    return bool(row["ready"]) and row["paused_at"] is None


@pages.post("/queues/pause", Permission.WRITER)
async def pause_queue(page: PageRequest) -> Response:
    name = _queue_name(page)
    await api.pause_queue(page.call, name)
    return page.redirect_back(f"Queue {name} paused.", undo="/queues/resume", name=name)


@pages.post("/queues/resume", Permission.WRITER)
async def resume_queue(page: PageRequest) -> Response:
    name = _queue_name(page)
    await api.resume_queue(page.call, name)
    return page.redirect_back(f"Queue {name} resumed.", undo="/queues/pause", name=name)


@pages.post("/queues/limits", Permission.WRITER)
async def set_queue_limits(page: PageRequest) -> Response:
    name = _queue_name(page)
    fields = {
        field: page.form_field(field).strip() or None for field in ("max_running", "rate_per_second", "rate_burst")
    }
    body = parse_fields(LimitsRequest, fields | {"weight": page.form_field("weight").strip() or 1})
    await api.set_queue_limits(page.call, name, body)
    return page.redirect("/queues", f"Limits of queue {name} updated.")


def _queue_name(page: PageRequest) -> str:
    name = page.form_field("name")
    if not 0 < len(name) <= 200 or "\x00" in name:
        raise RequestError("Invalid queue name.")
    return name
