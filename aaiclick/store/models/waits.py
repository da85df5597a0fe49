"""Waits of tasks, the events that end them, and approvals."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, Index, Integer, LargeBinary, text

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
)


class WaitRow(Row, table=True):
    """What a waiting task waits for, besides the time at which it goes on.

    It is valid while the task is scheduled and has the same attempt: a task that goes on for another reason leaves the
    row behind.
    """

    __tablename__ = "waits"

    task_id: int = snowflake_column("tasks.id", on_delete="CASCADE", primary_key=True)
    org_id: UUID = org_column()
    began_at: datetime = timestamp_now_column()
    attempt: int = column(Integer())
    job_id: int | None = snowflake_column(null=True)
    wait_type: str = text_column()
    name: str = text_column(default="")
    key: str = text_column(default="")

    __table_args__ = (
        CheckConstraint("wait_type IN ('time', 'event', 'job', 'poll', 'approval')", name="wait_type"),
        CheckConstraint("(wait_type = 'job') = (job_id IS NOT NULL)", name="job"),
        Index("waits_event", "org_id", "name", "key", postgresql_where=text("wait_type = 'event'")),
        Index("waits_job", "job_id", postgresql_where=text("job_id IS NOT NULL")),
        high_churn_storage(),
    )


class WorkflowEvent(Row, table=True):
    """An event sent to waiting tasks; until it expires, it also ends waits that begin later."""

    __tablename__ = "workflow_events"

    id: int = snowflake_key()
    org_id: UUID = org_column()
    created_at: datetime = timestamp_now_column()
    expires_at: datetime = timestamp_column(null=False)
    name: str = text_column()
    key: str = text_column(default="")
    payload: dict[str, Any] = json_column()

    __table_args__ = (
        CheckConstraint("name <> ''", name="named"),
        Index("workflow_events_name", "org_id", "name", "key", "id"),
        Index("workflow_events_expiry", "expires_at"),
    )


class ApprovalRow(Row, table=True):
    """A question to the members of a role, asked by an attempt of a task that waits for the decision.

    It is open while the task is scheduled and has the same attempt. `shown` is what the deciding person saw.
    """

    __tablename__ = "approvals"

    id: int = snowflake_key()
    org_id: UUID = org_column()
    created_at: datetime = timestamp_now_column()
    task_id: int = snowflake_column("tasks.id", on_delete="CASCADE")
    attempt: int = column(Integer())
    expires_at: datetime = timestamp_column(null=False)
    decided_at: datetime | None = timestamp_column()
    title: str = text_column()
    role: str = text_column()
    form: dict[str, Any] | None = json_column(null=True)
    shown: dict[str, Any] | None = json_column(null=True)
    decision: str | None = text_column(null=True)
    decided_by: str | None = text_column(null=True)
    reason: str | None = text_column(null=True)
    answers: dict[str, Any] | None = json_column(null=True)

    __table_args__ = (
        CheckConstraint("title <> '' AND role <> ''", name="named"),
        CheckConstraint("decision IN ('approved', 'rejected')", name="decision"),
        CheckConstraint("num_nonnulls(decided_at, decision, decided_by) IN (0, 3)", name="decided"),
        Index("approvals_org", "org_id", "id"),
        Index("approvals_open", "org_id", "id", postgresql_where=text("decided_at IS NULL")),
        Index("approvals_task", "task_id", "attempt", unique=True),
    )


class ApprovalLink(Row, table=True):
    """A link that lets its holder decide one approval once, without signing in. Only its hash is stored."""

    __tablename__ = "approval_links"

    token_hash: bytes = column(LargeBinary(), primary_key=True)
    org_id: UUID = org_column()
    created_at: datetime = timestamp_now_column()
    approval_id: int = snowflake_column("approvals.id", on_delete="CASCADE")
    expires_at: datetime = timestamp_column(null=False)
    used_at: datetime | None = timestamp_column()
    recipient: str = text_column()

    __table_args__ = (
        CheckConstraint("recipient <> ''", name="recipient"),
        Index("approval_links_approval", "approval_id"),
    )
