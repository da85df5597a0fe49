"""Schemas of tasks."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import AwareDatetime, Field, StringConstraints

from aaiclick.api.field_types import (
    MAX_ITEMS,
    ApiModel,
    Arguments,
    Entrypoint,
    Key,
    QueueName,
    RequestModel,
    RetryPolicy,
    Seconds,
    Snowflake,
    TaskState,
    TaskTypeName,
)
from aaiclick.store.enums import Cancellation
from aaiclick.store.task_options import TaskOptions, When, parse_rate


class TaskOptionFields(RequestModel):
    """Options of a task as fields of a request."""

    queue: QueueName = "default"
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

    repeatable: bool = Field(
        default=False,
        description="Without retries: an attempt that was interrupted, as by the death of its worker, runs again",
    )

    rate: Annotated[str, StringConstraints(max_length=30)] | None = Field(
        default=None,
        examples=["100/m"],
        description="At most so many tasks of the key are claimed in any period of that length",
    )
    rate_key: Key | None = Field(default=None, description="Tasks with the same key share the rate; default: the type")

    def to_options(self) -> TaskOptions:
        values = {name: getattr(self, name) for name in TaskOptionFields.model_fields}
        if self.retry_policy is not None:
            values["retry_policy"] = self.retry_policy.model_dump_json()
        if self.when == "all":
            values["when"] = None
        if self.rate is not None:
            values["rate"] = parse_rate(self.rate)
        return TaskOptions(**values)


class TaskRequest(TaskOptionFields):
    """A queue item: run by the handler of its type, or by its entry point."""

    type: TaskTypeName = Field(examples=["email:send"])
    payload: Arguments = Field(default_factory=dict, examples=[{"to": "ada@example.org"}])
    entrypoint: Entrypoint | None = None
    idempotency_key: Key | None = None
    debounce: Annotated[str, StringConstraints(max_length=50)] | None = Field(
        default=None,
        examples=["30s"],
        description="Wait that long; a later item with its key replaces the payload",
    )
    debounce_key: Key | None = None
    debounce_merge: bool = Field(default=False, description="Merge the payloads instead of replacing them")


class EnqueueRequest(RequestModel):
    """Queue items to enqueue: all of them, or none."""

    items: Annotated[list[TaskRequest], Field(min_length=1, max_length=MAX_ITEMS)]


class CancelResponse(ApiModel):
    """Outcome of a cancellation.

    `cancelled`: it is over. `requested`: a worker still runs it, and it will end as cancelled whatever that worker
    reports. `over`: it had ended before.
    """

    outcome: Cancellation


class Task(ApiModel):
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


class Attempt(ApiModel):
    """An attempt that did not succeed."""

    attempt: int
    outcome: str
    charged: bool
    worker_id: Snowflake | None
    code_version: str | None = Field(description="Version of the code that ran")
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
    rate: str | None = Field(description="Number of tasks and of seconds, as 100/60")
    rate_key: str | None
    code_version: str | None = Field(description="Version of the code of its last worker")
    cached_from: Snowflake | None = Field(description="Task with the cached result that was reused")
    attempts: list[Attempt]


class WaitReason(ApiModel):
    """One reason why a task does not run."""

    code: str
    text: str


class TaskLog(ApiModel):
    """A part of a task's log."""

    text: str
    next_offset: int = Field(description="Offset of the next part, in bytes")
    ended: bool = Field(description="Whether the task has ended, so that nothing more follows")
