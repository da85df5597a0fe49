"""Jobs, groups, dependencies, additions, and attempts that did not succeed."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Double,
    ForeignKeyConstraint,
    Index,
    Integer,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY

from aaiclick.store.enums import AttemptOutcome, JobStatus, NodeType
from aaiclick.store.models.base import (
    Row,
    column,
    high_churn_storage,
    json_column,
    org_column,
    snowflake_column,
    snowflake_key,
    text_column,
    timestamp_column,
    timestamp_now_column,
    uuid_column,
)
from aaiclick.store.models.enum_types import ATTEMPT_OUTCOME, JOB_STATUS, NODE_TYPE


class Job(Row, table=True):
    """One run of a workflow. Its counters alone decide whether it has ended. `tags` include its owner.

    A child was submitted by a task, `parent_task_id`, of the job `parent_job_id`.
    """

    __tablename__ = "jobs"

    id: int = snowflake_key()
    org_id: UUID = org_column()
    created_at: datetime = timestamp_now_column()
    updated_at: datetime = timestamp_now_column()
    status: JobStatus = column(JOB_STATUS, default=JobStatus.PENDING, server="'PENDING'")
    total_tasks: int = column(Integer(), default=0, server="0")
    open_tasks: int = column(Integer(), default=0, server="0")
    failed_tasks: int = column(Integer(), default=0, server="0")
    cancelled_tasks: int = column(Integer(), default=0, server="0")
    open_events: int = column(Integer(), default=0, server="0")
    has_waiters: bool = column(Boolean(), default=False, server="false")
    name: str = text_column()
    definition_id: UUID | None = uuid_column("job_definitions.id", null=True)
    dag_version_id: UUID | None = uuid_column("dag_versions.id", null=True)
    schedule_id: int | None = snowflake_column(null=True)
    # Without foreign keys: a child outlives the retention of its parent.
    parent_job_id: int | None = snowflake_column(null=True)
    parent_task_id: int | None = snowflake_column(null=True)
    trigger: dict[str, Any] | None = json_column(null=True)
    tags: dict[str, Any] | None = json_column(null=True)
    concurrency: int | None = column(Integer(), null=True)
    policy: dict[str, Any] | None = json_column(null=True)
    idempotency_key: str | None = text_column(null=True)
    timeout_seconds: float | None = column(Double(), null=True)
    deadline_at: datetime | None = timestamp_column()
    due_at: datetime | None = timestamp_column()
    missed_at: datetime | None = timestamp_column()
    cancel_requested_at: datetime | None = timestamp_column()
    paused_at: datetime | None = timestamp_column()
    started_at: datetime | None = timestamp_column()
    restarted_at: datetime | None = timestamp_column()
    completed_at: datetime | None = timestamp_column()
    cause_id: int | None = snowflake_column(null=True)
    error: str | None = text_column(null=True)

    __table_args__ = (
        CheckConstraint("name <> ''", name="named"),
        CheckConstraint("timeout_seconds > 0", name="timeout"),
        CheckConstraint("concurrency > 0", name="concurrency"),
        CheckConstraint("(status IN ('COMPLETED', 'FAILED', 'CANCELLED')) = (completed_at IS NOT NULL)", name="ended"),
        CheckConstraint("completed_at IS NULL OR open_tasks = 0", name="ended_tasks"),
        CheckConstraint("status <> 'COMPLETED' OR (failed_tasks + cancelled_tasks + open_events = 0)", name="success"),
        CheckConstraint("status <> 'RUNNING' OR started_at IS NOT NULL", name="started"),
        CheckConstraint("open_tasks BETWEEN 0 AND total_tasks", name="open_tasks"),
        CheckConstraint("failed_tasks BETWEEN 0 AND total_tasks", name="failed_tasks"),
        CheckConstraint("cancelled_tasks BETWEEN 0 AND total_tasks", name="cancelled_tasks"),
        CheckConstraint("open_events >= 0", name="open_events"),
        UniqueConstraint("org_id", "id"),  # foreign key of the outbox: no event of another org's job
        Index("jobs_unfinished", "org_id", "id", postgresql_where=text("completed_at IS NULL")),
        Index(
            "jobs_unsuccessful",
            "org_id",
            "status",
            "id",
            postgresql_where=text("status IN ('FAILED', 'CANCELLED')"),
        ),
        # Jobs that wait for each other by name.
        Index(
            "jobs_limited",
            "org_id",
            "name",
            "id",
            postgresql_where=text("completed_at IS NULL AND concurrency IS NOT NULL"),
        ),
        Index(
            "jobs_tags",
            "tags",
            postgresql_using="gin",
            postgresql_ops={"tags": "jsonb_path_ops"},
            postgresql_where=text("tags IS NOT NULL"),
        ),
        Index("jobs_paused", "id", postgresql_where=text("paused_at IS NOT NULL")),
        Index("jobs_name", "org_id", "name", "id"),
        Index(
            "jobs_due",
            "due_at",
            postgresql_where=text("completed_at IS NULL AND due_at IS NOT NULL AND missed_at IS NULL"),
        ),
        Index(
            "jobs_deadline", "deadline_at", postgresql_where=text("completed_at IS NULL AND deadline_at IS NOT NULL")
        ),
        Index("jobs_definition", "definition_id", "id", postgresql_where=text("definition_id IS NOT NULL")),
        Index("jobs_parent", "parent_job_id", "id", postgresql_where=text("parent_job_id IS NOT NULL")),
        Index("jobs_parent_task", "parent_task_id", "id", postgresql_where=text("parent_task_id IS NOT NULL")),
        Index("jobs_schedule", "schedule_id", "id", postgresql_where=text("schedule_id IS NOT NULL")),
        # By status, so that no plan takes the index of all unfinished jobs instead.
        Index(
            "jobs_schedule_unfinished",
            "schedule_id",
            postgresql_where=text("schedule_id IS NOT NULL AND status IN ('PENDING', 'RUNNING')"),
        ),
        Index("jobs_dag_version", "dag_version_id", "id", postgresql_where=text("dag_version_id IS NOT NULL")),
        Index(
            "jobs_idempotency_key",
            "org_id",
            "name",
            "idempotency_key",
            unique=True,
            postgresql_where=text("idempotency_key IS NOT NULL"),
        ),
        # Counters change at every flush of a worker: free space on the page allows HOT updates.
        high_churn_storage(fillfactor=50),
    )


class Group(Row, table=True):
    """Tasks and groups that have dependents and predecessors as one node.

    `unmet` counts predecessors that have not completed, plus one while its parent is closed; `open` counts members
    that have not completed. A failure changes neither, so a restart has nothing to restore. `failed_at` is the time
    when it could no longer complete, because of `cause_id`; `skipped_at` that when a branch left it out.
    """

    __tablename__ = "groups"

    id: int = snowflake_key()
    job_id: int = snowflake_column("jobs.id", on_delete="CASCADE")
    parent_group_id: int | None = snowflake_column(null=True)
    created_at: datetime = timestamp_now_column()
    unmet: int = column(Integer(), default=0, server="0")
    open: int = column(Integer(), default=0, server="0")
    name: str = text_column()
    completed_at: datetime | None = timestamp_column()
    failed_at: datetime | None = timestamp_column()
    skipped_at: datetime | None = timestamp_column()
    cause_id: int | None = snowflake_column(null=True)
    added_by: int | None = snowflake_column(null=True)

    __table_args__ = (
        UniqueConstraint("job_id", "id"),
        # With the job: a group cannot be in a group of another job.
        ForeignKeyConstraint(["job_id", "parent_group_id"], ["groups.job_id", "groups.id"]),
        CheckConstraint("parent_group_id <> id", name="parent"),
        CheckConstraint("unmet >= 0 AND open >= 0", name="counters"),
        CheckConstraint("completed_at IS NULL OR (unmet = 0 AND open = 0 AND failed_at IS NULL)", name="completed"),
        CheckConstraint("(failed_at IS NULL) = (cause_id IS NULL)", name="cause"),
        CheckConstraint("num_nonnulls(completed_at, failed_at, skipped_at) < 2", name="outcome"),
        Index("groups_parent", "parent_group_id", postgresql_where=text("parent_group_id IS NOT NULL")),
        # The row is updated once per flush of its members.
        high_churn_storage(fillfactor=50),
    )


class Dependency(Row, table=True):
    """`next` depends on `previous`. Snowflakes are unique across tasks and groups; the types name the table.

    A trigger deletes rows with their tasks and groups: a foreign key cannot reference two tables.

    ```python
    from sqlalchemy import select

    async with OrchContext(), get_orch_context_session() as session:
        rows = (await session.scalars(select(Dependency).limit(10))).all()
    ```
    """

    __tablename__ = "dependencies"

    # Both ids before both types, in the row and in the key: no padding between them.
    previous_id: int = snowflake_key()
    next_id: int = snowflake_key()
    previous_type: NodeType = column(NODE_TYPE, primary_key=True)
    next_type: NodeType = column(NODE_TYPE, primary_key=True)

    __table_args__ = (
        CheckConstraint("previous_id <> next_id", name="distinct"),
        Index("dependencies_next", "next_id"),
    )


class TaskAddition(Row, table=True):
    """Nodes that an attempt of a task has added to its job in one call.

    They depend on the task, so those of a failed attempt never ran; they are deleted when another attempt completes.
    """

    __tablename__ = "task_additions"

    task_id: int = snowflake_column("tasks.id", on_delete="CASCADE", primary_key=True)
    attempt: int = column(Integer(), primary_key=True)
    first_id: int = snowflake_column(primary_key=True)
    tasks: list[int] = column(ARRAY(BigInteger()))
    groups: list[int] = column(ARRAY(BigInteger()))


class TaskAttempt(Row, table=True):
    """An attempt that did not succeed. Successful attempts have no row."""

    __tablename__ = "task_attempts"

    task_id: int = snowflake_column("tasks.id", on_delete="CASCADE", primary_key=True)
    attempt: int = column(Integer(), primary_key=True)
    charged: bool = column(Boolean())
    outcome: AttemptOutcome = column(ATTEMPT_OUTCOME)
    worker_id: int | None = snowflake_column(null=True)
    claimed_at: datetime | None = timestamp_column()
    started_at: datetime | None = timestamp_column()
    ended_at: datetime = timestamp_now_column()
    error: str | None = text_column(null=True)
    error_fingerprint: str | None = text_column(null=True)
    log_path: str | None = text_column(null=True)

    __table_args__ = (
        CheckConstraint("attempt >= 1", name="attempt"),
        CheckConstraint("outcome <> 'RELEASED' OR NOT charged", name="released"),
    )
