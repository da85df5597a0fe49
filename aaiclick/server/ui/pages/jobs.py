"""Job list with filters, pagination, and bulk cancel and retry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from aaiclick.errors import AaiclickError, RequestError
from aaiclick.operations import jobs as operations
from aaiclick.operations.actor import Permission
from aaiclick.operations.dataset_reader import dataset_reader
from aaiclick.orchestration.job_labels import MAX_TAGS, check_labels, parse_tags
from aaiclick.server.ui.pages.job import explain_waiting_job
from aaiclick.server.ui.read_transaction import read_transaction
from aaiclick.server.ui.routing import PageRequest, Pages
from aaiclick.server.ui.template_filters import JOB_STATES
from aaiclick.store.engine import queries
from aaiclick.store.enums import Cancellation
from aaiclick.store.ui import job_queries

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.postgres_connections import Connection

pages = Pages()

MAX_JOBS = 50
UNFINISHED = ("PENDING", "RUNNING")
UNSUCCESSFUL = ("FAILED", "CANCELLED")
MAX_SELECTED = 500
MAX_EXPLAINED = 10


@pages.get("/jobs", Permission.READER)
async def list_jobs(page: PageRequest) -> Response:
    status = page.query_param("status") if page.query_param("status") in JOB_STATES else None
    before = int(page.query_param("before")) if _is_id(page.query_param("before")) else queries.LAST_ID
    name, search_text = page.query_param("name") or None, page.query_param("q") or None
    labels = _read_labels(page)
    org = page.caller.org_id
    async with read_transaction(page.call) as connection:
        if labels:
            rows = await queries.list_jobs(
                connection, status=status, org_id=org, labels=labels, before=before, limit=MAX_JOBS + 1
            )
        else:
            rows = await _load_jobs(connection, page, status, name, search_text, before)
        older = rows[MAX_JOBS - 1]["id"] if len(rows) > MAX_JOBS else None
        window_end: int | None = None
        if (
            older is None
            and name is None
            and not labels
            and (search_text or status == "COMPLETED")
            and status not in UNFINISHED
        ):
            window_end = await job_queries.find_window_end(connection, org, before)
        waiting_reasons = await _explain_waiting(page, connection, rows[:MAX_JOBS])
        counts = await page.ui_state.cache.get(
            ("jobs", org), lambda: job_queries.count_jobs(connection, org), min_ttl_seconds=1
        )
    return page.render(
        "jobs.html",
        jobs=rows[:MAX_JOBS],
        waiting_reasons=waiting_reasons,
        now=datetime.now(UTC),
        status=status,
        tabs=_build_tabs(counts),
        max_count=job_queries.MAX_COUNT,
        older=older or window_end,
        is_partial=window_end is not None,
        window=job_queries.SEARCH_WINDOW,
        first=before == queries.LAST_ID,
        filtered=bool(status or name or search_text or labels),
        labels=labels,
    )


def _read_labels(page: PageRequest) -> dict[str, str]:
    """Tags and owner to filter by."""
    tags = page.request.query_params.getlist("tag")
    return check_labels("The filter", parse_tags(tags[:MAX_TAGS]), page.query_param("owner") or None)


async def _explain_waiting(page: PageRequest, connection: Connection, rows: Sequence[asyncpg.Record]) -> dict[int, str]:
    """Explain why the first pending jobs of a page wait, by job id."""
    pending = [row for row in rows if row["status"] == "PENDING" and row["paused_at"] is None][:MAX_EXPLAINED]
    if not pending:
        return {}
    reader = await dataset_reader(connection, page.caller)
    return {row["id"]: await explain_waiting_job(connection, reader, row) for row in pending}


async def _load_jobs(
    connection: Connection,
    page: PageRequest,
    status: str | None,
    name: str | None,
    search_text: str | None,
    before: int,
) -> list[asyncpg.Record]:
    org, limit = page.caller.org_id, MAX_JOBS + 1
    if name is not None:
        return await job_queries.list_jobs_by_name(connection, org, name, status=status, before=before, limit=limit)
    if status in UNSUCCESSFUL and not search_text:
        return await job_queries.list_unsuccessful_jobs(connection, org, status=status, before=before, limit=limit)
    if status in UNFINISHED:
        return await job_queries.list_unfinished_jobs(
            connection, org, status=status, search=search_text, before=before, limit=limit
        )
    return await job_queries.find_jobs(connection, org, status=status, search=search_text, before=before, limit=limit)


def _build_tabs(counts: Any) -> list[tuple[str, str, int]]:
    """Return (state, name, count) of each tab."""
    return [(state, state.capitalize(), counts[state.lower()]) for state in JOB_STATES]


def parse_id(text: str) -> int | None:
    """Parse an id in a query; None if it is none."""
    return int(text) if _is_id(text) else None


def _is_id(text: str) -> bool:
    return text.isdecimal() and text.isascii() and 0 < len(text) < 20 and int(text) <= queries.LAST_ID


@pages.post("/jobs/cancel", Permission.WRITER)
async def cancel_jobs(page: PageRequest) -> Response:
    """Cancel the selected jobs."""
    outcomes = Counter(
        [(await page.call.perform(operations.cancel_job, job_id)).outcome for job_id in _selected_ids(page)]
    )
    ended, requested = outcomes[Cancellation.CANCELLED], outcomes[Cancellation.REQUESTED]
    text = f"{ended} {'job' if ended == 1 else 'jobs'} cancelled."
    if requested:
        text += f" Cancellation of {requested} {'job' if requested == 1 else 'jobs'} requested."
    return page.redirect_back(text, is_error=not ended + requested)


@pages.post("/jobs/retry", Permission.WRITER)
async def retry_jobs(page: PageRequest) -> Response:
    """Retry the failed tasks of the selected jobs."""
    tasks = 0
    for job_id in _selected_ids(page):
        tasks += (await page.call.perform(operations.retry_job, job_id)).count
    return page.redirect_back(f"{tasks} {'task' if tasks == 1 else 'tasks'} will be retried.", is_error=not tasks)


def _selected_ids(page: PageRequest) -> list[int]:
    job_ids = [int(text) for text in page.form.get("id", []) if _is_id(text)]
    if not job_ids:
        raise RequestError("No job selected.", remedy="Select jobs with the checkboxes on the left.")
    if len(job_ids) > MAX_SELECTED:
        raise AaiclickError(f"More than {MAX_SELECTED} jobs selected.")
    return job_ids
