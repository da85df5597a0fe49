"""Job page: graph, timeline, tasks, log, events, and the actions on a job."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from aaiclick.catalog.dataset_visibility import (
    REDACTED_ERROR,
    explain_waiting,
    hidden_task_ids,
    redact_attempts,
    redact_jobs,
    redact_tasks,
)
from aaiclick.errors import NotFoundError
from aaiclick.operations import jobs as operations
from aaiclick.operations.actor import Permission
from aaiclick.operations.dataset_reader import dataset_reader
from aaiclick.operations.job_and_task_lookups import find_job
from aaiclick.operations.log_files import log_path, read_part
from aaiclick.operations.row_conversion import to_job
from aaiclick.server.ui.read_transaction import read_transaction
from aaiclick.server.ui.routing import PageRequest, Pages
from aaiclick.server.ui.svg import gantt, job_graph
from aaiclick.server.ui.svg.collapse_tasks import (
    PARTS,
    CollapsedJob,
    collapse_tasks,
    collapse_types,
    task_part,
    units_by_type,
)
from aaiclick.server.ui.template_filters import CANCELLATIONS, TASK_STATES, count_progress
from aaiclick.store.engine import queries
from aaiclick.store.enums import Cancellation
from aaiclick.store.ui import dag_queries, job_queries

if TYPE_CHECKING:
    from aaiclick.operations.row_conversion import Row
    from aaiclick.store.catalog.datasets import Reader
    from aaiclick.store.postgres_connections import Connection

pages = Pages()

VIEWS = ("graph", "timeline", "tasks", "log", "events")
MAX_TASKS = 100
COMMON_STATES = ("PENDING", "CANCELLED", "SKIPPED", "COMPLETED")
COUNT_TIMEOUT_SECONDS = 0.08
MAX_LOGS = 12
TAIL_BYTES = 4_000


@pages.get("/jobs/{job_id:id}", Permission.READER)
async def show_job(page: PageRequest) -> Response:
    job_id = parse_path_id(page, "job_id")
    view = page.query_param("view") if page.query_param("view") in VIEWS else "graph"
    async with read_transaction(page.call) as connection:
        reader = await dataset_reader(connection, page.caller)
        (job,) = await redact_jobs(connection, reader, [await find_job(connection, page.caller, job_id)])
        values: dict[str, Any] = {"counts": await _count_tasks(page, connection, job)}
        values["dag"] = await dag_queries.find_dag_name(connection, job["dag_version_id"])
        values["tree"] = await queries.list_job_tree(connection, job_id)
        values["waiting_reason"] = await explain_waiting_job(connection, reader, job)
        match view:
            case "tasks":
                values |= await _load_tasks(page, connection, reader, job)
            case "events":
                history = await job_queries.list_failed_attempts(connection, job_id)
                values["attempts"] = await redact_attempts(connection, reader, history)
            case "log":
                values["parts"] = await _load_logs(page, connection, reader, job_id)
            case _:
                collapsed, values["counting"] = await _collapse_job(page, connection, job)
                if view == "graph":
                    values["drawing"] = job_graph.draw_job(
                        collapsed, _parse_ids(page.query_param("open")), _parse_ids(page.query_param("shut"))
                    )
                    values |= {"opened": page.query_param("open"), "shut": page.query_param("shut")}
                else:
                    values["chart"] = gantt.draw_gantt(collapsed, job["completed_at"] or datetime.now(UTC))
        versions = await queries.list_code_versions(connection, job_id)
    values["origin"] = to_job(job, versions)
    return page.render("job.html", job=job, view=view, views=VIEWS, now=datetime.now(UTC), **values)


async def explain_waiting_job(connection: Connection, reader: Reader, job: Row) -> str:
    """Explain why an unfinished job waits; empty if it runs or has finished."""
    if job["completed_at"] is not None:
        return ""
    task = await queries.find_next_task(connection, job["id"])
    if task is None:
        return ""
    return "; ".join(reason.text for reason in await explain_waiting(connection, reader, task["id"]))


async def _count_tasks(page: PageRequest, connection: Connection, job: Row) -> dict[str, int]:
    """Count a job's tasks by state."""
    counts = dict.fromkeys(PARTS, 0)
    if job["total_tasks"] <= job_queries.MAX_DETAILED_TASKS:
        for row in await _count_types(page, connection, job):
            counts[task_part(row)] += row["count"]
        return counts
    counts["running"] = running = await job_queries.count_running_tasks(connection, job["id"])
    finished = count_progress(job)
    return counts | finished | {"pending": max(0, job["open_tasks"] - running)}


async def _count_types(page: PageRequest, connection: Connection, job: Row) -> Sequence[Row]:
    """Count tasks by group, type and state; a changed job is counted again."""
    key = ("units", job["id"], job["updated_at"])
    return await page.ui_state.cache.get(
        key, lambda: job_queries.load_job_units(connection, job["id"]), min_ttl_seconds=0.2
    )


async def _count_types_of_large_job(page: PageRequest, connection: Connection, job: Row) -> tuple[Sequence[Row], bool]:
    """Count the types of a large job; return a sample and True if the count is not finished in time."""

    async def count_types() -> Sequence[Row]:
        async with read_transaction(page.call) as count_connection:
            return await job_queries.load_job_units(count_connection, job["id"])

    counts = await page.ui_state.cache.get_within(
        ("units", job["id"]), count_types, timeout_seconds=COUNT_TIMEOUT_SECONDS
    )
    return (await job_queries.sample_job_units(connection, job["id"]), True) if counts is None else (counts, False)


async def _collapse_job(page: PageRequest, connection: Connection, job: Row) -> tuple[CollapsedJob, bool]:
    """Return the nodes to draw, and whether the count of tasks is still running."""
    job_id = job["id"]
    groups = await job_queries.list_graph_groups(connection, job_id)
    if job["total_tasks"] <= job_queries.MAX_DETAILED_TASKS:
        tasks = await job_queries.list_graph_tasks(connection, job_id)
        nodes = [row["id"] for row in tasks] + [row["id"] for row in groups]
        collapsed = collapse_tasks(tasks, groups, await job_queries.list_incoming_edges(connection, nodes))
        return await _with_dataset_edges(connection, job, collapsed), False
    counts_by_type, counting = await _count_types_of_large_job(page, connection, job)

    async def load_edges() -> tuple[Sequence[Row], list[tuple[int, int]]]:
        samples = await job_queries.sample_unit_tasks(
            connection, job_id, [unit.id for unit in units_by_type(counts_by_type)][:500]
        )
        nodes = [row["id"] for row in samples] + [row["id"] for row in groups]
        edges = await job_queries.list_incoming_edges(connection, nodes)
        known_ids = {row["id"] for row in samples} | {row["id"] for row in groups}
        other_tasks = await job_queries.load_task_names(connection, [a for a, _ in edges if a not in known_ids])
        return [*samples, *other_tasks], edges

    samples, edges = await page.ui_state.cache.get(
        ("edges", job_id, job["total_tasks"], counting), load_edges, min_ttl_seconds=5
    )
    return await _with_dataset_edges(connection, job, collapse_types(counts_by_type, samples, groups, edges)), counting


async def _with_dataset_edges(connection: Connection, job: Row, collapsed: CollapsedJob) -> CollapsedJob:
    """Add edges from the producer of a dataset to its consumers; DAG tasks wait for events, not for tasks."""
    if job["dag_version_id"] is not None:
        collapsed.edges.update(await job_queries.list_dataset_edges(connection, list(collapsed.units)))
    return collapsed


async def _load_tasks(page: PageRequest, connection: Connection, reader: Reader, job: Row) -> dict[str, object]:
    status = page.query_param("status") if page.query_param("status") in TASK_STATES else None
    task_type = page.query_param("type") or None
    after = min(_parse_ids(page.query_param("after")), default=0)
    rows: Sequence[Row] = []
    if status is None or _may_have(job, status):
        rows = await job_queries.search_job_tasks(
            connection, job["id"], status=status, task_type=task_type, after=after, limit=MAX_TASKS + 1
        )
    next_id = rows[MAX_TASKS - 1]["id"] if len(rows) > MAX_TASKS else None
    window_end: int | None = None
    if next_id is None and (task_type or status in COMMON_STATES) and job["total_tasks"] > job_queries.SEARCH_WINDOW:
        window_end = await job_queries.find_task_window_end(connection, job["id"], after)
    tasks = await redact_tasks(connection, reader, rows[:MAX_TASKS])
    return {
        "tasks": tasks, "status": status, "type": task_type, "more": next_id or window_end,
        "is_partial": window_end is not None, "first": after == 0, "window": job_queries.SEARCH_WINDOW,
    }  # fmt: skip


def _may_have(job: Row, status: str) -> bool:
    """Whether a job can have tasks in a state, according to the job's counters."""
    finished = count_progress(job)
    match status:
        case "FAILED":
            return bool(job["failed_tasks"] or job["open_tasks"])  # tasks waiting for a retry are FAILED too
        case "DEAD_LETTER":
            return bool(job["failed_tasks"])
        case "CANCELLED":
            return bool(job["cancelled_tasks"])
        case "COMPLETED" | "SKIPPED":
            return bool(finished["completed"])
        case _:
            return bool(job["open_tasks"])


async def _load_logs(
    page: PageRequest, connection: Connection, reader: Reader, job_id: int
) -> list[tuple[object, str]]:
    """Read the ends of the logs of the running or most recent tasks."""
    rows = await job_queries.list_tasks_with_logs(connection, job_id, MAX_LOGS)
    shown = sorted(rows[:MAX_LOGS], key=lambda row: (row["started_at"] is None, row["started_at"] or 0, row["id"]))
    hidden = await hidden_task_ids(connection, reader, (row["id"] for row in shown))

    async def read_log(row: Row) -> str:
        if row["id"] in hidden:
            return REDACTED_ERROR
        return (await read_part(log_path(page.app_state.settings, row["id"]), -TAIL_BYTES, TAIL_BYTES))[0]

    parts = await asyncio.gather(*(read_log(row) for row in shown))
    return [(row, text) for row, text in zip(shown, parts, strict=True) if text]


@pages.post("/jobs/{job_id:id}/cancel", Permission.WRITER)
async def cancel_job(page: PageRequest) -> Response:
    result = await page.call.perform(operations.cancel_job, parse_path_id(page, "job_id"))
    return page.redirect_back(CANCELLATIONS[result.outcome], is_error=result.outcome is Cancellation.OVER)


@pages.post("/jobs/{job_id:id}/retry", Permission.WRITER)
async def retry_job(page: PageRequest) -> Response:
    retried = await page.call.perform(
        operations.retry_job, parse_path_id(page, "job_id"), cancelled=page.form_field("cancelled") == "yes"
    )
    if not retried.count:
        return page.redirect_back("Nothing to retry: no task of this job has failed.", is_error=True)
    return page.redirect_back(f"{retried.count} {'task' if retried.count == 1 else 'tasks'} will be retried.")


@pages.post("/jobs/{job_id:id}/pause", Permission.WRITER)
async def pause_job(page: PageRequest) -> Response:
    job_id = parse_path_id(page, "job_id")
    await page.call.perform(operations.pause_job, job_id)
    return page.redirect_back("Job paused. Running tasks continue.", undo=f"/jobs/{job_id}/resume")


@pages.post("/jobs/{job_id:id}/resume", Permission.WRITER)
async def resume_job(page: PageRequest) -> Response:
    job_id = parse_path_id(page, "job_id")
    await page.call.perform(operations.resume_job, job_id)
    return page.redirect_back("Job resumed.", undo=f"/jobs/{job_id}/pause")


@pages.post("/jobs/{job_id:id}/rerun", Permission.WRITER)
async def rerun_job(page: PageRequest) -> Response:
    """Submit the same workflow and arguments as a new job."""
    created = await page.call.perform(operations.rerun_job, parse_path_id(page, "job_id"))
    return page.redirect(f"/jobs/{created.id}", f"Started job {created.id}.")


def parse_path_id(page: PageRequest, name: str) -> int:
    """Parse an id in the URL; raises NotFoundError if it is out of range."""
    value = int(page.request.path_params[name])
    if not 0 < value <= queries.LAST_ID:
        raise NotFoundError("Nothing found with this id.")
    return value


def _parse_ids(text: str) -> frozenset[int]:
    parts = [part for part in text.split(",") if part.isdecimal() and part.isascii() and len(part) < 20]
    return frozenset(int(part) for part in parts[:200] if int(part) <= queries.LAST_ID)
