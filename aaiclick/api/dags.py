"""Schemas of DAGs: files, versions, deploys, runs and backfills."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AfterValidator, Field, StringConstraints

from aaiclick.api.field_types import ApiModel, Name, RequestModel, Snowflake, check_storable


class DagFileRequest(RequestModel):
    """The text of a DAG file."""

    text: Annotated[str, StringConstraints(min_length=1), AfterValidator(check_storable)]
    file: Name = Field(default="dag.yaml", description="File name in error messages")


class DeployRequest(DagFileRequest):
    resume: bool = Field(
        default=False, description="Finish a deploy that was begun; refused if a later version serves by now"
    )


class DagSummary(ApiModel):
    """Name and number of jobs of a valid DAG file."""

    name: str
    jobs: int


class DagChange(ApiModel):
    """One difference between two versions."""

    what: str = Field(examples=["dataset"])
    name: str
    change: str = Field(examples=["rebuilt"])
    detail: str


class DagVersion(ApiModel):
    id: UUID
    dag: str
    hash: str
    created_at: datetime
    ready_at: datetime | None = Field(description="When its datasets were filled")
    serving_since: datetime | None


class JobDefinition(ApiModel):
    """A job definition (a node of a DAG) and its state."""

    name: str
    activation: Literal["source", "reactive"]
    operator: str
    source: str | None = Field(description="What starts a source: cron, webhook, manual, always_on")
    status: Literal["Pending", "Running", "Dead", "Draining", "Idle"]
    next_run_at: datetime | None
    last_event_at: datetime | None = Field(description="When it last received an event")
    last_heartbeat: datetime | None
    paused_at: datetime | None = Field(description="When its DAG was paused")


class DeployResponse(ApiModel):
    """Result of a deploy or rollback. While `job_id` fills new datasets, the previous version serves: deploy again."""

    dag: str
    version_id: UUID
    hash: str
    changed: bool = Field(description="Whether the version differs from the one that served before")
    serves: bool
    built: list[str] = Field(description="Datasets with a generation that did not exist")
    cancelled: int
    job_id: Snowflake | None
    catch_up_id: Snowflake | None = Field(description="The job that brings a version which serves again up to date")
    changes: list[DagChange] = Field(description="Without changes that name datasets which the caller may not read")


class RollbackRequest(RequestModel):
    to: Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[0-9a-f]+$")] | None = Field(
        default=None, description="Prefix of the version's hash; by default the previous version"
    )


class RunDagRequest(RequestModel):
    job: Name | None = Field(default=None, description="The source to start; by default the only one")
    payload: Any = None


class BackfillRequest(RequestModel):
    """Range of times of a cron source, or of partitions of the input of a job per partition; both ends are included."""

    job: Name | None = Field(default=None, description="By default the only job that can be backfilled")
    first: Name = Field(examples=["2026-01-01"])
    last: Name = Field(examples=["2026-01-31"])
    dry_run: bool = False


class BackfillStep(ApiModel):
    """One time or partition of a backfill. Without `status` it had not run; the backfill starts it."""

    name: str
    status: str | None
    job_id: Snowflake | None = Field(description="The job that ran it, if it still exists")


class BackfillResponse(ApiModel):
    job: str
    count: int = Field(description="Number of steps that had not run")
    before: int = Field(description="Number of steps that had run")
    limit: int | None = Field(description="Most steps that run at the same time; null: no limit")
    steps: list[BackfillStep] = Field(description="Empty for partitions of datasets that the caller may not read")
    job_ids: list[Snowflake] = Field(description="The jobs that were started")


class ResumeDagResponse(ApiModel):
    count: int = Field(description="Number of tasks that were waiting")


class DeleteDagResponse(ApiModel):
    """Numbers of versions, datasets and jobs that were deleted with a DAG."""

    versions: int
    datasets: int
    jobs: int


class WebhookResponse(ApiModel):
    """The job that a webhook request started."""

    job_id: Snowflake = Field(description="The job; a repeated delivery gets the same one")
