"""Search by id or name, also used by the command palette."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from starlette.responses import Response

from aaiclick.operations.actor import Permission
from aaiclick.operations.dataset_reader import dataset_reader
from aaiclick.server.ui.read_transaction import read_transaction
from aaiclick.server.ui.routing import PageRequest, Pages
from aaiclick.server.ui.template_filters import job_state, task_name, task_state
from aaiclick.store.engine import queries
from aaiclick.store.ui import dag_queries, job_queries

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

pages = Pages()

MAX_RESULTS = 12
SEARCHABLE_PAGES = (
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
async def show_results(page: PageRequest) -> Response:
    search_text = page.query_param("q").strip()
    results = await _find_results(page, search_text)
    return page.render("search.html", search_text=search_text, results=results)


async def _find_results(page: PageRequest, search_text: str) -> list[dict[str, Any]]:
    """Return the matching pages, jobs, tasks, workers, DAGs and datasets."""
    org = page.caller.org_id
    searchable_pages = [*SEARCHABLE_PAGES, ("/admin", "Admin")] if page.has_permission("admin") else SEARCHABLE_PAGES
    results = [
        {"href": href, "name": name, "kind": "Page", "state": None}
        for href, name in searchable_pages
        if search_text.lower() in name.lower()
    ]
    async with read_transaction(page.call) as connection:
        if search_text.isdecimal() and search_text.isascii() and len(search_text) < 20:
            job = await queries.get_job(connection, int(search_text))
            task = await queries.get_task(connection, int(search_text))
            worker = await queries.get_worker_for_org(connection, org, int(search_text))
            if job is not None and job["org_id"] == org:
                results.insert(0, _job_result(job))
            if task is not None and task["org_id"] == org:
                results.insert(0, {
                    "href": f"/tasks/{task['id']}", "name": task_name(task["type"]), "kind": f"Task {task['id']}",
                    "state": task_state(task),
                })  # fmt: skip
            if worker is not None:
                results.insert(
                    0, {"href": f"/workers/{search_text}", "name": f"Worker {search_text}", "kind": "", "state": None}
                )
        if search_text:
            results += await _find_by_name(page, connection, search_text)
        jobs = await job_queries.find_jobs(
            connection,
            org,
            status=None,
            search=search_text,
            before=queries.LAST_ID,
            limit=MAX_RESULTS if search_text else 5,
        )
    return [*results[:MAX_RESULTS], *(_job_result(job) for job in jobs)]


async def _find_by_name(page: PageRequest, connection: Connection, search_text: str) -> list[dict[str, Any]]:
    """Find DAGs and readable datasets by name."""
    reader = await dataset_reader(connection, page.caller)
    dags = await dag_queries.find_dags(connection, reader.org_id, search_text, MAX_RESULTS)
    datasets = await dag_queries.find_datasets(connection, reader, search_text, MAX_RESULTS)
    return [
        *({"href": f"/dags/{quote(name, safe='')}", "name": name, "kind": "DAG", "state": None} for name in dags),
        *(
            {"href": f"/datasets/{row['id']}", "name": row["name"], "kind": "Dataset", "state": None}
            for row in datasets
        ),
    ]


def _job_result(job: Any) -> dict[str, Any]:
    return {"href": f"/jobs/{job['id']}", "name": job["name"], "kind": f"Job {job['id']}", "state": job_state(job)}
