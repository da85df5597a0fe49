"""Jobs, and what they are made of: groups, dependencies and the record of attempts that did not succeed."""

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

from aaiclick.store.models.base import (
    Row,
    busy,
    column,
    document,
    moment,
    now,
    org,
    snowflake,
    snowflake_key,
    uuid,
    words,
)
from aaiclick.store.models.status import ATTEMPT_OUTCOME, JOB_STATUS, NODE_TYPE
from aaiclick.store.words import AttemptOutcome, JobStatus, NodeType


class Job(Row, table=True):
    """One run of a workflow. Its counters say whether it has ended; nothing else needs to be asked."""

    __tablename__ = "jobs"

    id: int = snowflake_key()
    org_id: UUID = org()
    created_at: datetime = now()
    updated_at: datetime = now()
    status: JobStatus = column(JOB_STATUS, default=JobStatus.PENDING, server="'PENDING'")
    total_tasks: int = column(Integer(), default=0, server="0")
    open_tasks: int = column(Integer(), default=0, server="0")
    failed_tasks: int = column(Integer(), default=0, server="0")
    cancelled_tasks: int = column(Integer(), default=0, server="0")
    open_events: int = column(Integer(), default=0, server="0")
    name: str = words()
    definition_id: UUID | None = uuid("job_definitions.id", null=True)
    dag_version_id: UUID | None = uuid("dag_versions.id", null=True)
    trigger: dict[str, Any] | None = document(null=True)
    idempotency_key: str | None = words(null=True)
    timeout_seconds: float | None = column(Double(), null=True)
    deadline_at: datetime | None = moment()
    cancel_requested_at: datetime | None = moment()
    paused_at: datetime | None = moment()
    started_at: datetime | None = moment()
    restarted_at: datetime | None = moment()
    completed_at: datetime | None = moment()
    cause_id: int | None = snowflake(null=True)
    error: str | None = words(null=True)

    __table_args__ = (
        CheckConstraint("name <> ''", name="named"),
        CheckConstraint("timeout_seconds > 0", name="timeout"),
        CheckConstraint("(status IN ('COMPLETED', 'FAILED', 'CANCELLED')) = (completed_at IS NOT NULL)", name="ended"),
        CheckConstraint("completed_at IS NULL OR open_tasks = 0", name="ended_tasks"),
        CheckConstraint("status <> 'COMPLETED' OR (failed_tasks + cancelled_tasks + open_events = 0)", name="success"),
        CheckConstraint("status <> 'RUNNING' OR started_at IS NOT NULL", name="started"),
        CheckConstraint("open_tasks BETWEEN 0 AND total_tasks", name="open_tasks"),
        CheckConstraint("failed_tasks BETWEEN 0 AND total_tasks", name="failed_tasks"),
        CheckConstraint("cancelled_tasks BETWEEN 0 AND total_tasks", name="cancelled_tasks"),
        CheckConstraint("open_events >= 0", name="open_events"),
        UniqueConstraint("org_id", "id"),  # what the outbox points at: no event of another org's job
        Index("jobs_unfinished", "org_id", "id", postgresql_where=text("completed_at IS NULL")),
        Index(
            "jobs_gone_wrong",
            "org_id",
            "status",
            "id",
            postgresql_where=text("status IN ('FAILED', 'CANCELLED')"),
        ),
        Index("jobs_paused", "id", postgresql_where=text("paused_at IS NOT NULL")),
        Index("jobs_name", "org_id", "name", "id"),
        Index(
            "jobs_deadline", "deadline_at", postgresql_where=text("completed_at IS NULL AND deadline_at IS NOT NULL")
        ),
        Index("jobs_definition", "definition_id", "id", postgresql_where=text("definition_id IS NOT NULL")),
        Index("jobs_dag_version", "dag_version_id", "id", postgresql_where=text("dag_version_id IS NOT NULL")),
        Index(
            "jobs_idempotency_key",
            "org_id",
            "name",
            "idempotency_key",
            unique=True,
            postgresql_where=text("idempotency_key IS NOT NULL"),
        ),
        # Counters change at every flush of a worker: room on the page keeps those updates off the indexes (HOT).
        busy(fillfactor=50),
    )


class Group(Row, table=True):
    """Tasks and groups that are waited for as one, and wait as one.

    `unmet` counts predecessors that have not completed, plus one while its parent is closed; `open` counts members
    that have not completed. A failure changes neither, so whatever revives the failed has nothing to restore.
    `failed_at` is when it became certain that it cannot complete, because of `cause_id`.
    """

    __tablename__ = "groups"

    id: int = snowflake_key()
    job_id: int = snowflake("jobs.id", on_delete="CASCADE")
    parent_group_id: int | None = snowflake(null=True)
    created_at: datetime = now()
    unmet: int = column(Integer(), default=0, server="0")
    open: int = column(Integer(), default=0, server="0")
    name: str = words()
    completed_at: datetime | None = moment()
    failed_at: datetime | None = moment()
    cause_id: int | None = snowflake(null=True)
    added_by: int | None = snowflake(null=True)

    __table_args__ = (
        UniqueConstraint("job_id", "id"),
        # Through the job as well: a group never lies in another job's group.
        ForeignKeyConstraint(["job_id", "parent_group_id"], ["groups.job_id", "groups.id"]),
        CheckConstraint("parent_group_id <> id", name="parent"),
        CheckConstraint("unmet >= 0 AND open >= 0", name="counters"),
        CheckConstraint("completed_at IS NULL OR (unmet = 0 AND open = 0 AND failed_at IS NULL)", name="completed"),
        CheckConstraint("(failed_at IS NULL) = (cause_id IS NULL)", name="cause"),
        Index("groups_parent", "parent_group_id", postgresql_where=text("parent_group_id IS NOT NULL")),
        # The narrow row of a barrier is rewritten once per flush of its members.
        busy(fillfactor=50),
    )


class Dependency(Row, table=True):
    """`next` waits for `previous`. Snowflakes are unique across tasks and groups; the types say which table to look in.

    Rows go with their tasks and groups by trigger: a foreign key cannot point at two tables.
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
    """What one attempt of a task added to its job, in one call. All of it waits for the task: what an attempt that did
    not complete has added never ran, and is deleted when another attempt completes.
    """

    __tablename__ = "task_additions"

    task_id: int = snowflake("tasks.id", on_delete="CASCADE", primary_key=True)
    attempt: int = column(Integer(), primary_key=True)
    first_id: int = snowflake(primary_key=True)
    tasks: list[int] = column(ARRAY(BigInteger()))
    groups: list[int] = column(ARRAY(BigInteger()))


class TaskAttempt(Row, table=True):
    """An attempt that did not succeed. The happy path writes none."""

    __tablename__ = "task_attempts"

    task_id: int = snowflake("tasks.id", on_delete="CASCADE", primary_key=True)
    attempt: int = column(Integer(), primary_key=True)
    charged: bool = column(Boolean())
    outcome: AttemptOutcome = column(ATTEMPT_OUTCOME)
    worker_id: int | None = snowflake(null=True)
    claimed_at: datetime | None = moment()
    started_at: datetime | None = moment()
    ended_at: datetime = now()
    error: str | None = words(null=True)
    error_fingerprint: str | None = words(null=True)
    log_path: str | None = words(null=True)

    __table_args__ = (
        CheckConstraint("attempt >= 1", name="attempt"),
        CheckConstraint("outcome <> 'RELEASED' OR NOT charged", name="released"),
    )
