"""Schemas of workers, queues and task types."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from aaiclick.api.field_types import ApiModel, RequestModel, RetryPolicy, Snowflake


class Worker(ApiModel):
    """A process that runs tasks. Host, process id and counts of a shared worker are shown to the operator only."""

    id: Snowflake
    status: Literal["ACTIVE", "IDLE", "STOPPED"]
    shared: bool
    queues: list[str]
    pool_size: int
    version: str | None
    started_at: datetime
    last_heartbeat: datetime
    stopped_at: datetime | None
    drain_requested_at: datetime | None = Field(description="When its drain was requested")
    is_leader: bool
    hostname: str | None = None
    pid: int | None = None
    tasks_completed: int | None = None
    tasks_failed: int | None = None
    code_version: str | None = Field(
        default=None, description="Commit and digest of the modules in the worker's directory when it started"
    )

    @property
    def is_draining(self) -> bool:
        return self.drain_requested_at is not None and self.stopped_at is None


class LimitsRequest(RequestModel):
    """Weight and limits; an omitted limit is removed."""

    weight: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    max_running: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    rate_per_second: Annotated[float, Field(gt=0, le=1_000_000)] | None = None
    rate_burst: Annotated[int, Field(ge=1, le=1_000_000)] | None = None


class Queue(ApiModel):
    org: str = Field(description="Slug of the organisation")
    name: str
    ready: int
    scheduled: int
    blocked: int
    held: int
    running: int
    weight: int
    max_running: int | None
    rate_per_second: float | None
    rate_burst: int | None
    paused_at: datetime | None


class QueueScale(ApiModel):
    """Load of a queue, for an autoscaler of its workers."""

    waiting: int = Field(description="Tasks that wait for a worker, at most 10,000")
    running: int = Field(description="Tasks that a worker has claimed or runs")
    tasks: int = Field(description="Waiting and running tasks: a worker that runs tasks is not idle")
    oldest_seconds: float = Field(description="Seconds since the oldest waiting task became ready")


class TaskType(ApiModel):
    org: str = Field(description="Slug of the organisation")
    name: str
    retry_policy: RetryPolicy | None
    paused_at: datetime | None


class RetryPolicyRequest(RequestModel):
    """The back-off of a task type; null restores the default."""

    retry_policy: RetryPolicy | None = None
