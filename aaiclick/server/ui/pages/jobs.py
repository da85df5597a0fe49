"""The list of jobs: filters in the address, one page after the other, several ended or retried together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from aaiclick.errors import AaiclickError, RequestError
from aaiclick.server.permissions import Permission
from aaiclick.server.routes import jobs as api
from aaiclick.server.routes.datasets import reader
from aaiclick.server.ui.looking import looking
from aaiclick.server.ui.pages.job import why_job_waits
from aaiclick.server.ui.routing import Pages, Visit
from aaiclick.server.ui.words import JOB_STATES
from aaiclick.store import reads, ui_reads
from aaiclick.store.words import Cancellation

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.engine import Connection

pages = Pages()

SHOWN = 50
OPEN = ("PENDING", "RUNNING")
GONE_WRONG = ("FAILED", "CANCELLED")
MOST_PICKED = 500
EXPLAINED = 10


@pages.get("/jobs", Permission.READER)
async def index(visit: Visit) -> Response:
    status = visit.query("status") if visit.query("status") in JOB_STATES else None
    before = int(visit.query("before")) if _is_id(visit.query("before")) else reads.LAST_ID
    name, words = visit.query("name") or None, visit.query("q") or None
    org = visit.who.org_id
    async with looking(visit.call) as connection:
        rows = await _rows(connection, visit, status, name, words, before)
        older = rows[SHOWN - 1]["id"] if len(rows) > SHOWN else None
        looked: int | None = None
        if older is None and name is None and (words or status == "COMPLETED") and status not in OPEN:
            looked = await ui_reads.window_end(connection, org, before)
        waits = await _waits(visit, connection, rows[:SHOWN])
        counts = await visit.house.kept.get(("jobs", org), lambda: ui_reads.count_jobs(connection, org), seconds=1)
    return visit.page(
        "jobs.html",
        jobs=rows[:SHOWN],
        waits=waits,
        now=datetime.now(UTC),
        status=status,
        tabs=_tabs(counts),
        counted=ui_reads.COUNTED,
        older=older or looked,
        looked=looked,
        window=ui_reads.WINDOW,
        first=before == reads.LAST_ID,
        filtered=bool(status or name or words),
    )


async def _waits(visit: Visit, connection: Connection, rows: Sequence[asyncpg.Record]) -> dict[int, str]:
    """Job id → why it waits, of the first jobs of a page that have not begun."""
    pending = [row for row in rows if row["status"] == "PENDING" and row["paused_at"] is None][:EXPLAINED]
    if not pending:
        return {}
    who = await reader(visit.call, connection)
    return {row["id"]: await why_job_waits(connection, who, row) for row in pending}


async def _rows(
    connection: Connection, visit: Visit, status: str | None, name: str | None, words: str | None, before: int
) -> list[asyncpg.Record]:
    org, limit = visit.who.org_id, SHOWN + 1
    if name is not None:
        return await ui_reads.jobs_named(connection, org, name, status=status, before=before, limit=limit)
    if status in GONE_WRONG and not words:
        return await ui_reads.jobs_gone_wrong(connection, org, status=status, before=before, limit=limit)
    if status in OPEN:
        return await ui_reads.unfinished_jobs(connection, org, status=status, words=words, before=before, limit=limit)
    return await ui_reads.find_jobs(connection, org, status=status, words=words, before=before, limit=limit)


def _tabs(counts: Any) -> list[tuple[str, str, int]]:
    """(state, name, count) of each tab."""
    return [(state, state.capitalize(), counts[state.lower()]) for state in JOB_STATES]


def _is_id(text: str) -> bool:
    return text.isdecimal() and text.isascii() and 0 < len(text) < 20 and int(text) <= reads.LAST_ID


@pages.post("/jobs/cancel", Permission.WRITER)
async def cancel(visit: Visit) -> Response:
    """End the picked jobs."""
    outcomes = Counter([(await api.cancel(visit.call, job_id)).outcome for job_id in _picked(visit)])
    ended, requested = outcomes[Cancellation.CANCELLED], outcomes[Cancellation.REQUESTED]
    text = f"{ended} {'job' if ended == 1 else 'jobs'} cancelled."
    if requested:
        text += f" Cancellation of {requested} {'job' if requested == 1 else 'jobs'} requested."
    return visit.back(text, bad=not ended + requested)


@pages.post("/jobs/retry", Permission.WRITER)
async def retry(visit: Visit) -> Response:
    """Start over what failed in the picked jobs."""
    tasks = 0
    for job_id in _picked(visit):
        tasks += (await api.retry(visit.call, job_id)).count
    return visit.back(f"{tasks} {'task' if tasks == 1 else 'tasks'} started over.", bad=not tasks)


def _picked(visit: Visit) -> list[int]:
    picked = [int(text) for text in visit.form.get("id", []) if _is_id(text)]
    if not picked:
        raise RequestError("No job was picked.", remedy="Pick some by the boxes on the left.")
    if len(picked) > MOST_PICKED:
        raise AaiclickError(f"More than {MOST_PICKED} jobs were picked.")
    return picked
