"""Schemas of what a worker's supervisor requests: registration, leases of its processes and the leader's loops."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

from pydantic import AfterValidator, Field, StringConstraints, field_validator

from aaiclick.api.field_types import (
    MAX_ITEMS,
    ApiModel,
    Entrypoint,
    Name,
    RequestModel,
    RetryPolicy,
    Seconds,
    check_storable,
)
from aaiclick.api.json_schema_limits import ParameterSchema
from aaiclick.api.schedules import MAX_DECLARED, ScheduleRequest
from aaiclick.api.worker_protocol.field_types import Count, LeaseSeconds, Queues, Text
from aaiclick.store.engine.job_functions import JobFunctionFields
from aaiclick.store.engine.leases_and_outcomes import MAX_REPORTED_QUEUES
from aaiclick.store.engine.worker_leases import HeldLease, OverdueTask
from aaiclick.store.enums import TERM_SECONDS
from aaiclick.store.job_policy import DEFAULT_POLICY, JobPolicy
from aaiclick.store.json_types import SnowflakeId

MAX_CODE_MODULES = 1_000
MAX_FUNCTIONS = 1_000
"""Maximum number of the `@job` functions of a worker."""


class RegisterRequest(RequestModel):
    worker_id: SnowflakeId | None = None
    hostname: Name
    pid: Count = 0
    pool_size: Annotated[int, Field(ge=1, le=100_000)] = 1
    version: Name | None = None
    queues: Queues = Field(default_factory=list)
    code_version: Name | None = None
    code_modules: Annotated[list[Name], Field(max_length=MAX_CODE_MODULES)] = Field(default_factory=list[str])
    """Top-level modules of the worker's directory, as `name=digest`."""


class ModuleFunction(RequestModel):
    """A `@job` that a worker has imported."""

    entrypoint: Entrypoint
    module: Name
    name: Name
    documentation: Text = ""
    parameters: ParameterSchema
    schedule: Text | None = None
    timeout_seconds: Seconds | None = None
    tags: dict[Name, Name] = Field(default_factory=dict)
    owner: Name | None = None
    code_version: Name | None = None
    policy: JobPolicy = DEFAULT_POLICY

    @classmethod
    def from_fields(cls, fields: JobFunctionFields) -> ModuleFunction:
        values: dict[str, Any] = asdict(fields)
        values |= {name: json.loads(values[name]) for name in ("parameters", "tags", "policy")}
        return cls.model_validate(values)

    def to_fields(self) -> JobFunctionFields:
        values: dict[str, Any] = self.model_dump() | {
            "parameters": json.dumps(self.parameters),
            "tags": json.dumps(self.tags),
            "policy": self.policy.to_json(),
        }
        return JobFunctionFields(**values)


class RegisterFunctionsRequest(RequestModel):
    """The `@job` functions of the modules that a worker has imported, and the schedules that they declare."""

    modules: Annotated[list[Name], Field(max_length=MAX_ITEMS)]
    functions: Annotated[list[ModuleFunction], Field(max_length=MAX_FUNCTIONS)]
    schedules: Annotated[list[ScheduleRequest], Field(max_length=MAX_DECLARED)]


class RegisterResponse(ApiModel):
    worker_id: SnowflakeId


class WorkerRequest(RequestModel):
    worker_id: SnowflakeId


class QueueCounts(RequestModel):
    queue: Text
    completed: Count = 0
    failed: Count = 0


class CountsRequest(WorkerRequest):
    report: Annotated[int, Field(ge=1, lt=2**63)]
    """Number of the report, ascending for each worker: it is counted once, however often it is sent."""
    queues: Annotated[list[QueueCounts], Field(max_length=MAX_REPORTED_QUEUES)] = Field(
        default_factory=list[QueueCounts]
    )


class RunLoopsRequest(WorkerRequest):
    term_seconds: Annotated[float, Field(gt=0, le=TERM_SECONDS)] = TERM_SECONDS
    """Leadership ends after this time unless it is renewed."""


class HeldTasksResponse(ApiModel):
    tasks: list[HeldLease]


class WorkersRequest(RequestModel):
    worker_ids: Annotated[list[SnowflakeId], Field(max_length=1_000)]


class DrainingResponse(ApiModel):
    worker_ids: list[SnowflakeId]


class RenewLeasesRequest(WorkersRequest):
    lease_seconds: LeaseSeconds = 90.0


class OverdueRequest(WorkersRequest):
    grace_seconds: Annotated[float, Field(ge=0, le=86_400)] = 5.0
    default_timeout_seconds: Seconds = 3600.0


class OverdueResponse(ApiModel):
    tasks: list[OverdueTask]


class SettleRequest(WorkerRequest):
    """A worker process has ended.

    `overdue` tasks are charged a failure; after a `crash` its other tasks are suspect, else they are released.
    """

    overdue: Annotated[list[OverdueTask], Field(max_length=MAX_ITEMS)] = Field(default_factory=list)
    crash: Annotated[str, StringConstraints(max_length=200), AfterValidator(check_storable)] | None = None

    @field_validator("overdue")
    @classmethod
    def _check_retry_policies(cls, overdue: list[OverdueTask]) -> list[OverdueTask]:
        for task in overdue:
            if task.retry_policy is not None:
                RetryPolicy.model_validate_json(task.retry_policy)
        return overdue
