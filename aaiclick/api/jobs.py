"""Schemas of jobs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field, model_validator

from aaiclick.api.field_types import (
    MAX_ITEMS,
    ApiModel,
    Arguments,
    Entrypoint,
    JobState,
    Key,
    Name,
    RequestModel,
    Seconds,
    Snowflake,
    TaskTypeName,
)
from aaiclick.api.tasks import TaskOptionFields
from aaiclick.store.enums import WhenBusy
from aaiclick.store.job_policy import MAX_CONCURRENCY


class JobTaskRequest(TaskOptionFields):
    """A task of a job. In `kwargs`, {"object_type": "task", "task": KEY} stands for the result of that task."""

    key: Key = Field(examples=["load"])
    entrypoint: Entrypoint = Field(examples=["myapp.steps.load"])
    kwargs: Arguments = Field(default_factory=dict)
    name: TaskTypeName | None = None
    group: Key | None = None
    depends_on: Annotated[list[Key], Field(max_length=MAX_ITEMS)] = Field(default_factory=list)


class JobGroupRequest(RequestModel):
    """A group of tasks, which depends on others and has dependents as one."""

    key: Key
    name: Name | None = None
    parent: Key | None = None
    depends_on: Annotated[list[Key], Field(max_length=MAX_ITEMS)] = Field(default_factory=list)


class JobCall(RequestModel):
    """The call of a `@job` that built a graph; a job with it can be run again with other arguments."""

    entrypoint: Entrypoint = Field(examples=["myapp.jobs.nightly"])
    arguments: Arguments = Field(default_factory=dict)


class JobRequest(RequestModel):
    """A job: one entry point, or a graph of tasks.

    A registered `@job` as entry point gives the tags, owner, time limit and limits that the request does not have.
    """

    name: Name = Field(examples=["nightly"])
    entrypoint: Entrypoint | None = Field(default=None, examples=["myapp.steps.load"])
    kwargs: Arguments = Field(default_factory=dict, examples=[{"day": "2026-11-15"}])
    tasks: Annotated[list[JobTaskRequest], Field(max_length=MAX_ITEMS)] = Field(default_factory=list)
    groups: Annotated[list[JobGroupRequest], Field(max_length=MAX_ITEMS)] = Field(default_factory=list)
    timeout_seconds: Seconds | None = None
    idempotency_key: Key | None = None
    tags: dict[Name, Name] = Field(default_factory=dict, examples=[{"team": "finance"}])
    owner: Name | None = None
    concurrency: Annotated[int, Field(ge=1, le=MAX_CONCURRENCY)] | None = Field(
        default=None, description="How many jobs of its name run at the same time"
    )
    when_busy: WhenBusy | None = Field(default=None, description="What the job does while so many run")
    deadline_seconds: Seconds | None = Field(default=None, description="If it takes longer, an incident is opened")
    pin_version: bool | Name | None = Field(
        default=None, description="Only workers with this code version run it; true: the registered function's"
    )
    call: JobCall | None = Field(default=None, description="The call that built `tasks`")

    @model_validator(mode="after")
    def _check_exactly_one_form(self) -> JobRequest:
        if (self.entrypoint is None) == (not self.tasks):
            raise ValueError("give either 'entrypoint' (with 'kwargs') or 'tasks' (with 'groups')")
        if self.entrypoint is not None and self.groups:
            raise ValueError("'groups' go with 'tasks'")
        if self.entrypoint is not None and self.call is not None:
            raise ValueError("'call' goes with 'tasks'")
        if self.entrypoint is None and self.pin_version is True:
            raise ValueError("'pin_version' of 'tasks' is the name of a version")
        if self.entrypoint is None and self.when_busy is not None and self.concurrency is None:
            raise ValueError("'when_busy' goes with 'concurrency'")
        return self


class RerunRequest(RequestModel):
    """Arguments that replace those of the job's call."""

    arguments: Arguments = Field(default_factory=dict)


class ReleasedTablesResponse(ApiModel):
    """The number of released tables."""

    tables: int


class JobTreeNode(ApiModel):
    """A job of a tree of child jobs; `depth` counts from the job that was asked for."""

    id: Snowflake
    parent_job_id: Snowflake | None
    parent_task_id: Snowflake | None
    depth: int
    name: str
    status: JobState
    created_at: datetime
    completed_at: datetime | None


class Job(ApiModel):
    id: Snowflake
    name: str
    status: JobState
    total_tasks: int
    open_tasks: int
    failed_tasks: int
    cancelled_tasks: int
    parent_job_id: Snowflake | None = Field(description="Job of the task that submitted this one as its child")
    parent_task_id: Snowflake | None
    timeout_seconds: float | None
    created_at: datetime
    started_at: datetime | None
    restarted_at: datetime | None = Field(description="When failed or cleared tasks were started again")
    completed_at: datetime | None
    deadline_at: datetime | None
    due_at: datetime | None = Field(default=None, description="End of its `deadline`")
    missed_at: datetime | None = Field(default=None, description="When it was found overdue")
    cancel_requested_at: datetime | None
    paused_at: datetime | None
    schedule: str | None = Field(default=None, description="Name of the schedule that started it")
    nominal_at: datetime | None = Field(default=None, description="Nominal time of a scheduled run")
    entrypoint: str | None = Field(default=None, description="The @job that was called, if it is known")
    tags: dict[str, str] = Field(default_factory=dict)
    owner: str | None = None
    code_versions: list[str] | None = Field(
        default=None, description="Versions of the code that ran its first 1,000 tasks; only of a single job"
    )
    error: str | None


class GroupProgress(ApiModel):
    """Progress of a group of a job; the group "" has the tasks without a group.

    Rows and seconds are those of finished chunks.
    """

    group: str
    total: int
    completed: int
    running: int
    failed: int
    cancelled: int
    rows: int | None
    seconds: float | None


class JobResult(ApiModel):
    """The result of a task: its value as text and as JSON, or the first rows of its table as text."""

    task_id: Snowflake
    name: str
    value: str = Field(description="Text of the value, or of its first rows")
    data: Any = Field(default=None, description="The whole value as JSON; null for tables")


class JobEvent(ApiModel):
    """An event of a job's history."""

    at: datetime
    kind: str = Field(examples=["created", "started", "attempt_failed", "ended"])
    task_id: Snowflake | None = None
    attempt: int | None = None
    detail: str | None = None
