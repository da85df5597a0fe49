"""Go anywhere: by id, by name, by page. The palette asks here too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from starlette.responses import Response

from aaiclick.server.permissions import Permission
from aaiclick.server.ui.looking import looking
from aaiclick.server.ui.pages.datasets import roles_of
from aaiclick.server.ui.routing import Pages, Visit
from aaiclick.server.ui.words import job_state, task_name, task_state
from aaiclick.store import reads, ui_dags, ui_reads

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

pages = Pages()

SHOWN = 12
PLACES = (
    ("/", "Overview"),
    ("/jobs", "Jobs"),
    ("/jobs?status=RUNNING", "Running jobs"),
    ("/jobs?status=FAILED", "Failed jobs"),
    ("/dead-letters", "Dead letters"),
    ("/queues", "Queues"),
    ("/workers", "Workers"),
    ("/dags", "DAGs"),
    ("/datasets", "Datasets"),
    ("/schedules", "Schedules"),
    ("/objects", "Objects"),
)


@pages.get("/search", Permission.READER)
async def search(visit: Visit) -> Response:
    words = visit.query("q").strip()
    found = await _find(visit, words)
    return visit.page("search.html", words=words, found=found)


async def _find(visit: Visit, words: str) -> list[dict[str, Any]]:
    """{href, name, kind, state} of what fits."""
    org = visit.who.org_id
    places = [*PLACES, ("/admin", "Admin")] if visit.may("admin") else PLACES
    found = [
        {"href": href, "name": name, "kind": "Page", "state": None}
        for href, name in places
        if words.lower() in name.lower()
    ]
    async with looking(visit.call) as connection:
        if words.isdecimal() and words.isascii() and len(words) < 20:
            job = await reads.get_job(connection, int(words))
            task = await reads.get_task(connection, int(words))
            worker = await reads.worker_of(connection, org, int(words))
            if job is not None and job["org_id"] == org:
                found.insert(0, _job(job))
            if task is not None and task["org_id"] == org:
                found.insert(0, {
                    "href": f"/tasks/{task['id']}", "name": task_name(task["type"]), "kind": f"Task {task['id']}",
                    "state": task_state(task),
                })  # fmt: skip
            if worker is not None:
                found.insert(0, {"href": f"/workers/{words}", "name": f"Worker {words}", "kind": "", "state": None})
        if words:
            found += await _named(visit, connection, words)
        jobs = await ui_reads.find_jobs(
            connection, org, status=None, words=words, before=reads.LAST_ID, limit=SHOWN if words else 5
        )
    return [*found[:SHOWN], *(_job(job) for job in jobs)]


async def _named(visit: Visit, connection: Connection, words: str) -> list[dict[str, Any]]:
    """DAGs, and those datasets that the caller may read."""
    org, roles = visit.who.org_id, await roles_of(visit, connection)
    dags = await ui_dags.find_dags(connection, org, words, SHOWN)
    datasets = await ui_dags.find_datasets(connection, org, roles, words, SHOWN)
    return [
        *({"href": f"/dags/{quote(name, safe='')}", "name": name, "kind": "DAG", "state": None} for name in dags),
        *(
            {"href": f"/datasets/{row['id']}", "name": row["name"], "kind": "Dataset", "state": None}
            for row in datasets
        ),
    ]


def _job(job: Any) -> dict[str, Any]:
    return {"href": f"/jobs/{job['id']}", "name": job["name"], "kind": f"Job {job['id']}", "state": job_state(job)}
