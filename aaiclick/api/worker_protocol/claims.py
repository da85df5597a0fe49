"""Schemas of claims, heartbeats and waiting for work."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from aaiclick.api.field_types import MAX_ITEMS, ApiModel, Name, RequestModel
from aaiclick.api.worker_protocol.field_types import LeaseRequest, LeaseSeconds, LeasesRequest, Queues, WaitSeconds
from aaiclick.api.worker_protocol.outcomes import CompleteRequest, FailRequest
from aaiclick.server_addresses import ClickHouseEndpoint
from aaiclick.store.engine.leases_and_outcomes import Claim, Lease
from aaiclick.store.json_types import SnowflakeId


class ClaimOptions(RequestModel):
    """The worker that claims, how many tasks, and from which queues."""

    worker_id: SnowflakeId
    limit: Annotated[int, Field(ge=0, le=MAX_ITEMS)] = 1
    queues: Queues = Field(default_factory=list, description="An empty list means all queues")
    lease_seconds: LeaseSeconds = 90.0


class ClaimRequest(ClaimOptions):
    wait_seconds: WaitSeconds = Field(default=0.0, description="How long to wait if no task is ready")


class FetchRequest(LeaseRequest):
    """The lease of a task, and the version of the code that will run it if its worker has registered without one."""

    code_version: Name | None = None


class ExchangeRequest(ClaimOptions):
    """Outcomes of attempts, and a claim."""

    completed: Annotated[list[CompleteRequest], Field(max_length=MAX_ITEMS)] = Field(default_factory=list)
    failed: Annotated[list[FailRequest], Field(max_length=MAX_ITEMS)] = Field(default_factory=list)
    released: Annotated[list[Lease], Field(max_length=MAX_ITEMS)] = Field(default_factory=list)


class ClickHouseAccess(ApiModel):
    """ClickHouse database and user for the Objects of the organisation, or why there are none."""

    clickhouse: ClickHouseEndpoint | None = Field(
        default=None, description="Present if a task was claimed and credentials exist"
    )
    no_clickhouse: str | None = Field(default=None, description="Why there are no credentials")
    clickhouse_unreachable: bool = Field(
        default=False, description="An outage: release tasks that need data, uncharged"
    )


class ClaimResponse(ClickHouseAccess):
    tasks: list[Claim]


class ExchangeResponse(ClaimResponse):
    accepted: list[SnowflakeId] = Field(description="Tasks with a valid lease; outcomes of other tasks changed nothing")


class FetchResponse(ClickHouseAccess):
    """A task to run, with the results of other tasks filled into its arguments.

    The event of a Lambda function is the same, without credentials: others can read it.
    """

    task: Claim
    worker_id: SnowflakeId = Field(description="The worker that holds the lease")
    lease_seconds: float = Field(description="Lifetime of the lease after each heartbeat")


class StartResponse(ApiModel):
    """Tasks with a valid lease."""

    ids: list[SnowflakeId]


class HeartbeatRequest(LeasesRequest):
    worker_id: SnowflakeId
    lease_seconds: LeaseSeconds = 90.0


class HeartbeatResponse(ApiModel):
    lost: list[SnowflakeId]
    cancelled: list[SnowflakeId]


class WaitRequest(RequestModel):
    since: Annotated[str, StringConstraints(max_length=50)] = Field(
        default="", description="`now` of the last response"
    )
    wait_seconds: WaitSeconds = 25.0


class WaitResponse(ApiModel):
    now: str
    ready: bool = Field(description="Tasks may be ready")
    cancel: bool = Field(description="Tasks are to be cancelled: the next heartbeat lists them")
