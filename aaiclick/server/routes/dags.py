"""Routes of DAGs: validate, diff, deploy, roll back, pause, run and backfill."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

from fastapi import Path

from aaiclick.api.dags import (
    BackfillRequest,
    BackfillResponse,
    BackfillStep,
    DagChange,
    DagFileRequest,
    DagSummary,
    DagVersion,
    DeployRequest,
    DeployResponse,
    JobDefinition,
    ResumeDagResponse,
    RollbackRequest,
    RunDagRequest,
)
from aaiclick.api.field_types import CreatedResponse, Name
from aaiclick.catalog import analysis
from aaiclick.catalog import backfill as backfills
from aaiclick.catalog import deploy as deploys
from aaiclick.catalog.dags.diff_format import format_changes
from aaiclick.catalog.visibility import may_read_yaml
from aaiclick.data.runtime.clickhouse_client import connect as connect_clickhouse
from aaiclick.errors import NotFoundError
from aaiclick.operations.actor import Permission
from aaiclick.operations.visibility import dataset_reader
from aaiclick.server.analysis_pool import AnalysisLimitError
from aaiclick.server.routes.common import tenant_connection, tenant_transaction, write_audit
from aaiclick.server.routing import Context, RequestContext, Routes
from aaiclick.store.catalog import dag_versions, sources

if TYPE_CHECKING:
    from aaiclick.catalog.dags.diff import DagDiff
    from aaiclick.data.runtime.clickhouse_client import Client
    from aaiclick.store.connections import Connection

routes = Routes("dags")

DagName = Annotated[Name, Path(description="The name of a DAG")]


@routes.post("/v1/dags/validate", Permission.READER)
async def validate_dag(context: Context, body: DagFileRequest) -> DagSummary:  # noqa: ARG001  (every route has it)
    """Validate a DAG file; all errors are reported with their positions."""
    dag = await analysis.load_dag(body.text, body.file)
    return DagSummary(name=dag.name, jobs=len(dag.jobs))


@routes.post("/v1/dags/diff", Permission.READER)
async def diff_dag(context: Context, body: DagFileRequest) -> list[DagChange]:
    """Show what deploying a DAG file would change."""
    await analysis.load_dag(body.text, body.file)
    async with tenant_connection(context) as connection:
        dag_diff = await deploys.diff_with_serving(connection, body.text, body.file, org_id=context.actor.org_id)
        before = await _may_read_version(context, connection, (await analysis.load_dag(body.text, body.file)).name)
    return await _visible_changes(dag_diff, before=before)


@routes.post("/v1/dags/deploy", Permission.WRITER)
async def deploy_dag(context: Context, body: DeployRequest) -> DeployResponse:
    """Deploy a DAG file as a new version, which serves once its new datasets are filled."""
    dag = await analysis.load_dag(body.text, body.file)
    async with tenant_connection(context) as connection:
        await deploys.preload_dags(connection, dag.name, org_id=context.actor.org_id)
    async with tenant_transaction(context) as connection:
        roles = (await dataset_reader(connection, context.actor)).roles
        done = await deploys.deploy(
            connection, body.text, body.file, org_id=context.actor.org_id, roles=roles, resume=body.resume
        )
        await write_audit(context, connection, "dag.deploy", done.dag_name, {"version": done.version_hash})
        before = done.previous is None or await _may_read_version(context, connection, done.dag_name, done.previous)
    return _to_deploy_response(done, await _visible_changes(done.diff, before=before))


@routes.get("/v1/dags", Permission.READER)
async def list_dags(context: Context) -> list[DagVersion]:
    """List the versions of all DAGs, newest first."""
    async with tenant_connection(context) as connection:
        return [_to_dag_version(row) for row in await dag_versions.list_versions(connection, context.actor.org_id)]


@routes.get("/v1/dags/{dag}/versions", Permission.READER)
async def list_dag_versions(context: Context, dag: DagName) -> list[DagVersion]:
    """List the versions of a DAG, newest first."""
    async with tenant_connection(context) as connection:
        rows = await dag_versions.list_versions(connection, context.actor.org_id, dag)
    if not rows:
        raise NotFoundError(f"There is no DAG {dag!r:.80}.", remedy="GET /v1/dags lists them.")
    return [_to_dag_version(row) for row in rows]


@routes.get("/v1/dags/{dag}/definitions", Permission.READER)
async def list_definitions(context: Context, dag: DagName) -> list[JobDefinition]:
    """List the job definitions of the serving version with their states."""
    async with tenant_connection(context) as connection:
        rows = await sources.list_definitions(connection, context.actor.org_id, dag)
    return [JobDefinition(**row) for row in rows]


@routes.post("/v1/dags/{dag}/rollback", Permission.WRITER)
async def roll_back_dag(context: Context, dag: DagName, body: RollbackRequest | None = None) -> DeployResponse:
    """Roll back to an older version with its data, which then catches up."""
    async with tenant_connection(context) as connection:
        await deploys.preload_dags(connection, dag, body and body.to, org_id=context.actor.org_id)
    async with tenant_transaction(context) as connection:
        done = await deploys.roll_back(connection, dag, body and body.to, org_id=context.actor.org_id)
        await write_audit(context, connection, "dag.rollback", dag, {"version": done.version_hash})
        before = await _may_read_version(context, connection, dag, done.previous)
        after = await _may_read_version(context, connection, dag, done.version_id)
    return _to_deploy_response(done, await _visible_changes(done.diff, before=before, after=after))


@routes.post("/v1/dags/{dag}/pause", Permission.WRITER, status_code=HTTPStatus.NO_CONTENT)
async def pause_dag(context: Context, dag: DagName) -> None:
    """Pause a DAG: no source or task of it starts; running tasks continue."""
    async with tenant_transaction(context) as connection:
        await sources.pause_dag(connection, context.actor.org_id, dag)
        await write_audit(context, connection, "dag.pause", dag)


@routes.post("/v1/dags/{dag}/resume", Permission.WRITER)
async def resume_dag(context: Context, dag: DagName) -> ResumeDagResponse:
    """Resume a paused DAG. Missed schedules follow their catch-up settings."""
    async with tenant_transaction(context) as connection:
        count = await sources.resume_dag(connection, context.actor.org_id, dag)
        await write_audit(context, connection, "dag.resume", dag)
    return ResumeDagResponse(count=count)


@routes.post("/v1/dags/{dag}/run", Permission.WRITER, status_code=HTTPStatus.CREATED)
async def run_dag(context: Context, dag: DagName, body: RunDagRequest | None = None) -> CreatedResponse:
    """Start a source of a DAG; returns the job of all tasks that it triggers."""
    run_request = body or RunDagRequest()
    event = {"kind": "manual"} if run_request.payload is None else {"kind": "manual", "payload": run_request.payload}
    async with tenant_transaction(context) as connection:
        job_id, _ = await sources.start_source(connection, context.actor.org_id, dag, run_request.job, event)
        await write_audit(context, connection, "dag.run", dag, {"job": str(job_id)})
    return CreatedResponse(id=job_id)


@routes.post("/v1/dags/{dag}/backfill", Permission.WRITER)
async def backfill_dag(context: Context, dag: DagName, body: BackfillRequest) -> BackfillResponse:
    """Run the times or partitions of a range that have not run, or list them. A repeated backfill starts none twice."""
    org_id = context.actor.org_id

    async def clickhouse() -> Client:
        return await connect_clickhouse(await context.app_state.clickhouse_endpoint(org_id))

    async with tenant_connection(context) as connection:
        plan = await backfills.plan_backfill(connection, clickhouse, org_id, dag, body.job, body.first, body.last)
        may_see = await may_see_steps(context, connection, dag, plan)
    jobs: list[int] = []
    if not body.dry_run:
        async with tenant_transaction(context) as connection:
            jobs = await backfills.start_backfill(connection, plan)
            detail = {"source": plan.job_name, "from": body.first, "to": body.last, "runs": len(plan.to_run)}
            await write_audit(context, connection, "dag.backfill", dag, detail)
    return BackfillResponse(
        job=plan.job_name,
        count=len(plan.to_run),
        before=len(plan.steps) - len(plan.to_run),
        steps=[
            BackfillStep(name=step.name, status=step.status, job_id=None if step.job_id is None else str(step.job_id))
            for step in plan.steps
            if may_see
        ],
        job_ids=[str(job_id) for job_id in jobs],
    )


async def may_see_steps(
    context: RequestContext, connection: Connection, dag: str, plan: backfills.BackfillPlan
) -> bool:
    """Whether the caller may see the steps of a backfill: partition keys are content of a dataset."""
    return plan.definition["activation"] == "source" or await _may_read_version(context, connection, dag)


def _to_dag_version(row: Any) -> DagVersion:
    fields = {name: row[name] for name in ("id", "created_at", "ready_at", "serving_since")}
    return DagVersion(**fields, dag=row["dag_name"], hash=row["yaml_hash"])


async def _may_read_version(
    context: RequestContext, connection: Connection, dag: str, version_id: UUID | None = None
) -> bool:
    """Whether the caller may see the text of a version (by default the serving one)."""
    version = await dag_versions.find_version(connection, context.actor.org_id, dag, version_id)
    return await may_read_yaml(connection, await dataset_reader(connection, context.actor), version)


async def _visible_changes(dag_diff: DagDiff, *, before: bool, after: bool = True) -> list[DagChange]:
    """All changes if the caller may see both versions; else only changed DAG fields and rebuilt datasets, redacted."""
    try:
        changes = [DagChange(**change) for change in await analysis.run_analysis(format_changes, dag_diff)]
    except AnalysisLimitError:  # the deploy is done; the list is optional
        return []
    if before and after:
        return changes
    fields = [change for change in changes if change.what == "dag"]
    rebuilt = [
        change for change in changes if after and change.what == "dataset" and change.change in ("new", "rebuilt")
    ]
    return [
        change.model_copy(update={"change": change.change.partition(".")[0], "detail": ""})
        for change in [*fields, *rebuilt]
    ]


def _to_deploy_response(done: deploys.DeployResult, changes: list[DagChange]) -> DeployResponse:
    return DeployResponse(
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
