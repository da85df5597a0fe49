"""Waits of tasks, and the events that end them."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, Index, Integer, text

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
        CheckConstraint("wait_type IN ('time', 'event', 'job', 'poll')", name="wait_type"),
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
