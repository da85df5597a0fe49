"""The table of tasks, which workers claim; `docs/internals/schema.md` has the figures behind its shape."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Boolean, CheckConstraint, Double, ForeignKeyConstraint, Index, Integer, SmallInteger, Uuid, text
from sqlalchemy.dialects.postgresql import JSONB

from aaiclick.store.enums import DEFAULT_ORG_ID, DEFAULT_QUEUE, TaskReadiness, TaskStatus, TriggerRule
from aaiclick.store.models.base import (
    Row,
    column,
    high_churn_storage,
    json_column,
    snowflake_column,
    snowflake_key,
    text_array_column,
    text_column,
    timestamp_column,
    timestamp_now_column,
    uuid_column,
)
from aaiclick.store.models.enum_types import TASK_READINESS, TASK_STATUS, TRIGGER_RULE

LIVE = "status IN ('CLAIMED', 'RUNNING')"


class Task(Row, table=True):
    """One unit of work, of a job or on its own.

    `attempt` is the fence: it rises at every claim and never falls. `failures` counts charged failures since submit or
    redrive. `worker_id` is the last worker, also after the lease has ended. `added_by` is the task that added it while
    the job ran, `depth` the number of such steps since the submit. A blocked task with a result has run and returned
    tasks: it completes with the last of them. `literal` is the value of a small result, instead of a ClickHouse table.
    `cached_from` is the task with the result that was reused. The path of the log is a function of the row,
    `log_path(tasks)`: the worker's `log_directory` and the id.
    """

    __tablename__ = "tasks"

    # In the order of changes: PostgreSQL logs an update within a page from the first to the last byte that differs. A
    # claim changes the columns from `attempt` to `lease_token`, a completion those from `status` to `completed_at`.
    id: int = snowflake_key()
    org_id: UUID = column(Uuid(), default=DEFAULT_ORG_ID, server=f"'{DEFAULT_ORG_ID}'")
    created_at: datetime = timestamp_now_column()
    failures: int = column(Integer(), default=0, server="0")
    max_attempts: int = column(Integer(), default=4, server="4")
    unmet: int = column(Integer(), default=0, server="0")
    priority: int = column(SmallInteger(), default=0, server="0")
    # Without dependents, group and key a task completes on the fast path.
    has_dependents: bool = column(Boolean(), default=False, server="false")
    critical: bool = column(Boolean(), default=True, server="true")
    repeatable: bool = column(Boolean(), default=False, server="false")
    passed_over: bool = column(Boolean(), default=False, server="false")
    attempt: int = column(Integer(), default=0, server="0")
    worker_id: int | None = snowflake_column(null=True)
    lease_expires_at: datetime | None = timestamp_column()
    last_heartbeat: datetime | None = timestamp_column()
    claimed_at: datetime | None = timestamp_column()
    status: TaskStatus = column(TASK_STATUS, default=TaskStatus.PENDING, server="'PENDING'")
    # NULL means that the task does not wait, so the default in Python must be READY, like the server default.
    readiness: TaskReadiness | None = column(TASK_READINESS, null=True, default=TaskReadiness.READY, server="'READY'")
    updated_at: datetime = timestamp_now_column()
    lease_token: UUID | None = uuid_column(null=True)
    started_at: datetime | None = timestamp_column()
    completed_at: datetime | None = timestamp_column()
    cancel_requested_at: datetime | None = timestamp_column()
    available_at: datetime | None = timestamp_column()
    next_retry_at: datetime | None = timestamp_column()
    job_id: int | None = snowflake_column("jobs.id", null=True, on_delete="CASCADE")
    group_id: int | None = snowflake_column(null=True)
    cause_id: int | None = snowflake_column(null=True)
    added_by: int | None = snowflake_column(null=True)
    cached_from: int | None = snowflake_column(null=True)
    definition_id: UUID | None = uuid_column(null=True)
    timeout_seconds: float | None = column(Double(), null=True)
    lease_seconds: float | None = column(Double(), null=True)
    concurrency_limit: int | None = column(Integer(), null=True)
    depth: int | None = column(Integer(), null=True)
    trigger_rule: TriggerRule | None = column(TRIGGER_RULE, null=True)
    queue: str = text_column(default=DEFAULT_QUEUE)
    type: str = text_column()
    entrypoint: str | None = text_column(null=True)
    kwargs: dict[str, Any] = json_column()
    retry_policy: dict[str, Any] | None = json_column(null=True)
    idempotency_key: str | None = text_column(null=True)
    dedupe_key: str | None = text_column(null=True)
    concurrency_key: str | None = text_column(null=True)
    rate: str | None = text_column(null=True)
    rate_key: str | None = text_column(null=True)
    partitions: list[str] | None = text_array_column(null=True)
    input_versions: dict[str, Any] | None = json_column(null=True)
    result: Any = column(JSONB(none_as_null=True), null=True)
    literal: str | None = text_column(null=True)
    outputs: Any = column(JSONB(none_as_null=True), null=True)
    error: str | None = text_column(null=True)
    error_fingerprint: str | None = text_column(null=True)

    __table_args__ = (
        # With the job: a task cannot be in a group of another job.
        ForeignKeyConstraint(["job_id", "group_id"], ["groups.job_id", "groups.id"]),
        # PostgreSQL parses every CHECK for each statement: these are as short as possible.
        # A task waits, or is leased, or has ended; its status says which.
        CheckConstraint("num_nonnulls(readiness, lease_token, completed_at) = 1", name="phase"),
        CheckConstraint(f"(lease_token IS NOT NULL) = ({LIVE})", name="lease"),
        CheckConstraint("(readiness IS NOT NULL) = (status = 'PENDING' OR next_retry_at IS NOT NULL)", name="waiting"),
        CheckConstraint("lease_token IS NULL OR num_nulls(lease_expires_at, worker_id, claimed_at) = 0", name="holder"),
        # Only blocked, held and ended tasks may have unmet predecessors.
        CheckConstraint(
            "unmet = 0 OR COALESCE(readiness IN ('BLOCKED', 'HELD'), completed_at IS NOT NULL)", name="blocked"
        ),
        CheckConstraint("readiness <> 'TIME' OR available_at IS NOT NULL", name="timed"),
        CheckConstraint(
            "next_retry_at IS NULL OR (status = 'FAILED' AND readiness <> 'READY' AND available_at = next_retry_at)",
            name="retry",
        ),
        CheckConstraint("cause_id IS NULL OR status = 'CANCELLED'", name="cause"),
        CheckConstraint(
            "failures <= LEAST(attempt, max_attempts) AND max_attempts > 0 AND unmet >= 0", name="counters"
        ),
        CheckConstraint("group_id IS NULL OR job_id IS NOT NULL", name="group_job"),
        # Claims: by org and queue, then priority, then the oldest job (a task without a job counts as one).
        Index(
            "tasks_ready",
            "org_id",
            "queue",
            text("priority DESC"),
            text("(COALESCE(job_id, id))"),
            "id",
            postgresql_where=text("readiness = 'READY'"),
        ),
        Index("tasks_literal", text("(result ->> 'table_id')"), postgresql_where=text("literal IS NOT NULL")),
        Index("tasks_due", "available_at", postgresql_where=text("readiness = 'TIME'")),
        # By worker and not by expiry: a heartbeat then changes no indexed column and stays a HOT update.
        Index("tasks_live", "worker_id", postgresql_where=text(LIVE)),
        Index("tasks_job", "job_id", "id", postgresql_where=text("job_id IS NOT NULL")),
        Index("tasks_group", "group_id", "id", postgresql_where=text("group_id IS NOT NULL")),
        Index("tasks_definition", "definition_id", "id", postgresql_where=text("definition_id IS NOT NULL")),
        Index("tasks_dead_letter", "org_id", "completed_at", postgresql_where=text("status = 'DEAD_LETTER'")),
        # Retention checks old failed jobs for dead letters.
        Index("tasks_dead_letter_job", "job_id", postgresql_where=text("status = 'DEAD_LETTER'")),
        # An incident is over when no dead letter of its fingerprint is left.
        Index(
            "tasks_dead_letter_fingerprint",
            "org_id",
            "error_fingerprint",
            "type",
            postgresql_where=text("status = 'DEAD_LETTER'"),
        ),
        # Lists of an org. Those of the default org use the primary key: an installation without others pays nothing.
        Index("tasks_org", "org_id", "id", postgresql_where=text(f"org_id <> '{DEFAULT_ORG_ID}'")),
        # Tasks with a slot of a key (ready or leased), and tasks that wait for one.
        Index(
            "tasks_concurrency",
            "org_id",
            "concurrency_key",
            postgresql_where=text(f"concurrency_key IS NOT NULL AND (readiness = 'READY' OR {LIVE})"),
        ),
        Index(
            "tasks_held",
            "org_id",
            "concurrency_key",
            text("priority DESC"),
            text("(COALESCE(job_id, id))"),
            "id",
            postgresql_where=text("readiness = 'HELD'"),
        ),
        # Tasks that wait for the rate of their key.
        Index(
            "tasks_rated",
            "org_id",
            text("(COALESCE(rate_key, type))"),
            text("priority DESC"),
            text("(COALESCE(job_id, id))"),
            "id",
            postgresql_where=text("readiness = 'HELD' AND rate IS NOT NULL"),
        ),
        Index(
            "tasks_idempotency_key",
            "org_id",
            "type",
            "idempotency_key",
            unique=True,
            postgresql_where=text("idempotency_key IS NOT NULL"),
        ),
        Index(
            "tasks_dedupe_key",
            "definition_id",
            "dedupe_key",
            unique=True,
            postgresql_where=text("dedupe_key IS NOT NULL"),
        ),
        # Updates are not HOT, but those within a page write a third less WAL, and pages are pruned as tasks end.
        high_churn_storage(fillfactor=50),
    )
