"""Actions on a DAG: fire a source, pause, resume and backfill."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from starlette.responses import Response

from aaiclick.api.dags import BackfillResponse
from aaiclick.catalog.backfill import can_backfill
from aaiclick.errors import AaiclickError, ConflictError, LimitError, RequestError, ScheduleError
from aaiclick.operations import dags as operations
from aaiclick.operations.actor import Permission
from aaiclick.server.routes.common import tenant_connection
from aaiclick.server.ui.routing import PageNotFoundError, PageRequest, Pages
from aaiclick.store.catalog import backfill as catalog_backfill

if TYPE_CHECKING:
    import asyncpg

pages = Pages()

FORM_ERRORS = (ConflictError, LimitError, RequestError, ScheduleError)
"""Errors of the input, which are shown next to the form."""


@dataclass(frozen=True)
class BackfillForm:
    """Fields of the backfill form."""

    job: str
    first: str
    last: str

    @property
    def is_complete(self) -> bool:
        return bool(self.job and self.first and self.last)


def _dag_name(page: PageRequest) -> str:
    return str(page.request.path_params["name"])


@pages.post("/dags/{name}/fire", Permission.WRITER)
async def fire_dag(page: PageRequest) -> Response:
    name, job = _dag_name(page), page.form_field("job") or None
    started = await page.call.perform(operations.run_dag, name, job)
    return page.redirect(f"/jobs/{started.id}", f"Started {job or name}.")


@pages.post("/dags/{name}/pause", Permission.WRITER)
async def pause_dag(page: PageRequest) -> Response:
    name = _dag_name(page)
    await page.call.perform(operations.pause_dag, name)
    return page.redirect_back(f"DAG {name} paused. Running jobs continue.", undo=f"/dags/{quote(name)}/resume")


@pages.post("/dags/{name}/resume", Permission.WRITER)
async def resume_dag(page: PageRequest) -> Response:
    name = _dag_name(page)
    await page.call.perform(operations.resume_dag, name)
    return page.redirect_back(f"DAG {name} resumed.", undo=f"/dags/{quote(name)}/pause")


@pages.get("/dags/{name}/backfill", Permission.WRITER)
async def preview_backfill(page: PageRequest) -> Response:
    """Show which runs a backfill would start."""
    name = _dag_name(page)
    form = BackfillForm(page.query_param("job"), page.query_param("from").strip(), page.query_param("to").strip())
    async with tenant_connection(page.call) as connection:
        definitions = await catalog_backfill.list_serving_definitions(connection, page.caller.org_id, name)
    if not definitions:
        raise PageNotFoundError(f"There is no DAG {name!r:.60}.", remedy="Deploy one with 'aaiclick dag deploy FILE'.")
    plan: BackfillResponse | None = None
    form_error: AaiclickError | None = None
    if form.is_complete:
        try:
            plan = await page.call.perform(operations.backfill_dag, name, form.first, form.last, form.job, dry_run=True)
        except FORM_ERRORS as error:
            form_error = error
    jobs = {row["name"]: _timezone(row) for row in definitions if can_backfill(row)}
    return page.render("backfill.html", name=name, jobs=jobs, form=form, plan=plan, error=form_error)


def _timezone(definition: asyncpg.Record) -> str | None:
    """Return the timezone of a source's schedule; None for a definition that runs per partition."""
    return json.loads(definition["source"])["timezone"] if definition["activation"] == "source" else None


@pages.post("/dags/{name}/backfill", Permission.WRITER)
async def start_backfill(page: PageRequest) -> Response:
    name = _dag_name(page)
    job, first, last = page.form_field("job"), page.form_field("from"), page.form_field("to")
    started = await page.call.perform(operations.backfill_dag, name, first, last, job or None)
    started_text = f"Started 1 run of {job}." if started.count == 1 else f"Started {started.count} runs of {job}."
    message = started_text if started.job_ids else "Nothing to run: the whole range has run already."
    only_job = started.job_ids[0] if len(started.job_ids) == 1 else None
    return page.redirect(f"/jobs/{only_job}" if only_job else f"/dags/{quote(name)}", message)
