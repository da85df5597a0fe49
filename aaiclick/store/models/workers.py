"""Worker processes, and which of them leads.

Leadership is a term: `leader_term` comes from the sequence `leader_terms`, so a later leader always has the higher
number and work can be fenced by it. The partial unique index makes a second leader impossible, whatever a loop does:
a successor must end the old term and begin its own in one transaction.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import BigInteger, Boolean, CheckConstraint, Index, Integer, Sequence, text

from aaiclick.store.models.base import Row, busy, column, many_words, metadata, moment, now, snowflake_key, uuid, words
from aaiclick.store.models.status import WORKER_STATUS
from aaiclick.store.words import WorkerStatus

LEADER_TERMS = Sequence("leader_terms", metadata=metadata)


class Worker(Row, table=True):
    """A process that runs tasks: of every org, or of `org_id` alone if it came with that org's credential."""

    __tablename__ = "workers"

    id: int = snowflake_key()
    started_at: datetime = now()
    last_heartbeat: datetime = now()
    stopped_at: datetime | None = moment()
    tasks_completed: int = column(BigInteger(), default=0, server="0")
    tasks_failed: int = column(BigInteger(), default=0, server="0")
    pid: int = column(Integer())
    pool_size: int = column(Integer(), default=1, server="1")
    status: WorkerStatus = column(WORKER_STATUS, default=WorkerStatus.ACTIVE, server="'ACTIVE'")
    is_leader: bool = column(Boolean(), default=False, server="false")
    leader_until: datetime | None = moment()
    leader_term: int | None = column(BigInteger(), null=True)
    hostname: str = words()
    version: str | None = words(null=True)
    queues: list[str] = many_words()
    org_id: UUID | None = uuid("orgs.id", null=True)
    drain_requested_at: datetime | None = moment()
    log_directory: str | None = words(null=True)

    __table_args__ = (
        CheckConstraint("pool_size >= 1", name="pool_size"),
        CheckConstraint("tasks_completed >= 0 AND tasks_failed >= 0", name="counters"),
        CheckConstraint("(status = 'STOPPED') = (stopped_at IS NOT NULL)", name="stopped"),
        CheckConstraint("is_leader = (leader_until IS NOT NULL)", name="leader_until"),
        CheckConstraint("NOT is_leader OR (leader_term IS NOT NULL AND status <> 'STOPPED')", name="leader"),
        Index("workers_leader", "is_leader", unique=True, postgresql_where=text("is_leader")),
        Index("workers_present", "id", postgresql_where=text("status <> 'STOPPED'")),
        busy(fillfactor=50),
    )
