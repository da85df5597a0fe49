"""Actions on a DAG: fire a source, pause, resume and backfill."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote
from uuid import UUID

from starlette.responses import Response

from aaiclick.catalog import backfill
from aaiclick.data.runtime.clickhouse_client import Client
from aaiclick.data.runtime.clickhouse_client import connect as connect_clickhouse
from aaiclick.errors import AaiclickError, ConflictError, LimitError, RequestError, ScheduleError
from aaiclick.operations.actor import Permission
from aaiclick.server.routes import dags as api
from aaiclick.server.routes.common import tenant_connection, tenant_transaction, write_audit
from aaiclick.server.ui.routing import PageNotFoundError, PageRequest, Pages
from aaiclick.store.catalog import backfill as catalog_backfill
from aaiclick.store.catalog import sources

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.connections import Connection

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
    async with tenant_transaction(page.call) as connection:
        job_id, _ = await sources.start_source(connection, page.caller.org_id, name, job, {"kind": "manual"})
        await write_audit(page.call, connection, "dag.fire", name, {"source": job, "job": str(job_id)})
    return page.redirect(f"/jobs/{job_id}", f"Started {job or name}.")


@pages.post("/dags/{name}/pause", Permission.WRITER)
async def pause_dag(page: PageRequest) -> Response:
    await _set_paused(page, "pause", sources.pause_dag)
    return page.redirect_back(
        f"DAG {_dag_name(page)} paused. Running jobs continue.", undo=f"/dags/{quote(_dag_name(page))}/resume"
    )


@pages.post("/dags/{name}/resume", Permission.WRITER)
async def resume_dag(page: PageRequest) -> Response:
    await _set_paused(page, "resume", sources.resume_dag)
    return page.redirect_back(f"DAG {_dag_name(page)} resumed.", undo=f"/dags/{quote(_dag_name(page))}/pause")


async def _set_paused(
    page: PageRequest, action: str, change: Callable[[Connection, UUID, str], Awaitable[object]]
) -> None:
    """Pause or resume a DAG and write the audit entry."""
    async with tenant_transaction(page.call) as connection:
        await change(connection, page.caller.org_id, _dag_name(page))
        await write_audit(page.call, connection, f"dag.{action}", _dag_name(page))


@pages.get("/dags/{name}/backfill", Permission.WRITER)
async def preview_backfill(page: PageRequest) -> Response:
    """Show which runs a backfill would start."""
    name = _dag_name(page)
    form = BackfillForm(page.query_param("job"), page.query_param("from").strip(), page.query_param("to").strip())
    plan: backfill.BackfillPlan | None = None
    named = False
    form_error: AaiclickError | None = None
    async with tenant_connection(page.call) as connection:
        definitions = await catalog_backfill.list_serving_definitions(connection, page.caller.org_id, name)
        if not definitions:
            raise PageNotFoundError(
                f"There is no DAG {name!r:.60}.", remedy="Deploy one with 'aaiclick dag deploy FILE'."
            )
        if form.is_complete:
            try:
                plan = await _plan_backfill(page, connection, form)
                named = await api.may_see_steps(page.call, connection, name, plan)
            except FORM_ERRORS as error:
                form_error = error
    jobs = {row["name"]: _timezone(row) for row in definitions if backfill.can_backfill(row)}
    return page.render("backfill.html", name=name, jobs=jobs, form=form, plan=plan, named=named, error=form_error)


def _timezone(definition: asyncpg.Record) -> str | None:
    """Return the timezone of a source's schedule; None for a definition that runs per partition."""
    return json.loads(definition["source"])["timezone"] if definition["activation"] == "source" else None


@pages.post("/dags/{name}/backfill", Permission.WRITER)
async def start_backfill(page: PageRequest) -> Response:
    name = _dag_name(page)
    form = BackfillForm(page.form_field("job"), page.form_field("from"), page.form_field("to"))
    async with tenant_connection(page.call) as connection:
        plan = await _plan_backfill(page, connection, form)
    async with tenant_transaction(page.call) as connection:
        jobs = await backfill.start_backfill(connection, plan)
        detail = {"source": form.job, "from": form.first, "to": form.last, "runs": len(plan.to_run)}
        await write_audit(page.call, connection, "dag.backfill", name, detail)
    count = len(plan.to_run)
    started_text = f"Started 1 run of {form.job}." if count == 1 else f"Started {count} runs of {form.job}."
    message = started_text if jobs else "Nothing to run: the whole range has run already."
    return page.redirect(f"/jobs/{jobs[0]}" if len(jobs) == 1 else f"/dags/{quote(name)}", message)


async def _plan_backfill(page: PageRequest, connection: Connection, form: BackfillForm) -> backfill.BackfillPlan:
    async def connect_to_clickhouse() -> Client:
        return await connect_clickhouse(await page.app_state.clickhouse_endpoint(page.caller.org_id))

    return await backfill.plan_backfill(
        connection, connect_to_clickhouse, page.caller.org_id, _dag_name(page), form.job or None, form.first, form.last
    )
