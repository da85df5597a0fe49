"""The task: the only thing a worker claims, and the hot table; `docs/schema.md` has the figures behind its shape."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Boolean, CheckConstraint, Double, ForeignKeyConstraint, Index, Integer, SmallInteger, Uuid, text
from sqlalchemy.dialects.postgresql import JSONB

from aaiclick.store.models.base import (
    Row,
    busy,
    column,
    document,
    many_words,
    moment,
    now,
    snowflake,
    snowflake_key,
    uuid,
    words,
)
from aaiclick.store.models.status import TASK_READINESS, TASK_STATUS
from aaiclick.store.words import DEFAULT_ORG_ID, DEFAULT_QUEUE, TaskReadiness, TaskStatus

LIVE = "status IN ('CLAIMED', 'RUNNING')"


class Task(Row, table=True):
    """One unit of work, of a job or on its own.

    `attempt` is the fence: it rises at every claim and never falls. `failures` is what counts against `max_attempts`
    since submit or redrive. `worker_id` stays when the lease has gone: it says who worked on it last. `followed` is
    true when a dependency names it as previous. `added_by` is the task that added it while the job ran, `depth` how
    many such steps it is away from what was submitted. A blocked task that has a result has run and returned tasks:
    it completes with the last of them.
    """

    __tablename__ = "tasks"

    # Fixed width and never NULL first: PostgreSQL then finds them without walking the row.
    id: int = snowflake_key()
    org_id: UUID = column(Uuid(), default=DEFAULT_ORG_ID, server=f"'{DEFAULT_ORG_ID}'")
    created_at: datetime = now()
    updated_at: datetime = now()
    status: TaskStatus = column(TASK_STATUS, default=TaskStatus.PENDING, server="'PENDING'")
    attempt: int = column(Integer(), default=0, server="0")
    failures: int = column(Integer(), default=0, server="0")
    max_attempts: int = column(Integer(), default=4, server="4")
    unmet: int = column(Integer(), default=0, server="0")
    priority: int = column(SmallInteger(), default=0, server="0")
    # Fills a gap in the row. Without dependents, group and key a task completes in one short statement.
    followed: bool = column(Boolean(), default=False, server="false")
    critical: bool = column(Boolean(), default=True, server="true")
    passed_over: bool = column(Boolean(), default=False, server="false")
    # NULL only when nothing is waited for, so Python has to say READY as loudly as the database does.
    readiness: TaskReadiness | None = column(TASK_READINESS, null=True, default=TaskReadiness.READY, server="'READY'")
    job_id: int | None = snowflake("jobs.id", null=True, on_delete="CASCADE")
    group_id: int | None = snowflake(null=True)
    worker_id: int | None = snowflake(null=True)
    lease_token: UUID | None = uuid(null=True)
    lease_expires_at: datetime | None = moment()
    last_heartbeat: datetime | None = moment()
    available_at: datetime | None = moment()
    next_retry_at: datetime | None = moment()
    claimed_at: datetime | None = moment()
    started_at: datetime | None = moment()
    completed_at: datetime | None = moment()
    cancel_requested_at: datetime | None = moment()
    cause_id: int | None = snowflake(null=True)
    added_by: int | None = snowflake(null=True)
    definition_id: UUID | None = uuid(null=True)
    timeout_seconds: float | None = column(Double(), null=True)
    lease_seconds: float | None = column(Double(), null=True)
    concurrency_limit: int | None = column(Integer(), null=True)
    depth: int | None = column(Integer(), null=True)
    queue: str = words(default=DEFAULT_QUEUE)
    type: str = words()
    entrypoint: str | None = words(null=True)
    kwargs: dict[str, Any] = document()
    retry_policy: dict[str, Any] | None = document(null=True)
    idempotency_key: str | None = words(null=True)
    dedupe_key: str | None = words(null=True)
    concurrency_key: str | None = words(null=True)
    partitions: list[str] | None = many_words(null=True)
    input_versions: dict[str, Any] | None = document(null=True)
    result: Any = column(JSONB(none_as_null=True), null=True)
    outputs: Any = column(JSONB(none_as_null=True), null=True)
    error: str | None = words(null=True)
    error_fingerprint: str | None = words(null=True)
    log_path: str | None = words(null=True)

    __table_args__ = (
        # Through the job as well: a task never lies in another job's group.
        ForeignKeyConstraint(["job_id", "group_id"], ["groups.job_id", "groups.id"]),
        # PostgreSQL parses every CHECK anew for each statement: these say what matters in as few words as possible.
        # A task waits, or is leased, or has ended; its status says which.
        CheckConstraint("num_nonnulls(readiness, lease_token, completed_at) = 1", name="phase"),
        CheckConstraint(f"(lease_token IS NOT NULL) = ({LIVE})", name="lease"),
        CheckConstraint("(readiness IS NOT NULL) = (status = 'PENDING' OR next_retry_at IS NOT NULL)", name="waiting"),
        CheckConstraint("lease_token IS NULL OR num_nulls(lease_expires_at, worker_id, claimed_at) = 0", name="holder"),
        # Only what is blocked, held or over may have predecessors that are not done.
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
        # The claim: taking turns between orgs, then priority, then the oldest job (a lone task is a job of its own).
        Index(
            "tasks_ready",
            "org_id",
            "queue",
            text("priority DESC"),
            text("(COALESCE(job_id, id))"),
            "id",
            postgresql_where=text("readiness = 'READY'"),
        ),
        Index("tasks_due", "available_at", postgresql_where=text("readiness = 'TIME'")),
        # By worker and not by expiry: a heartbeat then changes no indexed column and stays a HOT update.
        Index("tasks_live", "worker_id", postgresql_where=text(LIVE)),
        Index("tasks_job", "job_id", "id", postgresql_where=text("job_id IS NOT NULL")),
        Index("tasks_group", "group_id", "id", postgresql_where=text("group_id IS NOT NULL")),
        Index("tasks_definition", "definition_id", "id", postgresql_where=text("definition_id IS NOT NULL")),
        Index("tasks_dead_letter", "org_id", "completed_at", postgresql_where=text("status = 'DEAD_LETTER'")),
        # Retention asks each old job that failed whether it has one.
        Index("tasks_dead_letter_job", "job_id", postgresql_where=text("status = 'DEAD_LETTER'")),
        # Lists of an org. The default one's are found by id: an installation that has no other pays nothing.
        Index("tasks_org", "org_id", "id", postgresql_where=text(f"org_id <> '{DEFAULT_ORG_ID}'")),
        # Who has a slot of a key (ready or at work), and who is next for one.
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
        busy(),
    )
