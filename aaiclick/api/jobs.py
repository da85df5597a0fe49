"""Schemas of jobs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, Field, model_validator

from aaiclick.api.field_types import (
    MAX_ITEMS,
    Arguments,
    Entrypoint,
    JobState,
    Key,
    Name,
    RequestModel,
    Seconds,
    Snowflake,
)
from aaiclick.api.tasks import TaskOptionFields


class JobTaskRequest(TaskOptionFields):
    """A task of a job. In `kwargs`, {"object_type": "task", "task": KEY} stands for the result of that task."""

    key: Key = Field(examples=["load"])
    entrypoint: Entrypoint = Field(examples=["myapp.steps.load"])
    kwargs: Arguments = Field(default_factory=dict)
    name: Name | None = None
    group: Key | None = None
    depends_on: Annotated[list[Key], Field(max_length=MAX_ITEMS)] = Field(default_factory=list)


class JobGroupRequest(RequestModel):
    """A group of tasks, which depends on others and has dependents as one."""

    key: Key
    name: Name | None = None
    parent: Key | None = None
    depends_on: Annotated[list[Key], Field(max_length=MAX_ITEMS)] = Field(default_factory=list)


class JobRequest(RequestModel):
    """A job: one entry point, or a graph of tasks."""

    name: Name = Field(examples=["nightly"])
    entrypoint: Entrypoint | None = Field(default=None, examples=["myapp.steps.load"])
    kwargs: Arguments = Field(default_factory=dict, examples=[{"day": "2026-11-15"}])
    tasks: Annotated[list[JobTaskRequest], Field(max_length=MAX_ITEMS)] = Field(default_factory=list)
    groups: Annotated[list[JobGroupRequest], Field(max_length=MAX_ITEMS)] = Field(default_factory=list)
    timeout_seconds: Seconds | None = None
    idempotency_key: Key | None = None

    @model_validator(mode="after")
    def _check_exactly_one_form(self) -> JobRequest:
        if (self.entrypoint is None) == (not self.tasks):
            raise ValueError("give either 'entrypoint' (with 'kwargs') or 'tasks' (with 'groups')")
        if self.entrypoint is not None and self.groups:
            raise ValueError("'groups' go with 'tasks'")
        return self


class ReleasedTablesResponse(BaseModel):
    """The number of released tables."""

    tables: int


class Job(BaseModel):
    id: Snowflake
    name: str
    status: JobState
    total_tasks: int
    open_tasks: int
    failed_tasks: int
    cancelled_tasks: int
    timeout_seconds: float | None
    created_at: datetime
    started_at: datetime | None
    restarted_at: datetime | None = Field(description="When failed or cleared tasks were started again")
    completed_at: datetime | None
    deadline_at: datetime | None
    cancel_requested_at: datetime | None
    paused_at: datetime | None
    schedule: str | None = Field(default=None, description="Name of the schedule that started it")
    nominal_at: datetime | None = Field(default=None, description="Nominal time of a scheduled run")
    error: str | None


class GroupProgress(BaseModel):
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


class JobResult(BaseModel):
    """The result of a task as text: its value, or the first rows of its table."""

    task_id: Snowflake
    name: str
    value: str


class JobEvent(BaseModel):
    """An event of a job's history."""

    at: datetime
    kind: str = Field(examples=["created", "started", "attempt_failed", "ended"])
    task_id: Snowflake | None = None
    attempt: int | None = None
    detail: str | None = None
