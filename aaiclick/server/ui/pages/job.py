"""One job: its graph, when everything ran, its tasks, what happened, what it says; and what to do with it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from aaiclick.catalog.readable import WITHHELD, as_seen, attempts_as_seen, jobs_as_seen, untold, why_as_seen
from aaiclick.errors import NotFoundError
from aaiclick.server.logs import read_part
from aaiclick.server.permissions import Permission
from aaiclick.server.routes import jobs as api
from aaiclick.server.routes.common import note, operating, own_job, reading
from aaiclick.server.routes.datasets import reader
from aaiclick.server.ui.looking import looking
from aaiclick.server.ui.routing import Pages, Visit
from aaiclick.server.ui.svg import gantt, graph
from aaiclick.server.ui.svg.fold import PARTS, Folded, fold_kinds, fold_tasks, kind_units, part_of
from aaiclick.server.ui.words import CANCELLATIONS, TASK_STATES, progress
from aaiclick.store import reads, ui_dags, ui_reads
from aaiclick.store.ui_again import run_again
from aaiclick.store.words import Cancellation

if TYPE_CHECKING:
    from aaiclick.store.catalog_datasets import Reader
    from aaiclick.store.engine import Connection

pages = Pages()

VIEWS = ("graph", "timeline", "tasks", "log", "events")
SHOWN = 100
COMMON = ("PENDING", "CANCELLED", "COMPLETED")
COUNTED_WITHIN_SECONDS = 0.08
TALKING = 12
TAIL_BYTES = 4_000


@pages.get("/jobs/{job_id:int}", Permission.READER)
async def show(visit: Visit) -> Response:
    job_id = path_id(visit, "job_id")
    view = visit.query("view") if visit.query("view") in VIEWS else "graph"
    async with looking(visit.call) as connection:
        who = await reader(visit.call, connection)
        (job,) = await jobs_as_seen(connection, who, [await own_job(visit.call, connection, job_id)])
        values: dict[str, Any] = {"counts": await _counts(visit, connection, job)}
        values["dag"] = await ui_dags.dag_of(connection, job["dag_version_id"])
        values["waits"] = await why_job_waits(connection, who, job)
        match view:
            case "tasks":
                values |= await _tasks(visit, connection, who, job)
            case "events":
                history = await ui_reads.job_history(connection, job_id)
                values["attempts"] = await attempts_as_seen(connection, who, history)
            case "log":
                values["parts"] = await _log(visit, connection, who, job_id)
            case _:
                folded, values["counting"] = await _folded(visit, connection, job)
                if view == "graph":
                    values["drawing"] = graph.draw(folded, _ids(visit.query("open")), _ids(visit.query("shut")))
                    values |= {"opened": visit.query("open"), "shut": visit.query("shut")}
                else:
                    values["chart"] = gantt.draw(folded, job["completed_at"] or datetime.now(UTC))
    return visit.page("job.html", job=job, view=view, views=VIEWS, now=datetime.now(UTC), **values)


async def why_job_waits(connection: Connection, who: Reader, job: Any) -> str:
    """Why nothing of an unfinished job runs; empty if something does."""
    if job["completed_at"] is not None:
        return ""
    task = await reads.next_task(connection, job["id"])
    if task is None:
        return ""
    return "; ".join(reason.words for reason in await why_as_seen(connection, who, task["id"]))


async def _counts(visit: Visit, connection: Connection, job: Any) -> dict[str, int]:
    """Tasks by where they are."""
    counts = dict.fromkeys(PARTS, 0)
    if job["total_tasks"] <= ui_reads.DETAILED:
        for kind in await _few_kinds(visit, connection, job):
            counts[part_of(kind)] += kind["count"]
        return counts
    counts["running"] = running = await ui_reads.job_running(connection, job["id"])
    ended = progress(job)
    return counts | ended | {"pending": max(0, job["open_tasks"] - running)}


async def _few_kinds(visit: Visit, connection: Connection, job: Any) -> list[Any]:
    """Of a job that has changed they are counted anew."""
    key = ("units", job["id"], job["updated_at"])
    return await visit.house.kept.get(key, lambda: ui_reads.job_units(connection, job["id"]), seconds=0.2)


async def _many_kinds(visit: Visit, connection: Connection, job: Any) -> tuple[list[Any], bool]:
    """Of a large job: all of them if they are counted soon, else some and the news that the count goes on."""

    async def count() -> list[Any]:
        async with looking(visit.call) as own:
            return await ui_reads.job_units(own, job["id"])

    found = await visit.house.kept.soon(("units", job["id"]), count, within=COUNTED_WITHIN_SECONDS)
    return (await ui_reads.job_units_some(connection, job["id"]), True) if found is None else (found, False)


async def _folded(visit: Visit, connection: Connection, job: Any) -> tuple[Folded, bool]:
    """What to draw, and whether only a part of it is counted yet."""
    job_id = job["id"]
    groups = await ui_reads.job_groups(connection, job_id)
    if job["total_tasks"] <= ui_reads.DETAILED:
        tasks = await ui_reads.job_tasks(connection, job_id)
        nodes = [row["id"] for row in tasks] + [row["id"] for row in groups]
        folded = fold_tasks(tasks, groups, await ui_reads.edges_into(connection, nodes))
        return await _with_dataset_edges(connection, job, folded), False
    kinds, counting = await _many_kinds(visit, connection, job)

    async def structure() -> tuple[list[Any], list[tuple[int, int]]]:
        samples = await ui_reads.unit_samples(connection, job_id, [unit.id for unit in kind_units(kinds)][:500])
        nodes = [row["id"] for row in samples] + [row["id"] for row in groups]
        edges = await ui_reads.edges_into(connection, nodes)
        known = {row["id"] for row in samples} | {row["id"] for row in groups}
        others = await ui_reads.tasks_named(connection, [a for a, _ in edges if a not in known])
        return [*samples, *others], edges

    samples, edges = await visit.house.kept.get(("edges", job_id, job["total_tasks"], counting), structure, seconds=5)
    return await _with_dataset_edges(connection, job, fold_kinds(kinds, samples, groups, edges)), counting


async def _with_dataset_edges(connection: Connection, job: Any, folded: Folded) -> Folded:
    """Add an edge from what makes a dataset to what reads it: tasks of a DAG wait for events, not for tasks."""
    if job["dag_version_id"] is not None:
        folded.edges.update(await ui_reads.dataset_edges(connection, list(folded.units)))
    return folded


async def _tasks(visit: Visit, connection: Connection, who: Reader, job: Any) -> dict[str, Any]:
    status = visit.query("status") if visit.query("status") in TASK_STATES else None
    kind = visit.query("type") or None
    after = int(visit.query("after")) if _ids(visit.query("after")) else 0
    rows: list[Any] = []
    if status is None or _may_have(job, status):
        rows = await ui_reads.tasks_of_job(
            connection, job["id"], status=status, kind=kind, after=after, limit=SHOWN + 1
        )
    more = rows[SHOWN - 1]["id"] if len(rows) > SHOWN else None
    looked: int | None = None
    if more is None and (kind or status in COMMON) and job["total_tasks"] > ui_reads.WINDOW:
        looked = await ui_reads.tasks_window_end(connection, job["id"], after)
    seen = await as_seen(connection, who, rows[:SHOWN])
    return {
        "tasks": seen, "status": status, "type": kind, "more": more or looked, "looked": looked,
        "first": after == 0, "window": ui_reads.WINDOW,
    }  # fmt: skip


def _may_have(job: Any, status: str) -> bool:
    """Whether a job can have tasks in a state, by its own counts."""
    ended = progress(job)
    match status:
        case "FAILED":
            return bool(job["failed_tasks"] or job["open_tasks"])  # what is to be retried has failed too
        case "DEAD_LETTER":
            return bool(job["failed_tasks"])
        case "CANCELLED":
            return bool(job["cancelled_tasks"])
        case "COMPLETED":
            return bool(ended["completed"])
        case _:
            return bool(job["open_tasks"])


async def _log(visit: Visit, connection: Connection, who: Reader, job_id: int) -> list[tuple[Any, str]]:
    """The ends of the logs of those that speak or spoke last."""
    rows = await ui_reads.talking_tasks(connection, job_id, TALKING)
    shown = sorted(rows[:TALKING], key=lambda row: (row["started_at"] is None, row["started_at"] or 0, row["id"]))
    hidden = await untold(connection, who, (row["id"] for row in shown))

    async def said(row: Any) -> str:
        if row["id"] in hidden:
            return WITHHELD
        return (await read_part(visit.service.settings, row["id"], -TAIL_BYTES, TAIL_BYTES))[0]

    parts = await asyncio.gather(*(said(row) for row in shown))
    return [(row, text) for row, text in zip(shown, parts, strict=True) if text]


@pages.post("/jobs/{job_id:int}/cancel", Permission.WRITER)
async def cancel(visit: Visit) -> Response:
    done = await api.cancel(visit.call, path_id(visit, "job_id"))
    return visit.back(CANCELLATIONS[done.outcome], bad=done.outcome is Cancellation.OVER)


@pages.post("/jobs/{job_id:int}/retry", Permission.WRITER)
async def retry(visit: Visit) -> Response:
    done = await api.retry(visit.call, path_id(visit, "job_id"), cancelled=visit.sent("cancelled") == "yes")
    if not done.count:
        return visit.back("Nothing was started over: nothing of it has failed.", bad=True)
    return visit.back(f"{done.count} {'task' if done.count == 1 else 'tasks'} started over.")


@pages.post("/jobs/{job_id:int}/pause", Permission.WRITER)
async def pause(visit: Visit) -> Response:
    job_id = path_id(visit, "job_id")
    await api.pause(visit.call, job_id)
    return visit.back("Paused: nothing more of it begins.", undo=f"/jobs/{job_id}/resume")


@pages.post("/jobs/{job_id:int}/resume", Permission.WRITER)
async def resume(visit: Visit) -> Response:
    job_id = path_id(visit, "job_id")
    await api.resume(visit.call, job_id)
    return visit.back("It goes on.", undo=f"/jobs/{job_id}/pause")


@pages.post("/jobs/{job_id:int}/again", Permission.WRITER)
async def again(visit: Visit) -> Response:
    """Submit what was submitted then once more, as a new job."""
    job_id = path_id(visit, "job_id")
    async with reading(visit.call) as connection:
        job = await own_job(visit.call, connection, job_id)
    async with operating(visit.call) as connection:
        new_id = await run_again(connection, job)
        await note(visit.call, connection, "job.create", new_id, {"name": job["name"], "again": str(job_id)})
    return visit.go(f"/jobs/{new_id}", f"Runs again as job {new_id}.")


def path_id(visit: Visit, name: str) -> int:
    """An id in the address; one that cannot be is nobody's."""
    value = int(visit.request.path_params[name])
    if not 0 < value <= reads.LAST_ID:
        raise NotFoundError("There is nothing with this id.")
    return value


def _ids(text: str) -> frozenset[int]:
    parts = [part for part in text.split(",") if part.isdecimal() and part.isascii() and len(part) < 20]
    return frozenset(int(part) for part in parts[:200] if int(part) <= reads.LAST_ID)
