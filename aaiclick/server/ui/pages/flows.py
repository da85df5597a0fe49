"""What is done to a DAG: start a source, pause and resume it, run what of a range has not run."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote
from uuid import UUID

from starlette.responses import Response

from aaiclick.catalog import backfill
from aaiclick.data.client import Client
from aaiclick.data.client import connect as connect_clickhouse
from aaiclick.errors import AaiclickError, ConflictError, LimitError, RequestError, ScheduleError
from aaiclick.server.permissions import Permission
from aaiclick.server.routes import dags as api
from aaiclick.server.routes.common import changing, note, reading
from aaiclick.server.ui.routing import NoSuchPageError, Pages, Visit
from aaiclick.store import catalog_backfill, catalog_sources

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.engine import Connection

pages = Pages()

SAID_ON_THE_PAGE = (ConflictError, LimitError, RequestError, ScheduleError)
"""What is wrong with what was asked for: said beside the form."""


@dataclass(frozen=True)
class Range:
    """What the form asks for."""

    job: str
    first: str
    last: str

    @property
    def is_whole(self) -> bool:
        return bool(self.job and self.first and self.last)


def _name(visit: Visit) -> str:
    return str(visit.request.path_params["name"])


@pages.post("/dags/{name}/fire", Permission.WRITER)
async def fire(visit: Visit) -> Response:
    name, job = _name(visit), visit.sent("job") or None
    async with changing(visit.call) as connection:
        job_id, _ = await catalog_sources.start_source(connection, visit.who.org_id, name, job, {"kind": "manual"})
        await note(visit.call, connection, "dag.fire", name, {"source": job, "job": str(job_id)})
    return visit.go(f"/jobs/{job_id}", f"{job or name} is started.")


@pages.post("/dags/{name}/pause", Permission.WRITER)
async def pause(visit: Visit) -> Response:
    await _turn(visit, "pause", catalog_sources.pause_dag)
    return visit.back(f"{_name(visit)} is paused; what runs goes on.", undo=f"/dags/{quote(_name(visit))}/resume")


@pages.post("/dags/{name}/resume", Permission.WRITER)
async def resume(visit: Visit) -> Response:
    await _turn(visit, "resume", catalog_sources.resume_dag)
    return visit.back(f"{_name(visit)} goes on.", undo=f"/dags/{quote(_name(visit))}/pause")


async def _turn(visit: Visit, deed: str, turn: Callable[[Connection, UUID, str], Awaitable[object]]) -> None:
    """Turn a DAG off or on, and note who did."""
    async with changing(visit.call) as connection:
        await turn(connection, visit.who.org_id, _name(visit))
        await note(visit.call, connection, f"dag.{deed}", _name(visit))


@pages.get("/dags/{name}/backfill", Permission.WRITER)
async def preview(visit: Visit) -> Response:
    """What of a range would run; changes nothing."""
    name = _name(visit)
    asked = Range(visit.query("job"), visit.query("from").strip(), visit.query("to").strip())
    plan: backfill.Plan | None = None
    named = False
    wrong: AaiclickError | None = None
    async with reading(visit.call) as connection:
        definitions = await catalog_backfill.definitions_of(connection, visit.who.org_id, name)
        if not definitions:
            raise NoSuchPageError(f"There is no DAG {name!r:.60}.", remedy="'aaiclick dag deploy FILE' makes one.")
        if asked.is_whole:
            try:
                plan = await _plan(visit, connection, asked)
                named = await api.may_see_steps(visit.call, connection, name, plan)
            except SAID_ON_THE_PAGE as error:
                wrong = error
    jobs = {row["name"]: _zone(row) for row in definitions if backfill.can_be_filled(row)}
    return visit.page("backfill.html", name=name, jobs=jobs, asked=asked, plan=plan, named=named, wrong=wrong)


def _zone(definition: asyncpg.Record) -> str | None:
    """Where the times of a source are read, if they name no zone; partitions have none."""
    return json.loads(definition["source"])["timezone"] if definition["activation"] == "source" else None


@pages.post("/dags/{name}/backfill", Permission.WRITER)
async def begin(visit: Visit) -> Response:
    name = _name(visit)
    asked = Range(visit.sent("job"), visit.sent("from"), visit.sent("to"))
    async with reading(visit.call) as connection:
        plan = await _plan(visit, connection, asked)
    async with changing(visit.call) as connection:
        jobs = await backfill.begin(connection, plan)
        detail = {"source": asked.job, "from": asked.first, "to": asked.last, "runs": len(plan.to_run)}
        await note(visit.call, connection, "dag.backfill", name, detail)
    count = len(plan.to_run)
    begun = f"1 run of {asked.job} is started." if count == 1 else f"{count} runs of {asked.job} are started."
    words = begun if jobs else "All of it ran before."
    return visit.go(f"/jobs/{jobs[0]}" if len(jobs) == 1 else f"/dags/{quote(name)}", words)


async def _plan(visit: Visit, connection: Connection, asked: Range) -> backfill.Plan:
    async def clickhouse() -> Client:
        return await connect_clickhouse(await visit.service.clickhouse(visit.who.org_id))

    return await backfill.plan(
        connection, clickhouse, visit.who.org_id, _name(visit), asked.job or None, asked.first, asked.last
    )
