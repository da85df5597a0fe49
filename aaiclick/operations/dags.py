"""Operations on DAGs: validate, diff, deploy, roll back, pause, delete, run and backfill."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick.api.dags import (
    BackfillResponse,
    BackfillStep,
    DagChange,
    DagSummary,
    DagVersion,
    DeleteDagResponse,
    DeployResponse,
    JobDefinition,
    ResumeDagResponse,
)
from aaiclick.api.field_types import CreatedResponse
from aaiclick.catalog.dataset_visibility import may_read_yaml
from aaiclick.catalog.errors import AnalysisLimitError
from aaiclick.errors import ConflictError, NotFoundError
from aaiclick.lazy_modules import LazyModule
from aaiclick.operations.actor import Actor, Permission
from aaiclick.operations.database_access import Databases, open_transaction
from aaiclick.operations.dataset_reader import dataset_reader
from aaiclick.operations.operation import databases_operation, operation, write_audit
from aaiclick.store.catalog import dag_sources, dag_versions

if TYPE_CHECKING:
    from aaiclick.catalog import backfill as backfills
    from aaiclick.catalog import deploy as deploys
    from aaiclick.catalog import sql_yaml_analysis
    from aaiclick.catalog.dags import diff_format
    from aaiclick.catalog.dags.diff import DagDiff
    from aaiclick.data.runtime import clickhouse_client
    from aaiclick.data.runtime.clickhouse_client import ClickHouseClient
    from aaiclick.store.catalog.datasets import Reader
    from aaiclick.store.postgres_connections import Connection
else:  # ClickHouse and the SQL parser: a list of versions needs none of them
    sql_yaml_analysis = LazyModule("aaiclick.catalog.sql_yaml_analysis")
    backfills = LazyModule("aaiclick.catalog.backfill")
    deploys = LazyModule("aaiclick.catalog.deploy")
    diff_format = LazyModule("aaiclick.catalog.dags.diff_format")
    clickhouse_client = LazyModule("aaiclick.data.runtime.clickhouse_client")


MAX_NAMED = 5
"""Jobs or DAGs that a message names."""


@databases_operation(Permission.READER)
async def validate_dag(databases: Databases, actor: Actor, text: str, file: str = "dag.yaml") -> DagSummary:  # noqa: ARG001  (every operation has them)
    """Validate a DAG file; all errors are reported with their positions."""
    dag = await sql_yaml_analysis.load_dag(text, file)
    return DagSummary(name=dag.name, jobs=len(dag.jobs))


@databases_operation(Permission.READER)
async def diff_dag(databases: Databases, actor: Actor, text: str, file: str = "dag.yaml") -> list[DagChange]:
    """Show what deploying a DAG file would change."""
    dag = await sql_yaml_analysis.load_dag(text, file)
    async with databases.connect() as connection:
        dag_diff = await deploys.diff_with_serving(connection, text, file, org_id=actor.org_id)
        before = await _may_read_version(connection, await dataset_reader(connection, actor), dag.name)
    return await _visible_changes(dag_diff, before=before)


@databases_operation(Permission.WRITER)
async def deploy_dag(
    databases: Databases, actor: Actor, text: str, file: str = "dag.yaml", *, resume: bool = False
) -> DeployResponse:
    """Deploy a DAG file as a new version, which serves once its new datasets are filled.

    With `resume`, continue an earlier deploy; it is refused if a later version serves by now.
    """
    dag = await sql_yaml_analysis.load_dag(text, file)
    async with databases.connect() as connection:
        await deploys.preload_dags(connection, dag.name, org_id=actor.org_id)
    async with open_transaction(databases) as connection:
        reader = await dataset_reader(connection, actor)
        done = await deploys.deploy(connection, text, file, org_id=actor.org_id, roles=reader.roles, resume=resume)
        await write_audit(connection, actor, "dag.deploy", done.dag_name, {"version": done.version_hash})
        before = done.previous is None or await _may_read_version(connection, reader, done.dag_name, done.previous)
    return _to_deploy_response(done, await _visible_changes(done.diff, before=before))


@operation(Permission.READER, changes=False)
async def list_dag_versions(connection: Connection, actor: Actor, dag: str | None = None) -> list[DagVersion]:
    """List the versions of a DAG, or of all DAGs, newest first."""
    rows = await dag_versions.list_versions(connection, actor.org_id, dag)
    if dag is not None and not rows:
        raise _dag_not_found(dag)
    return [
        DagVersion(
            id=row.id,
            dag=row.dag_name,
            hash=row.yaml_hash,
            created_at=row.created_at,
            ready_at=row.ready_at,
            serving_since=row.serving_since,
        )
        for row in rows
    ]


@operation(Permission.READER, changes=False)
async def list_definitions(connection: Connection, actor: Actor, dag: str) -> list[JobDefinition]:
    """List the job definitions of the serving version with their states."""
    return [JobDefinition(**row) for row in await dag_sources.list_definitions(connection, actor.org_id, dag)]


@databases_operation(Permission.WRITER)
async def roll_back_dag(databases: Databases, actor: Actor, dag: str, to: str | None = None) -> DeployResponse:
    """Roll back to an older version with its data: the one with the hash prefix `to`, or the previous one."""
    async with databases.connect() as connection:
        await deploys.preload_dags(connection, dag, to, org_id=actor.org_id)
    async with open_transaction(databases) as connection:
        done = await deploys.roll_back(connection, dag, to, org_id=actor.org_id)
        await write_audit(connection, actor, "dag.rollback", dag, {"version": done.version_hash})
        reader = await dataset_reader(connection, actor)
        before = await _may_read_version(connection, reader, dag, done.previous)
        after = await _may_read_version(connection, reader, dag, done.version_id)
    return _to_deploy_response(done, await _visible_changes(done.diff, before=before, after=after))


@operation(Permission.WRITER)
async def pause_dag(connection: Connection, actor: Actor, dag: str) -> None:
    """Pause a DAG: no source or task of it starts; running tasks continue."""
    await dag_sources.pause_dag(connection, actor.org_id, dag)
    await write_audit(connection, actor, "dag.pause", dag)


@operation(Permission.WRITER)
async def resume_dag(connection: Connection, actor: Actor, dag: str) -> ResumeDagResponse:
    """Resume a paused DAG. Missed schedules follow their catch-up settings."""
    count = await dag_sources.resume_dag(connection, actor.org_id, dag)
    await write_audit(connection, actor, "dag.resume", dag)
    return ResumeDagResponse(count=count)


@operation(Permission.ADMIN, as_owner=True)
async def delete_dag(connection: Connection, actor: Actor, dag: str) -> DeleteDagResponse:
    """Delete a DAG with its versions, datasets, rows and jobs. It must have no unfinished jobs and no readers."""
    if not await dag_versions.lock_versions(connection, actor.org_id, dag):
        raise _dag_not_found(dag)
    if readers := await dag_versions.list_reading_dags(connection, actor.org_id, dag):
        raise ConflictError(
            f"Datasets of the DAG {dag!r:.80} are read by {', '.join(readers[:MAX_NAMED])}.",
            remedy="Deploy these DAGs without them, or delete them first.",
        )
    if job_ids := await dag_versions.list_unfinished_jobs(connection, actor.org_id, dag, MAX_NAMED):
        raise ConflictError(
            f"The DAG {dag!r:.80} has unfinished jobs: {', '.join(map(str, job_ids))}.",
            remedy=f"Pause it ('aaiclick dag pause {dag:.80}'), and wait for its jobs or cancel them.",
        )
    deleted = await dag_versions.delete_dag(connection, actor.org_id, dag)
    response = DeleteDagResponse(versions=deleted.versions, datasets=deleted.datasets, jobs=deleted.jobs)
    await write_audit(connection, actor, "dag.delete", dag, response.model_dump())
    return response


@operation(Permission.WRITER)
async def run_dag(
    connection: Connection, actor: Actor, dag: str, job: str | None = None, payload: object = None
) -> CreatedResponse:
    """Start a source of a DAG, by default its only one; returns the job of all tasks that it triggers."""
    event = {"kind": "manual"} if payload is None else {"kind": "manual", "payload": payload}
    job_id, _ = await dag_sources.start_source(connection, actor.org_id, dag, job, event)
    await write_audit(connection, actor, "dag.run", dag, {"source": job, "job": str(job_id)})
    return CreatedResponse(id=job_id)


@databases_operation(Permission.WRITER)
async def backfill_dag(
    databases: Databases,
    actor: Actor,
    dag: str,
    first: str,
    last: str,
    job: str | None = None,
    *,
    dry_run: bool = False,
) -> BackfillResponse:
    """Run the times or partitions of a range that have not run; with `dry_run` only list them.

    A repeated backfill starts none twice.
    """

    async def clickhouse() -> ClickHouseClient:
        return await clickhouse_client.connect(await databases.clickhouse())

    async with databases.connect() as connection:
        plan = await backfills.plan_backfill(connection, clickhouse, actor.org_id, dag, job, first, last)
        # partition keys are content of a dataset
        may_see_steps = plan.definition["activation"] == "source" or await _may_read_version(
            connection, await dataset_reader(connection, actor), dag
        )
    job_ids: list[int] = []
    if not dry_run:
        async with open_transaction(databases) as connection:
            job_ids = await backfills.start_backfill(connection, plan)
            detail = {"source": plan.job_name, "from": first, "to": last, "runs": len(plan.to_run)}
            await write_audit(connection, actor, "dag.backfill", dag, detail)
    return BackfillResponse(
        job=plan.job_name,
        count=len(plan.to_run),
        before=len(plan.steps) - len(plan.to_run),
        limit=plan.limit,
        steps=[
            BackfillStep(name=step.name, status=step.status, job_id=step.job_id) for step in plan.steps if may_see_steps
        ],
        job_ids=job_ids,
    )


def _dag_not_found(dag: str) -> NotFoundError:
    return NotFoundError(f"There is no DAG {dag!r:.80}.", remedy="'aaiclick dag ls' lists them.")


async def _may_read_version(connection: Connection, reader: Reader, dag: str, version_id: UUID | None = None) -> bool:
    """Whether the reader may see the text of a version (by default the serving one)."""
    return await may_read_yaml(
        connection, reader, await dag_versions.find_version(connection, reader.org_id, dag, version_id)
    )


async def _visible_changes(dag_diff: DagDiff, *, before: bool, after: bool = True) -> list[DagChange]:
    """All changes if the caller may see both versions; else only changed DAG fields and rebuilt datasets, redacted."""
    try:
        changes = [
            DagChange(**change) for change in await sql_yaml_analysis.run_analysis(diff_format.format_changes, dag_diff)
        ]
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
        job_id=done.job_id,
        catch_up_id=done.catch_up_id,
        changes=changes,
    )
