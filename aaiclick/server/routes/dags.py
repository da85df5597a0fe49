"""Routes of DAGs: validate, diff, deploy, roll back, pause, run and backfill."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import Path

from aaiclick.api.dags import (
    BackfillRequest,
    BackfillResponse,
    DagChange,
    DagFileRequest,
    DagSummary,
    DagVersion,
    DeleteDagResponse,
    DeployRequest,
    DeployResponse,
    JobDefinition,
    ResumeDagResponse,
    RollbackRequest,
    RunDagRequest,
)
from aaiclick.api.field_types import CreatedResponse, Name
from aaiclick.operations import dags as operations
from aaiclick.operations.actor import Permission
from aaiclick.server.routing import Context, Routes

routes = Routes("dags")

DagName = Annotated[Name, Path(description="The name of a DAG")]


@routes.post("/v1/dags/validate", Permission.READER)
async def validate_dag(context: Context, body: DagFileRequest) -> DagSummary:
    """Validate a DAG file; all errors are reported with their positions."""
    return await context.perform(operations.validate_dag, body.text, body.file)


@routes.post("/v1/dags/diff", Permission.READER)
async def diff_dag(context: Context, body: DagFileRequest) -> list[DagChange]:
    """Show what deploying a DAG file would change."""
    return await context.perform(operations.diff_dag, body.text, body.file)


@routes.post("/v1/dags/deploy", Permission.WRITER)
async def deploy_dag(context: Context, body: DeployRequest) -> DeployResponse:
    """Deploy a DAG file as a new version, which serves once its new datasets are filled."""
    return await context.perform(operations.deploy_dag, body.text, body.file, resume=body.resume)


@routes.get("/v1/dags", Permission.READER)
async def list_dags(context: Context) -> list[DagVersion]:
    """List the versions of all DAGs, newest first."""
    return await context.perform(operations.list_dag_versions)


@routes.get("/v1/dags/{dag}/versions", Permission.READER)
async def list_dag_versions(context: Context, dag: DagName) -> list[DagVersion]:
    """List the versions of a DAG, newest first."""
    return await context.perform(operations.list_dag_versions, dag)


@routes.get("/v1/dags/{dag}/definitions", Permission.READER)
async def list_definitions(context: Context, dag: DagName) -> list[JobDefinition]:
    """List the job definitions of the serving version with their states."""
    return await context.perform(operations.list_definitions, dag)


@routes.post("/v1/dags/{dag}/rollback", Permission.WRITER)
async def roll_back_dag(context: Context, dag: DagName, body: RollbackRequest | None = None) -> DeployResponse:
    """Roll back to an older version with its data, which then catches up."""
    return await context.perform(operations.roll_back_dag, dag, body and body.to)


@routes.post("/v1/dags/{dag}/pause", Permission.WRITER, status_code=HTTPStatus.NO_CONTENT)
async def pause_dag(context: Context, dag: DagName) -> None:
    """Pause a DAG: no source or task of it starts; running tasks continue."""
    await context.perform(operations.pause_dag, dag)


@routes.post("/v1/dags/{dag}/resume", Permission.WRITER)
async def resume_dag(context: Context, dag: DagName) -> ResumeDagResponse:
    """Resume a paused DAG. Missed schedules follow their catch-up settings."""
    return await context.perform(operations.resume_dag, dag)


@routes.delete("/v1/dags/{dag}", Permission.ADMIN)
async def delete_dag(context: Context, dag: DagName) -> DeleteDagResponse:
    """Delete a DAG with its versions, datasets, rows and jobs. It must have no unfinished jobs and no readers."""
    return await context.perform(operations.delete_dag, dag)


@routes.post("/v1/dags/{dag}/run", Permission.WRITER, status_code=HTTPStatus.CREATED)
async def run_dag(context: Context, dag: DagName, body: RunDagRequest | None = None) -> CreatedResponse:
    """Start a source of a DAG; returns the job of all tasks that it triggers."""
    source = body or RunDagRequest()
    return await context.perform(operations.run_dag, dag, source.job, source.payload)


@routes.post("/v1/dags/{dag}/backfill", Permission.WRITER)
async def backfill_dag(context: Context, dag: DagName, body: BackfillRequest) -> BackfillResponse:
    """Run the times or partitions of a range that have not run, or list them. A repeated backfill starts none twice."""
    return await context.perform(operations.backfill_dag, dag, body.first, body.last, body.job, dry_run=body.dry_run)
