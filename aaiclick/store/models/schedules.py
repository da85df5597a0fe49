"""Schedules of jobs and queue items."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, Double, Index, Integer, UniqueConstraint, text

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


class Schedule(Row, table=True):
    """Starts a job (`entrypoint`) or enqueues an item (`item_type`) at nominal times.

    `next_run_at` is the next nominal time that is not handled. `due_at` is when the scheduler looks at it: the same
    time, or later while a run waits for another; NULL while it is paused or its code is missing. A schedule that is
    `declared_in` a module belongs to a `@job` there; others were created at run time.
    """

    __tablename__ = "schedules"

    id: int = snowflake_key()
    org_id: UUID = org_column()
    name: str = text_column()
    entrypoint: str | None = text_column(null=True)
    job_name: str | None = text_column(null=True)
    item_type: str | None = text_column(null=True)
    kwargs: dict[str, Any] = json_column()
    options: dict[str, Any] = json_column()
    cron: str | None = text_column(null=True)
    every_seconds: float | None = column(Double(), null=True)
    timezone: str = text_column()
    anchor_at: datetime = timestamp_now_column()
    missed: str = text_column()
    max_missed: int = column(Integer())
    overlap: str = text_column()
    nominal_parameter: str | None = text_column(null=True)
    nominal_type: str | None = text_column(null=True)
    timeout_seconds: float | None = column(Double(), null=True)
    declared_in: str | None = text_column(null=True)
    next_run_at: datetime | None = timestamp_column()
    due_at: datetime | None = timestamp_column()
    paused_at: datetime | None = timestamp_column()
    missing_at: datetime | None = timestamp_column()
    last_nominal_at: datetime | None = timestamp_column()
    last_run_id: int | None = snowflake_column(null=True)
    skipped: int = column(BigInteger(), default=0, server="0")
    error: str | None = text_column(null=True)
    created_at: datetime = timestamp_now_column()
    updated_at: datetime = timestamp_now_column()

    __table_args__ = (
        UniqueConstraint("org_id", "name"),
        CheckConstraint("name <> ''", name="named"),
        CheckConstraint("num_nonnulls(entrypoint, item_type) = 1", name="target"),
        CheckConstraint("(entrypoint IS NULL) = (job_name IS NULL)", name="job_name"),
        CheckConstraint("num_nonnulls(cron, every_seconds) = 1 AND COALESCE(every_seconds, 1) >= 1", name="times"),
        CheckConstraint("missed IN ('skip', 'latest', 'all') AND max_missed >= 1", name="missed"),
        CheckConstraint("overlap IN ('allow', 'queue', 'skip', 'cancel_running')", name="overlap"),
        CheckConstraint("item_type IS NULL OR overlap = 'allow'", name="item_overlap"),
        CheckConstraint("(nominal_parameter IS NULL) = (nominal_type IS NULL)", name="nominal"),
        CheckConstraint("nominal_type IN ('date', 'datetime')", name="nominal_type"),
        CheckConstraint("timeout_seconds > 0", name="timeout"),
        CheckConstraint(
            "due_at IS NULL OR (next_run_at IS NOT NULL AND paused_at IS NULL AND missing_at IS NULL)", name="due"
        ),
        CheckConstraint(
            "next_run_at IS NULL OR due_at IS NOT NULL OR paused_at IS NOT NULL OR missing_at IS NOT NULL",
            name="active",
        ),
        Index("schedules_declared", "org_id", "declared_in", postgresql_where=text("declared_in IS NOT NULL")),
        Index("schedules_next_due", "due_at", postgresql_where=text("due_at IS NOT NULL")),
        high_churn_storage(fillfactor=70),
    )
