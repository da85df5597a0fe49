"""Cached results of tasks."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from aaiclick.store.models.base import Row, org_column, snowflake_column, text_column, timestamp_now_column


class CachedResult(Row, table=True):
    """The last task that has computed a result, by the hash of its code version and inputs.

    The result is that of the task, and exists as long as the task does: an entry holds no table.
    """

    __tablename__ = "result_cache"

    org_id: UUID = org_column(primary_key=True)
    key: str = text_column(primary_key=True)
    task_id: int = snowflake_column()
    created_at: datetime = timestamp_now_column()
