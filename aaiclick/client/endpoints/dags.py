"""Endpoints of DAGs."""

from __future__ import annotations

from types import NoneType

from aaiclick.api.dags import (
    BackfillResponse,
    DagChange,
    DagSummary,
    DagVersion,
    DeleteDagResponse,
    DeployResponse,
    JobDefinition,
    ResumeDagResponse,
)
from aaiclick.api.field_types import CreatedResponse
from aaiclick.client.endpoint_decorators import endpoint
from aaiclick.client.requests import ApiRequest, build_request


class DagEndpoints:
    """Methods for DAGs."""

    @endpoint
    def validate_dag(self, text: str, file: str = "dag.yaml") -> ApiRequest[DagSummary]:
        """Validate a DAG file; raises all errors at once."""
        return build_request("POST", DagSummary, "dags", "validate", body={"text": text, "file": file})

    @endpoint
    def diff_dag(self, text: str, file: str = "dag.yaml") -> ApiRequest[list[DagChange]]:
        """Return the changes that a deploy of the file would make."""
        return build_request("POST", list[DagChange], "dags", "diff", body={"text": text, "file": file})

    @endpoint
    def deploy_dag(self, text: str, file: str = "dag.yaml", *, resume: bool = False) -> ApiRequest[DeployResponse]:
        """Deploy a DAG file.

        If `job_id` is set, that job fills new datasets first: deploy again with `resume` when it has finished.
        """
        body = {"text": text, "file": file, "resume": resume}
        return build_request("POST", DeployResponse, "dags", "deploy", body=body)

    @endpoint
    def list_dag_versions(self, dag: str | None = None) -> ApiRequest[list[DagVersion]]:
        """List the versions of a DAG, or of all DAGs, newest first."""
        return build_request("GET", list[DagVersion], "dags", *(() if dag is None else (dag, "versions")))

    @endpoint
    def list_definitions(self, dag: str) -> ApiRequest[list[JobDefinition]]:
        """List the job definitions of the serving version with their states."""
        return build_request("GET", list[JobDefinition], "dags", dag, "definitions")

    @endpoint
    def roll_back_dag(self, dag: str, to: str | None = None) -> ApiRequest[DeployResponse]:
        """Roll back to an older version: the one with the hash prefix `to`, or the previous one."""
        return build_request("POST", DeployResponse, "dags", dag, "rollback", body={"to": to})

    @endpoint
    def pause_dag(self, dag: str) -> ApiRequest[None]:
        """Pause a DAG: no further task starts."""
        return build_request("POST", NoneType, "dags", dag, "pause")

    @endpoint
    def resume_dag(self, dag: str) -> ApiRequest[ResumeDagResponse]:
        """Resume a paused DAG."""
        return build_request("POST", ResumeDagResponse, "dags", dag, "resume")

    @endpoint
    def delete_dag(self, dag: str) -> ApiRequest[DeleteDagResponse]:
        """Delete a DAG with its versions, datasets, rows and jobs."""
        return build_request("DELETE", DeleteDagResponse, "dags", dag)

    @endpoint
    def run_dag(self, dag: str, job: str | None = None, payload: object = None) -> ApiRequest[CreatedResponse]:
        """Start a source of a DAG; returns the id of the job of the run."""
        return build_request("POST", CreatedResponse, "dags", dag, "run", body={"job": job, "payload": payload})

    @endpoint
    def backfill_dag(
        self, dag: str, first: str, last: str, job: str | None = None, *, dry_run: bool = False
    ) -> ApiRequest[BackfillResponse]:
        """Run the missing times or partitions of a range; with `dry_run` only list them."""
        body = {"job": job, "first": first, "last": last, "dry_run": dry_run}
        return build_request("POST", BackfillResponse, "dags", dag, "backfill", body=body)
