"""Schedule pages: schedules of jobs and items, and sources of DAGs, with their next and last runs."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from starlette.responses import Response

from aaiclick.api.dags import BackfillResponse
from aaiclick.api.schedules import Schedule
from aaiclick.cron import format_interval
from aaiclick.errors import AaiclickError, ConflictError, LimitError, RequestError, ScheduleError
from aaiclick.operations import schedules as operations
from aaiclick.operations.actor import Permission
from aaiclick.server.routes.common import tenant_connection
from aaiclick.server.ui.pages.dags import describe_source
from aaiclick.server.ui.routing import PageRequest, Pages
from aaiclick.store.ui import dag_queries

pages = Pages()

MAX_ROWS = 100
FORM_ERRORS = (ConflictError, LimitError, RequestError, ScheduleError)
"""Errors of the input, which are shown next to the form."""


@dataclass(frozen=True)
class TimeRangeForm:
    """Fields of the backfill form."""

    first: str
    last: str

    @property
    def is_complete(self) -> bool:
        return bool(self.first and self.last)


def _schedule_name(page: PageRequest) -> str:
    return str(page.request.path_params["name"])


def describe_times(schedule: Schedule) -> str:
    """Describe when a schedule runs: its cron expression and time zone, or its interval."""
    if schedule.every_seconds is not None:
        return f"every {format_interval(schedule.every_seconds)}"
    return f"{schedule.cron} {schedule.timezone}"


@pages.get("/schedules", Permission.READER)
async def list_schedules(page: PageRequest) -> Response:
    cursor = page.query_param("cursor") or None
    listed = await page.call.perform(operations.list_schedules, cursor=cursor, limit=MAX_ROWS)
    async with tenant_connection(page.call) as connection:
        rows = await dag_queries.list_dag_sources(
            connection, page.caller.org_id, limit=MAX_ROWS + 1, offset=page.offset
        )
    return page.render(
        "schedules.html",
        schedules=[(schedule, describe_times(schedule)) for schedule in listed.items],
        next_cursor=listed.next,
        sources=[(row, describe_source(row["source"])) for row in rows[:MAX_ROWS]],
        more=len(rows) > MAX_ROWS,
    )


@pages.get("/schedules/{name}", Permission.READER)
async def show_schedule(page: PageRequest) -> Response:
    """Show a schedule, and which runs a backfill would start."""
    name = _schedule_name(page)
    schedule = await page.call.perform(operations.get_schedule, name)
    form = TimeRangeForm(page.query_param("from").strip(), page.query_param("to").strip())
    plan: BackfillResponse | None = None
    form_error: AaiclickError | None = None
    if form.is_complete and page.has_permission("writer"):
        try:
            plan = await page.call.perform(operations.backfill_schedule, name, form.first, form.last, dry_run=True)
        except FORM_ERRORS as error:
            form_error = error
    times = describe_times(schedule)
    return page.render("schedule.html", schedule=schedule, times=times, form=form, plan=plan, error=form_error)


@pages.post("/schedules/{name}/pause", Permission.WRITER)
async def pause_schedule(page: PageRequest) -> Response:
    name = _schedule_name(page)
    await page.call.perform(operations.pause_schedule, name)
    return page.redirect_back(f"Schedule {name} paused. Running jobs continue.", undo=_path(name, "resume"))


@pages.post("/schedules/{name}/resume", Permission.WRITER)
async def resume_schedule(page: PageRequest) -> Response:
    name = _schedule_name(page)
    await page.call.perform(operations.resume_schedule, name)
    return page.redirect_back(f"Schedule {name} resumed.", undo=_path(name, "pause"))


@pages.post("/schedules/{name}/fire", Permission.WRITER)
async def fire_schedule(page: PageRequest) -> Response:
    name = _schedule_name(page)
    started = await page.call.perform(operations.fire_schedule, name)
    is_item = (await page.call.perform(operations.get_schedule, name)).item_type is not None
    return page.redirect(f"/{'tasks' if is_item else 'jobs'}/{started.id}", f"Started {name}.")


@pages.post("/schedules/{name}/delete", Permission.WRITER)
async def delete_schedule(page: PageRequest) -> Response:
    name = _schedule_name(page)
    await page.call.perform(operations.delete_schedule, name)
    return page.redirect("/schedules", f"Schedule {name} deleted.")


@pages.post("/schedules/{name}/backfill", Permission.WRITER)
async def start_backfill(page: PageRequest) -> Response:
    name, first, last = _schedule_name(page), page.form_field("from"), page.form_field("to")
    done = await page.call.perform(operations.backfill_schedule, name, first, last)
    message = f"Started {done.count} runs." if done.count else "Nothing to run: the whole range has run already."
    return page.redirect(_path(name), message)


def _path(name: str, action: str = "") -> str:
    return f"/schedules/{quote(name, safe='')}" + (f"/{action}" if action else "")
