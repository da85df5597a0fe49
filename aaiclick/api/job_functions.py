"""Schemas of job functions: the `@job`s that workers have registered."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from aaiclick.api.field_types import ApiModel, Arguments, JobState, RequestModel, Snowflake
from aaiclick.store.job_policy import JobPolicy


class JobFunction(ApiModel):
    """A `@job` that a worker has imported."""

    entrypoint: str = Field(examples=["trips.report"])
    name: str
    documentation: str
    parameters: dict[str, Any] = Field(description="JSON Schema of its arguments")
    schedule: str | None = Field(description="Declared times")
    tags: dict[str, str]
    owner: str | None
    code_version: str | None = Field(description="Version of the code of the worker that registered it")
    policy: JobPolicy = Field(description="How many of its jobs run at the same time, and when they are due")
    registered_at: datetime
    last_job_id: Snowflake | None = Field(default=None, description="The last job of its name")
    last_job_status: JobState | None = None
    last_job_at: datetime | None = None


class FunctionRun(ApiModel):
    """A job with the name of a function."""

    id: Snowflake
    status: JobState
    created_at: datetime
    completed_at: datetime | None


class JobFunctionDetail(JobFunction):
    """A job function with its last jobs."""

    jobs: list[FunctionRun]


class RunFunctionRequest(RequestModel):
    """Arguments of a job."""

    arguments: Arguments = Field(default_factory=dict, examples=[{"day": "2026-01-01"}])
