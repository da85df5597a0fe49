"""Schemas of workers, queues and task types."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from aaiclick.api.field_types import RequestModel, RetryPolicy, Snowflake


class Worker(BaseModel):
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

    @property
    def is_draining(self) -> bool:
        return self.drain_requested_at is not None and self.stopped_at is None


class LimitsRequest(RequestModel):
    """Weight and limits; an omitted limit is removed."""

    weight: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    max_running: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    rate_per_second: Annotated[float, Field(gt=0, le=1_000_000)] | None = None
    rate_burst: Annotated[int, Field(ge=1, le=1_000_000)] | None = None


class Queue(BaseModel):
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


class TaskType(BaseModel):
    org: str = Field(description="Slug of the organisation")
    name: str
    retry_policy: RetryPolicy | None
    paused_at: datetime | None


class RetryPolicyRequest(RequestModel):
    """The back-off of a task type; null restores the default."""

    retry_policy: RetryPolicy | None = None
