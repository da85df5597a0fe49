"""Schemas of claims, heartbeats and waiting for work."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from pydantic import BaseModel, Field, StringConstraints

from aaiclick.api.field_types import MAX_ITEMS, Id, RequestModel
from aaiclick.api.worker_protocol.field_types import (
    GrantedLease,
    LeaseReference,
    LeaseSeconds,
    LeasesRequest,
    Queues,
    WaitSeconds,
)
from aaiclick.api.worker_protocol.outcomes import CompleteRequest, FailRequest


class ClaimOptions(RequestModel):
    """The worker that claims, how many tasks, and from which queues."""

    worker_id: Id
    limit: Annotated[int, Field(ge=0, le=MAX_ITEMS)] = 1
    queues: Queues = Field(default_factory=list, description="An empty list means all queues")
    lease_seconds: LeaseSeconds = 90.0


class ClaimRequest(ClaimOptions):
    wait_seconds: WaitSeconds = Field(default=0.0, description="How long to wait if no task is ready")


class ExchangeRequest(ClaimOptions):
    """Outcomes of attempts, and a claim."""

    completed: Annotated[list[CompleteRequest], Field(max_length=MAX_ITEMS)] = Field(default_factory=list)
    failed: Annotated[list[FailRequest], Field(max_length=MAX_ITEMS)] = Field(default_factory=list)
    released: Annotated[list[LeaseReference], Field(max_length=MAX_ITEMS)] = Field(default_factory=list)


class ClickHouseCredentials(BaseModel):
    """ClickHouse database and user for the Objects of the organisation."""

    host: str
    port: int
    user: str
    database: str
    password: str
    secure: bool
    path: str
    cluster: str = Field(description="The cluster that Objects are spread over, if any")
    others: list[ClickHouseCredentials] = Field(description="The other nodes of the cluster")


class ClaimedTask(BaseModel):
    """A task to run."""

    lease: GrantedLease
    org_id: UUID
    job_id: Id | None
    group_id: Id | None
    type: str
    entrypoint: str | None
    kwargs: Any
    timeout_seconds: float | None
    failures: int
    retry_policy: Any
    suspect: bool = Field(description="A process died while it ran: run it alone")
    shared: bool = Field(description="The installation has several organisations: run only code that the worker names")
    queue: str
    lease_seconds: float | None = Field(
        description="Lifetime of the lease after each heartbeat, if the task sets it; else that of the request"
    )
    priority: int


class ClaimResponse(BaseModel):
    tasks: list[ClaimedTask]
    clickhouse: ClickHouseCredentials | None = Field(description="Present if a task was claimed and credentials exist")
    no_clickhouse: str | None = Field(description="Why there are no credentials")
    clickhouse_unreachable: bool = Field(description="An outage: release tasks that need data, uncharged")


class ExchangeResponse(ClaimResponse):
    accepted: list[Id] = Field(description="Tasks with a valid lease; outcomes of other tasks changed nothing")


class FetchResponse(BaseModel):
    """A task to run, with the results of other tasks filled into its arguments.

    The event of a Lambda function is the same, without credentials.
    """

    task: ClaimedTask
    worker_id: Id = Field(description="The worker that holds the lease")
    lease_seconds: float = Field(description="Lifetime of the lease after each heartbeat")
    clickhouse: ClickHouseCredentials | None
    no_clickhouse: str | None
    clickhouse_unreachable: bool


class StartResponse(BaseModel):
    """Tasks with a valid lease."""

    ids: list[Id]


class HeartbeatRequest(LeasesRequest):
    worker_id: Id
    lease_seconds: LeaseSeconds = 90.0


class HeartbeatResponse(BaseModel):
    lost: list[Id]
    cancelled: list[Id]


class WaitRequest(RequestModel):
    since: Annotated[str, StringConstraints(max_length=50)] = Field(
        default="", description="`now` of the last response"
    )
    wait_seconds: WaitSeconds = 25.0


class WaitResponse(BaseModel):
    now: str
    ready: bool = Field(description="Tasks may be ready")
    cancel: bool = Field(description="Tasks are to be cancelled: the next heartbeat lists them")
