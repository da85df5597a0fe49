"""Schemas of schedules."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, model_validator

from aaiclick.api.field_types import (
    ApiModel,
    Arguments,
    Entrypoint,
    JobState,
    Name,
    RequestModel,
    Seconds,
    Snowflake,
    TaskTypeName,
)
from aaiclick.api.tasks import TaskOptionFields

MAX_DECLARED = 1_000
"""Maximum number of the schedules that a module declares."""

ScheduleName = Annotated[
    str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\s/\x00-\x1f]([^/\x00-\x1f]*[^\s/\x00-\x1f])?$")
]
ShortText = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Module = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[A-Za-z_][\w.]*$")]
MissedPolicy = Literal["skip", "latest", "all"]
OverlapPolicy = Literal["allow", "queue", "skip", "cancel_running"]
ScheduleState = Literal["active", "paused", "missing"]


class ScheduleRequest(RequestModel):
    """A schedule of a job (`entrypoint`) or a queue item (`item_type`), by a cron expression or an interval."""

    name: ScheduleName = Field(examples=["nightly"])
    entrypoint: Entrypoint | None = Field(default=None, examples=["myapp.jobs.nightly"])
    job_name: Name | None = Field(default=None, description="Name of the jobs; by default the function's")
    item_type: TaskTypeName | None = Field(default=None, examples=["email:digest"])
    kwargs: Arguments = Field(default_factory=dict, description="Arguments of the job, or payload of the item")
    cron: ShortText | None = Field(default=None, examples=["0 3 * * *"])
    every: ShortText | None = Field(default=None, examples=["5m"])
    timezone: ShortText = "UTC"
    missed: MissedPolicy = "latest"
    max_missed: Annotated[int, Field(ge=1, le=10_000)] = 100
    overlap: OverlapPolicy = "queue"
    nominal_parameter: Name | None = Field(default=None, description="Parameter that receives the nominal time")
    nominal_type: Literal["date", "datetime"] = "datetime"
    timeout_seconds: Seconds | None = None
    options: TaskOptionFields = Field(default_factory=TaskOptionFields, description="Options of the first task")
    replace: bool = Field(default=False, description="Replace a schedule of the same name")

    @model_validator(mode="after")
    def _check_target(self) -> ScheduleRequest:
        if (self.entrypoint is None) == (self.item_type is None):
            raise ValueError("give either 'entrypoint' or 'item_type'")
        if (self.cron is None) == (self.every is None):
            raise ValueError("give either 'cron' or 'every'")
        return self


class Schedule(ApiModel):
    """A schedule; `state` is "missing" if the module that declared it no longer does."""

    id: Snowflake
    name: str
    state: ScheduleState
    entrypoint: str | None
    job_name: str | None
    item_type: str | None
    cron: str | None
    every_seconds: float | None
    timezone: str
    missed: MissedPolicy
    max_missed: int
    overlap: OverlapPolicy
    nominal_parameter: str | None
    timeout_seconds: float | None
    declared_in: str | None = Field(description="Module with the @job that declares it; null: created at run time")
    next_run_at: datetime | None = Field(description="Next nominal time that has not been handled")
    paused_at: datetime | None
    missing_at: datetime | None
    last_nominal_at: datetime | None
    last_run_id: Snowflake | None = Field(description="Its last job; for an item, the last task")
    last_run_status: str | None
    skipped: int = Field(description="Number of runs skipped by its policies")
    error: str | None = Field(description="Why it does not run")
    created_at: datetime
    updated_at: datetime


class ScheduleRun(ApiModel):
    """A job of a schedule."""

    id: Snowflake
    status: JobState
    nominal_at: datetime | None
    cause: str = Field(description="schedule, fire or backfill")
    created_at: datetime
    completed_at: datetime | None


class ScheduleDetail(Schedule):
    """A schedule with its arguments, its next times and its last runs."""

    kwargs: Any
    options: Any
    next_runs: list[datetime]
    runs: list[ScheduleRun]


class FireScheduleRequest(RequestModel):
    """The nominal time of a run that is started by hand; by default now."""

    nominal: ShortText | None = Field(default=None, examples=["2026-01-01T03:00:00+01:00"])


class BackfillScheduleRequest(RequestModel):
    """Range of nominal times; both ends are included."""

    first: ShortText = Field(examples=["2026-01-01"])
    last: ShortText = Field(examples=["2026-01-31"])
    dry_run: bool = False


class SyncSchedulesRequest(RequestModel):
    """All schedules that a module declares."""

    module: Module
    schedules: Annotated[list[ScheduleRequest], Field(max_length=MAX_DECLARED)]
    dry_run: bool = False


class SyncSchedulesResponse(ApiModel):
    """Names of schedules by what was done, or would be done."""

    added: list[str]
    changed: list[str]
    unchanged: list[str]
    missing: list[str] = Field(description="No longer declared: stopped, not deleted")
