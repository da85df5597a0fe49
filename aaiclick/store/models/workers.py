"""Worker processes and leadership.

Leadership is a term: `leader_term` comes from the sequence `leader_terms`, so a later leader always has the higher
number and writes can be fenced by it. The partial unique index forbids a second leader: a successor must end the old
term and begin its own in one transaction.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import BigInteger, Boolean, CheckConstraint, Index, Integer, Sequence, text

from aaiclick.store.enums import WorkerStatus
from aaiclick.store.models.base import (
    Row,
    column,
    high_churn_storage,
    metadata,
    snowflake_key,
    text_array_column,
    text_column,
    timestamp_column,
    timestamp_now_column,
    uuid_column,
)
from aaiclick.store.models.enum_types import WORKER_STATUS

LEADER_TERMS = Sequence("leader_terms", metadata=metadata)


class Worker(Row, table=True):
    """A worker process: for all orgs, or for `org_id` only if it uses a credential of that org.

    `version` is that of aaiclick, `code_version` that of the user's code: an attempt ran the version of its worker.
    """

    __tablename__ = "workers"

    id: int = snowflake_key()
    started_at: datetime = timestamp_now_column()
    last_heartbeat: datetime = timestamp_now_column()
    stopped_at: datetime | None = timestamp_column()
    tasks_completed: int = column(BigInteger(), default=0, server="0")
    tasks_failed: int = column(BigInteger(), default=0, server="0")
    last_count_report: int = column(BigInteger(), default=0, server="0")
    pid: int = column(Integer())
    pool_size: int = column(Integer(), default=1, server="1")
    status: WorkerStatus = column(WORKER_STATUS, default=WorkerStatus.ACTIVE, server="'ACTIVE'")
    is_leader: bool = column(Boolean(), default=False, server="false")
    leader_until: datetime | None = timestamp_column()
    leader_term: int | None = column(BigInteger(), null=True)
    hostname: str = text_column()
    version: str | None = text_column(null=True)
    queues: list[str] = text_array_column()
    org_id: UUID | None = uuid_column("orgs.id", null=True)
    drain_requested_at: datetime | None = timestamp_column()
    log_directory: str | None = text_column(null=True)
    code_version: str | None = text_column(null=True)
    code_modules: list[str] = text_array_column()

    __table_args__ = (
        CheckConstraint("pool_size >= 1", name="pool_size"),
        CheckConstraint("tasks_completed >= 0 AND tasks_failed >= 0", name="counters"),
        CheckConstraint("(status = 'STOPPED') = (stopped_at IS NOT NULL)", name="stopped"),
        CheckConstraint("is_leader = (leader_until IS NOT NULL)", name="leader_until"),
        CheckConstraint("NOT is_leader OR (leader_term IS NOT NULL AND status <> 'STOPPED')", name="leader"),
        Index("workers_leader", "is_leader", unique=True, postgresql_where=text("is_leader")),
        Index("workers_present", "id", postgresql_where=text("status <> 'STOPPED'")),
        high_churn_storage(fillfactor=50),
    )
