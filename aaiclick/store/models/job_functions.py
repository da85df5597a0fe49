"""`@job` functions that workers have registered."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, Double

from aaiclick.store.models.base import Row, column, json_column, org_column, text_column, timestamp_now_column


class JobFunctionRow(Row, table=True):
    """A `@job` as the last worker that imported its module declared it.

    `parameters` is the JSON Schema of its arguments, `schedule` the declared times as text, `policy` a `JobPolicy`.
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
    policy: dict[str, Any] = json_column()
    registered_at: datetime = timestamp_now_column()

    __table_args__ = (
        CheckConstraint("name <> ''", name="named"),
        CheckConstraint("timeout_seconds > 0", name="timeout"),
    )
