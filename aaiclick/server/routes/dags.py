"""DAGs: checked, compared, deployed, rolled back, paused, started."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, Literal
from uuid import UUID

from fastapi import Path
from pydantic import AfterValidator, BaseModel, Field, StringConstraints

from aaiclick.catalog import analysis
from aaiclick.catalog import backfill as backfills
from aaiclick.catalog import deploy as deploys
from aaiclick.catalog.dags.words import changes_of
from aaiclick.catalog.readable import may_read_text
from aaiclick.data.client import connect as connect_clickhouse
from aaiclick.errors import NotFoundError
from aaiclick.server import shapes
from aaiclick.server.analysis_pool import AnalysisLimitError
from aaiclick.server.permissions import Permission
from aaiclick.server.routes.common import changing, note, reading
from aaiclick.server.routes.datasets import reader
from aaiclick.server.routing import Call, Caller, Routes
from aaiclick.store import catalog_dags, catalog_sources

if TYPE_CHECKING:
    from aaiclick.catalog.dags.diff import DagDiff
    from aaiclick.data.client import Client
    from aaiclick.store.engine import Connection

routes = Routes("dags")

DagName = Annotated[shapes.Name, Path(description="The name of a DAG")]


class DagFile(shapes.Sent):
    """The text of a DAG file."""

    text: Annotated[str, StringConstraints(min_length=1), AfterValidator(shapes.storable)]
    file: shapes.Name = Field(default="dag.yaml", description="What errors call it")


class DagToDeploy(DagFile):
    going_on: bool = Field(
        default=False, description="Finish a deploy that was begun; refused if a later one serves by now"
    )


class DagHead(BaseModel):
    """A DAG file that is right."""

    name: str
    jobs: int


class Change(BaseModel):
    """One difference between two versions."""

    what: str = Field(examples=["dataset"])
    name: str
    change: str = Field(examples=["rebuilt"])
    detail: str


class Version(BaseModel):
    id: UUID
    dag: str
    hash: str
    created_at: datetime
    ready_at: datetime | None = Field(description="When its datasets were filled")
    serving_since: datetime | None


class Definition(BaseModel):
    """A job definition: a node of a DAG, and its state."""

    name: str
    activation: Literal["source", "reactive"]
    operator: str
    source: str | None = Field(description="What starts a source: cron, webhook, manual, always_on")
    status: Literal["Pending", "Running", "Dead", "Draining", "Idle"]
    next_run_at: datetime | None
    last_event_at: datetime | None = Field(description="When it was last given something to do")
    last_heartbeat: datetime | None
    paused_at: datetime | None = Field(description="When its DAG was paused")


class Deployed(BaseModel):
    """What a deploy or a rollback did. While `job_id` fills new datasets, the version before serves: deploy again."""

    dag: str
    version_id: UUID
    hash: str
    changed: bool = Field(description="Whether it is another version than the one that served before")
    serves: bool
    built: list[str] = Field(description="Datasets with a generation that did not exist")
    cancelled: int
    job_id: shapes.Id | None
    catch_up_id: shapes.Id | None = Field(description="The job that brings a version which serves again up to date")
    changes: list[Change] = Field(description="Without what would name datasets that the caller may not read")


class RollBack(shapes.Sent):
    to: Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[0-9a-f]+$")] | None = Field(
        default=None, description="How the hash of the version begins; by default the version before"
    )


class Start(shapes.Sent):
    job: shapes.Name | None = Field(default=None, description="The source to start; by default the only one")
    payload: Any = None


class Range(shapes.Sent):
    """Times of a cron source, or partitions of the input of a job per partition; both ends are included."""

    job: shapes.Name | None = Field(default=None, description="By default the only job that can be backfilled")
    first: shapes.Name = Field(examples=["2026-01-01"])
    last: shapes.Name = Field(examples=["2026-01-31"])
    dry_run: bool = False


class FilledStep(BaseModel):
    """One time or partition. Without `status` it had not run, and runs now, or would."""

    name: str
    status: str | None
    job_id: shapes.Id | None = Field(description="The job that ran it, if that is still known")


class Filled(BaseModel):
    job: str
    count: int = Field(description="How many had not run")
    before: int = Field(description="How many had")
    steps: list[FilledStep] = Field(description="Empty for partitions of datasets that the caller may not read")
    job_ids: list[shapes.Id] = Field(description="The jobs that were started")


class Resumed(BaseModel):
    count: int = Field(description="Tasks that were waiting")


@routes.post("/v1/dags/validate", Permission.READER)
async def validate(call: Caller, body: DagFile) -> DagHead:  # noqa: ARG001  (the guard needs it)
    """Check a DAG file: every error at once, each with its place."""
    found = await analysis.load_dag(body.text, body.file)
    return DagHead(name=found.name, jobs=len(found.jobs))


@routes.post("/v1/dags/diff", Permission.READER)
async def diff(call: Caller, body: DagFile) -> list[Change]:
    """Show what a deploy of a file would change."""
    await analysis.load_dag(body.text, body.file)
    async with reading(call) as connection:
        found = await deploys.compare(connection, body.text, body.file, org_id=call.principal.org_id)
        before = await _may_read(call, connection, (await analysis.load_dag(body.text, body.file)).name)
    return await _told(found, before=before)


@routes.post("/v1/dags/deploy", Permission.WRITER)
async def deploy(call: Caller, body: DagToDeploy) -> Deployed:
    """Deploy a file: a new version, which serves as soon as its new datasets are filled."""
    dag = await analysis.load_dag(body.text, body.file)
    async with reading(call) as connection:
        await deploys.preload(connection, dag.name, org_id=call.principal.org_id)
    async with changing(call) as connection:
        roles = (await reader(call, connection)).roles
        done = await deploys.deploy(
            connection, body.text, body.file, org_id=call.principal.org_id, roles=roles, going_on=body.going_on
        )
        await note(call, connection, "dag.deploy", done.dag_name, {"version": done.version_hash})
        before = done.previous is None or await _may_read(call, connection, done.dag_name, done.previous)
    return _deployed(done, await _told(done.diff, before=before))


@routes.get("/v1/dags", Permission.READER)
async def index(call: Caller) -> list[Version]:
    """List every version of every DAG, the newest of each first."""
    async with reading(call) as connection:
        return [_version(row) for row in await catalog_dags.list_versions(connection, call.principal.org_id)]


@routes.get("/v1/dags/{dag}/versions", Permission.READER)
async def versions(call: Caller, dag: DagName) -> list[Version]:
    """List the versions of a DAG, the newest first."""
    async with reading(call) as connection:
        rows = await catalog_dags.list_versions(connection, call.principal.org_id, dag)
    if not rows:
        raise NotFoundError(f"There is no DAG {dag!r:.80}.", remedy="GET /v1/dags lists them.")
    return [_version(row) for row in rows]


@routes.get("/v1/dags/{dag}/definitions", Permission.READER)
async def definitions(call: Caller, dag: DagName) -> list[Definition]:
    """List the job definitions of the version that serves, with their states."""
    async with reading(call) as connection:
        rows = await catalog_sources.list_definitions(connection, call.principal.org_id, dag)
    return [Definition(**row) for row in rows]


@routes.post("/v1/dags/{dag}/rollback", Permission.WRITER)
async def rollback(call: Caller, dag: DagName, body: RollBack | None = None) -> Deployed:
    """Let an older version serve again, with its data as it was; then that catches up."""
    async with reading(call) as connection:
        await deploys.preload(connection, dag, body and body.to, org_id=call.principal.org_id)
    async with changing(call) as connection:
        done = await deploys.roll_back(connection, dag, body and body.to, org_id=call.principal.org_id)
        await note(call, connection, "dag.rollback", dag, {"version": done.version_hash})
        before = await _may_read(call, connection, dag, done.previous)
        after = await _may_read(call, connection, dag, done.version_id)
    return _deployed(done, await _told(done.diff, before=before, after=after))


@routes.post("/v1/dags/{dag}/pause", Permission.WRITER, status_code=HTTPStatus.NO_CONTENT)
async def pause(call: Caller, dag: DagName) -> None:
    """Start no source of a DAG and none of its tasks; what runs goes on."""
    async with changing(call) as connection:
        await catalog_sources.pause_dag(connection, call.principal.org_id, dag)
        await note(call, connection, "dag.pause", dag)


@routes.post("/v1/dags/{dag}/resume", Permission.WRITER)
async def resume(call: Caller, dag: DagName) -> Resumed:
    """Let a paused DAG go on. What its schedules missed is handled as each says."""
    async with changing(call) as connection:
        count = await catalog_sources.resume_dag(connection, call.principal.org_id, dag)
        await note(call, connection, "dag.resume", dag)
    return Resumed(count=count)


@routes.post("/v1/dags/{dag}/run", Permission.WRITER, status_code=HTTPStatus.CREATED)
async def run(call: Caller, dag: DagName, body: Start | None = None) -> shapes.Created:
    """Start a source of a DAG; the answer is the job that holds everything it causes."""
    given = body or Start()
    event = {"kind": "manual"} if given.payload is None else {"kind": "manual", "payload": given.payload}
    async with changing(call) as connection:
        job_id, _ = await catalog_sources.start_source(connection, call.principal.org_id, dag, given.job, event)
        await note(call, connection, "dag.run", dag, {"job": str(job_id)})
    return shapes.Created(id=str(job_id))


@routes.post("/v1/dags/{dag}/backfill", Permission.WRITER)
async def backfill(call: Caller, dag: DagName, body: Range) -> Filled:
    """Run the times or partitions of a range that have not run, or only show which; once more starts none twice."""
    org_id = call.principal.org_id

    async def clickhouse() -> Client:
        return await connect_clickhouse(await call.service.clickhouse(org_id))

    async with reading(call) as connection:
        plan = await backfills.plan(connection, clickhouse, org_id, dag, body.job, body.first, body.last)
        may_see = await may_see_steps(call, connection, dag, plan)
    jobs: list[int] = []
    if not body.dry_run:
        async with changing(call) as connection:
            jobs = await backfills.begin(connection, plan)
            detail = {"source": plan.job_name, "from": body.first, "to": body.last, "runs": len(plan.to_run)}
            await note(call, connection, "dag.backfill", dag, detail)
    return Filled(
        job=plan.job_name,
        count=len(plan.to_run),
        before=len(plan.steps) - len(plan.to_run),
        steps=[
            FilledStep(name=step.name, status=step.status, job_id=None if step.job_id is None else str(step.job_id))
            for step in plan.steps
            if may_see
        ],
        job_ids=[str(job_id) for job_id in jobs],
    )


async def may_see_steps(call: Call, connection: Connection, dag: str, plan: backfills.Plan) -> bool:
    """Whether the steps of a backfill may be named: which partitions there are is a part of what a dataset holds."""
    return plan.definition["activation"] == "source" or await _may_read(call, connection, dag)


def _version(row: Any) -> Version:
    shared = {name: row[name] for name in ("id", "created_at", "ready_at", "serving_since")}
    return Version(**shared, dag=row["dag_name"], hash=row["yaml_hash"])


async def _may_read(call: Call, connection: Connection, dag: str, version_id: UUID | None = None) -> bool:
    """Whether the caller may see the text of a version, or of the one that serves."""
    version = await catalog_dags.find_version(connection, call.principal.org_id, dag, version_id)
    return await may_read_text(connection, await reader(call, connection), version)


async def _told(found: DagDiff, *, before: bool, after: bool = True) -> list[Change]:
    """What changes, if the caller may see both versions; else which fields of the DAG, and what is made anew."""
    try:
        changes = [Change(**each) for each in await analysis.run(changes_of, found)]
    except AnalysisLimitError:  # the list is a courtesy: what was done is done
        return []
    if before and after:
        return changes
    fields = [each for each in changes if each.what == "dag"]
    made = [each for each in changes if after and each.what == "dataset" and each.change in ("new", "rebuilt")]
    return [
        each.model_copy(update={"change": each.change.partition(".")[0], "detail": ""}) for each in [*fields, *made]
    ]


def _deployed(done: deploys.Deployed, changes: list[Change]) -> Deployed:
    return Deployed(
        dag=done.dag_name,
        version_id=done.version_id,
        hash=done.version_hash,
        changed=done.changed,
        serves=done.serves,
        built=list(done.built),
        cancelled=done.cancelled,
        job_id=None if done.job_id is None else str(done.job_id),
        catch_up_id=None if done.catch_up_id is None else str(done.catch_up_id),
        changes=changes,
    )
