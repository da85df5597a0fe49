"""Schemas of tasks."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import AwareDatetime, BaseModel, Field

from aaiclick.api.field_types import (
    MAX_ITEMS,
    Arguments,
    Entrypoint,
    Key,
    Name,
    RequestModel,
    RetryPolicy,
    Seconds,
    Snowflake,
    TaskState,
)
from aaiclick.store.enums import Cancellation
from aaiclick.store.task_options import TaskOptions, When


class TaskOptionFields(RequestModel):
    """Options of a task as fields of a request."""

    queue: Name = "default"
    priority: Annotated[int, Field(ge=-32768, le=32767)] = 0
    max_attempts: Annotated[int, Field(ge=1, le=1000)] | None = None
    timeout_seconds: Seconds | None = None
    run_at: AwareDatetime | None = Field(default=None, description="Not before this time")
    retry_policy: RetryPolicy | None = None
    concurrency_key: Key | None = None
    concurrency_limit: Annotated[int, Field(ge=1, le=100_000)] | None = None
    critical: bool = Field(
        default=True, description="Whether its final failure fails its job; if not, its dependents run"
    )

    when: When | None = Field(
        default=None,
        description="Runs when its predecessors have all completed (all, the default), when at least one has completed "
        "and the others were skipped (any), or when all have ended (ended) and one has failed (failed)",
    )

    def to_options(self) -> TaskOptions:
        values = {name: getattr(self, name) for name in TaskOptionFields.model_fields}
        if self.retry_policy is not None:
            values["retry_policy"] = self.retry_policy.model_dump_json()
        if self.when == "all":
            values["when"] = None
        return TaskOptions(**values)


class TaskRequest(TaskOptionFields):
    """A queue item: run by the handler of its type, or by its entry point."""

    type: Name = Field(examples=["email:send"])
    payload: Arguments = Field(default_factory=dict, examples=[{"to": "ada@example.org"}])
    entrypoint: Entrypoint | None = None
    idempotency_key: Key | None = None


class EnqueueRequest(RequestModel):
    """Queue items to enqueue: all of them, or none."""

    items: Annotated[list[TaskRequest], Field(min_length=1, max_length=MAX_ITEMS)]


class CancelResponse(BaseModel):
    """Outcome of a cancellation.

    `cancelled`: it is over. `requested`: a worker still runs it, and it will end as cancelled whatever that worker
    reports. `over`: it had ended before.
    """

    outcome: Cancellation


class Task(BaseModel):
    id: Snowflake
    job_id: Snowflake | None
    group_id: Snowflake | None
    type: str
    entrypoint: str | None
    queue: str
    status: TaskState
    readiness: str | None
    priority: int
    attempt: int
    failures: int
    max_attempts: int
    created_at: datetime
    available_at: datetime | None
    started_at: datetime | None
    completed_at: datetime | None
    worker_id: Snowflake | None
    cause_id: Snowflake | None
    partitions: list[str] | None = Field(description="Partitions that a task of a DAG processes")
    output_summary: str = Field(description="Summary of what a task of a DAG wrote")
    error: str | None
    error_fingerprint: str | None


class Attempt(BaseModel):
    """An attempt that did not succeed."""

    attempt: int
    outcome: str
    charged: bool
    worker_id: Snowflake | None
    claimed_at: datetime | None
    started_at: datetime | None
    ended_at: datetime
    error: str | None
    error_fingerprint: str | None


class TaskDetail(Task):
    """A task with its arguments, result and attempts."""

    kwargs: Any
    result: Any
    timeout_seconds: float | None
    lease_expires_at: datetime | None
    idempotency_key: str | None
    concurrency_key: str | None
    attempts: list[Attempt]


class WaitReason(BaseModel):
    """One reason why a task does not run."""

    code: str
    text: str


class TaskLog(BaseModel):
    """A part of a task's log."""

    text: str
    next_offset: int = Field(description="Offset of the next part, in bytes")
    ended: bool = Field(description="Whether the task has ended, so that nothing more follows")
