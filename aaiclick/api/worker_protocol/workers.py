"""Schemas of what a worker's supervisor requests: registration, leases of its processes and the leader's loops."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field, StringConstraints

from aaiclick.api.field_types import MAX_ITEMS, Id, Name, RequestModel, RetryPolicy, Seconds, check_storable
from aaiclick.api.worker_protocol.field_types import Count, GrantedLease, LeaseReference, LeaseSeconds, Queues, Text
from aaiclick.store.enums import TERM_SECONDS


class RegisterRequest(RequestModel):
    worker_id: Id | None = None
    hostname: Name
    pid: Count = 0
    pool_size: Annotated[int, Field(ge=1, le=100_000)] = 1
    version: Name | None = None
    queues: Queues = Field(default_factory=list)


class RegisterResponse(BaseModel):
    worker_id: Id


class WorkerRequest(RequestModel):
    worker_id: Id


class QueueCounts(RequestModel):
    queue: Text
    completed: Count = 0
    failed: Count = 0


class CountsRequest(WorkerRequest):
    queues: Annotated[list[QueueCounts], Field(max_length=1_000)] = Field(default_factory=list[QueueCounts])


class RunLoopsRequest(WorkerRequest):
    term_seconds: Annotated[float, Field(gt=0, le=TERM_SECONDS)] = TERM_SECONDS
    """Leadership ends after this time unless it is renewed."""


class HeldTask(BaseModel):
    lease: GrantedLease
    cancelled: bool
    age_seconds: float


class HeldTasksResponse(BaseModel):
    tasks: list[HeldTask]


class WorkersRequest(RequestModel):
    worker_ids: Annotated[list[Id], Field(max_length=1_000)]


class DrainingResponse(BaseModel):
    worker_ids: list[Id]


class RenewLeasesRequest(WorkersRequest):
    lease_seconds: LeaseSeconds = 90.0


class OverdueRequest(WorkersRequest):
    grace_seconds: Annotated[float, Field(ge=0, le=86_400)] = 5.0
    default_timeout_seconds: Seconds = 3600.0


class OverdueTask(RequestModel):
    lease: LeaseReference
    worker_id: Id
    cancelled: bool
    timeout_seconds: Seconds
    failures: Count
    retry_policy: RetryPolicy | None = None


class OverdueResponse(BaseModel):
    tasks: list[OverdueTask]


class SettleRequest(WorkerRequest):
    """A worker process has ended.

    `overdue` tasks are charged a failure; after a `crash` its other tasks are suspect, else they are released.
    """

    overdue: Annotated[list[OverdueTask], Field(max_length=MAX_ITEMS)] = Field(default_factory=list)
    crash: Annotated[str, StringConstraints(max_length=200), AfterValidator(check_storable)] | None = None
