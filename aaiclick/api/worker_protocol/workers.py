"""Schemas of what a worker's supervisor requests: registration, leases of its processes and the leader's loops."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field, StringConstraints, field_validator

from aaiclick.api.field_types import MAX_ITEMS, Name, RequestModel, RetryPolicy, Seconds, check_storable
from aaiclick.api.worker_protocol.field_types import Count, LeaseSeconds, Queues, Text
from aaiclick.store.engine.worker_leases import HeldLease, OverdueTask
from aaiclick.store.enums import TERM_SECONDS
from aaiclick.store.json_types import SnowflakeId


class RegisterRequest(RequestModel):
    worker_id: SnowflakeId | None = None
    hostname: Name
    pid: Count = 0
    pool_size: Annotated[int, Field(ge=1, le=100_000)] = 1
    version: Name | None = None
    queues: Queues = Field(default_factory=list)


class RegisterResponse(BaseModel):
    worker_id: SnowflakeId


class WorkerRequest(RequestModel):
    worker_id: SnowflakeId


class QueueCounts(RequestModel):
    queue: Text
    completed: Count = 0
    failed: Count = 0


class CountsRequest(WorkerRequest):
    queues: Annotated[list[QueueCounts], Field(max_length=1_000)] = Field(default_factory=list[QueueCounts])


class RunLoopsRequest(WorkerRequest):
    term_seconds: Annotated[float, Field(gt=0, le=TERM_SECONDS)] = TERM_SECONDS
    """Leadership ends after this time unless it is renewed."""


class HeldTasksResponse(BaseModel):
    tasks: list[HeldLease]


class WorkersRequest(RequestModel):
    worker_ids: Annotated[list[SnowflakeId], Field(max_length=1_000)]


class DrainingResponse(BaseModel):
    worker_ids: list[SnowflakeId]


class RenewLeasesRequest(WorkersRequest):
    lease_seconds: LeaseSeconds = 90.0


class OverdueRequest(WorkersRequest):
    grace_seconds: Annotated[float, Field(ge=0, le=86_400)] = 5.0
    default_timeout_seconds: Seconds = 3600.0


class OverdueResponse(BaseModel):
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
