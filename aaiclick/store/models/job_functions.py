"""`@job` functions that workers have registered."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, Double, Integer

from aaiclick.store.models.base import Row, column, json_column, org_column, text_column, timestamp_now_column


class JobFunctionRow(Row, table=True):
    """A `@job` as the last worker that imported its module declared it.

    `parameters` is the JSON Schema of its arguments, `schedule` the declared times as text.
    """

    __tablename__ = "job_functions"

    org_id: UUID = org_column(primary_key=True)
    entrypoint: str = text_column(primary_key=True)
    module: str = text_column()
    name: str = text_column()
    documentation: str = text_column()
    parameters: dict[str, Any] = json_column()
    schedule: str | None = text_column(null=True)
    timeout_seconds: float | None = column(Double(), null=True)
    tags: dict[str, Any] = json_column()
    owner: str | None = text_column(null=True)
    code_version: str | None = text_column(null=True)
    concurrency: int | None = column(Integer(), null=True)
    when_busy: str = text_column(default="queue")
    registered_at: datetime = timestamp_now_column()

    __table_args__ = (
        CheckConstraint("name <> ''", name="named"),
        CheckConstraint("timeout_seconds > 0", name="timeout"),
        CheckConstraint("concurrency > 0", name="concurrency"),
        CheckConstraint("when_busy IN ('queue', 'skip', 'keep_newest', 'cancel_running')", name="when_busy"),
    )
