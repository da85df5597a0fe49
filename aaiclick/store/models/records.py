"""What tasks leave behind besides their result: events to route, inputs read, lineage, operator state, tables held."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    Text,
    Uuid,
    text,
)
from sqlmodel import Field

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
from aaiclick.store.models.status import OUTBOX_STATUS, REFERENCE_OWNER
from aaiclick.store.words import DEFAULT_ORG_ID, OutboxStatus, ReferenceOwner


class OutboxRow(Row, table=True):
    """A side effect owed by a committed transaction.

    Routing an event deletes it in the transaction that inserts its tasks. An event that cannot be routed stays Pending
    until `available_at` and is Failed after its last attempt; other events do not wait for it. Rows of one
    `ordering_key` (a generation) are routed in the order of their ids. `cursor` identifies the update: two events with
    the same one make one task per definition.
    """

    __tablename__ = "outbox"

    id: int = Field(default=None, sa_column=Column(BigInteger(), Identity(always=True), primary_key=True))
    org_id: UUID = org()
    job_id: int | None = snowflake(null=True)
    created_at: datetime = now()
    available_at: datetime = now()
    status: OutboxStatus = column(OUTBOX_STATUS, default=OutboxStatus.PENDING, server="'Pending'")
    attempts: int = column(Integer(), default=0, server="0")
    kind: str = words()
    ordering_key: str | None = words(null=True)
    payload: dict[str, Any] = document()
    cursor: str | None = words(null=True)
    processed_at: datetime | None = moment()
    last_error: str | None = words(null=True)

    __table_args__ = (
        ForeignKeyConstraint(["org_id", "job_id"], ["jobs.org_id", "jobs.id"], ondelete="CASCADE"),
        CheckConstraint("kind IN ('enqueue_task', 'route_event')", name="kind"),
        CheckConstraint("(status IN ('Done', 'Failed')) = (processed_at IS NOT NULL)", name="processed"),
        CheckConstraint("attempts >= 0", name="attempts"),
        CheckConstraint("status <> 'Failed' OR last_error IS NOT NULL", name="failed"),
        Index("outbox_pending", "kind", "id", postgresql_where=text("status = 'Pending'")),
        Index("outbox_failed", "org_id", "id", postgresql_where=text("status = 'Failed'")),
        Index("outbox_job", "job_id", postgresql_where=text("job_id IS NOT NULL")),
        busy(),
    )


class Dispatch(Row, table=True):
    """That a runtime was told of a task which is ready for it: after which attempt, how often, when, and why not.

    The row of the task decides what is to be told; this one only keeps it from being told all the time. So it may be
    lost, and goes when the task no longer waits.
    """

    __tablename__ = "dispatches"

    task_id: int = snowflake_key()
    org_id: UUID = org()
    attempt: int = column(Integer())
    sent: int = column(Integer(), default=1, server="1")
    sent_at: datetime = now()
    error: str | None = words(null=True)

    __table_args__ = (
        CheckConstraint("sent >= 1", name="sent"),
        busy(),
    )


class LooseFile(Row, table=True):
    """A file that its generation is not yet, or no longer: being written by an attempt, or replaced.

    Known from before it is written until after it is deleted, so that no crash leaves one that nobody knows.
    """

    __tablename__ = "loose_files"

    dataset_version: UUID = uuid(primary_key=True)
    name: str = words(primary_key=True)
    org_id: UUID = org()
    location: str = words()
    written_at: datetime = now()
    task_id: int | None = snowflake(null=True)
    attempt: int | None = column(Integer(), null=True)
    replaced_at: datetime | None = moment()
    deleting_at: datetime | None = moment()

    __table_args__ = (
        CheckConstraint("(replaced_at IS NULL) = (task_id IS NOT NULL AND attempt IS NOT NULL)", name="writer"),
    )


class TaskInput(Row, table=True):
    """Which version of which partition a task read: the key of memoization and of dataset lineage."""

    __tablename__ = "task_inputs"

    task_id: int = snowflake("tasks.id", on_delete="CASCADE", primary_key=True)
    input_dataset_uuid: UUID = uuid("datasets.id", on_delete="CASCADE", primary_key=True)
    input_partition_key: str = words(primary_key=True)
    input_version: datetime = column(DateTime(timezone=True))

    __table_args__ = (Index("task_inputs_version", "input_dataset_uuid", "input_partition_key", "input_version"),)


class ColumnLineage(Row, table=True):
    __tablename__ = "column_lineage"

    output_dataset_uuid: UUID = uuid("datasets.id", on_delete="CASCADE", primary_key=True)
    output_column: str = words(primary_key=True)
    input_dataset_uuid: UUID = uuid("datasets.id", on_delete="CASCADE", primary_key=True)
    input_column: str = words(primary_key=True)
    definition_id: UUID | None = uuid("job_definitions.id", null=True, on_delete="SET NULL")

    __table_args__ = (
        Index("column_lineage_input", "input_dataset_uuid", "input_column"),
        Index("column_lineage_definition", "definition_id"),
    )


class OperatorState(Row, table=True):
    """What an operator remembers between tasks, written in the transaction of a completion."""

    __tablename__ = "operator_state"

    org_id: UUID = org(primary_key=True)
    definition_id: UUID = uuid("job_definitions.id", on_delete="CASCADE", primary_key=True)
    state_key: str = words(default="default", primary_key=True)
    state: dict[str, Any] = document()
    updated_at: datetime = now()

    __table_args__ = (Index("operator_state_definition", "definition_id"),)


class TableRefcount(Row, table=True):
    """A ClickHouse table that we made, from before it exists until after it is gone.

    `refcount` is the sum of its references. `dropping_at` marks that the drop has begun: from then on a new reference
    is refused, so a table cannot be revived while it goes. `org_id` says in whose database it is.
    """

    __tablename__ = "table_refcounts"

    table_name: str = words(primary_key=True)
    org_id: UUID = column(Uuid(), default=DEFAULT_ORG_ID, server=f"'{DEFAULT_ORG_ID}'")
    refcount: int = column(Integer(), default=0, server="0")
    created_at: datetime = now()
    updated_at: datetime = now()
    dropping_at: datetime | None = moment()

    __table_args__ = (
        CheckConstraint("dropping_at IS NULL OR refcount <= 0", name="dropping"),
        Index("table_refcounts_unused", "updated_at", postgresql_where=text("refcount <= 0")),
        busy(fillfactor=70),
    )


class TableReference(Row, table=True):
    """Who keeps a table: an attempt (`owner_id`, `attempt`), a task, a job or a session (`owner_id`), or a name
    (`name`).

    Releasing an owner is one delete by owner, so a worker that died leaves nothing to guess. A trigger keeps the sum in
    `table_refcounts`. What a job holds goes with the job; once the job has ended only what is `kept` stays that long.
    """

    __tablename__ = "table_references"

    table_name: str = column(Text(), ForeignKey("table_refcounts.table_name", ondelete="CASCADE"), primary_key=True)
    owner: ReferenceOwner = column(REFERENCE_OWNER, primary_key=True)
    owner_id: int = column(BigInteger(), default=0, server="0", primary_key=True)
    attempt: int = column(Integer(), default=0, server="0", primary_key=True)
    name: str = words(default="", primary_key=True)
    refs: int = column(Integer(), default=1, server="1")
    job_id: int | None = snowflake("jobs.id", null=True, on_delete="CASCADE")
    kept: bool = column(Boolean(), default=False, server="false")
    created_at: datetime = now()

    __table_args__ = (
        CheckConstraint("refs >= 1", name="refs"),
        CheckConstraint("(owner = 'NAME') = (name <> '')", name="by_name"),
        CheckConstraint("(owner = 'NAME') = (owner_id = 0)", name="by_id"),
        CheckConstraint("(owner = 'ATTEMPT') = (attempt > 0) AND attempt >= 0", name="by_attempt"),
        CheckConstraint("owner <> 'JOB' OR job_id IS NOT NULL", name="by_job"),
        Index("table_references_owner", "owner_id", "attempt", postgresql_where=text("owner <> 'NAME'")),
        Index("table_references_name", "name", postgresql_where=text("owner = 'NAME'")),
        Index("table_references_job", "job_id", postgresql_where=text("job_id IS NOT NULL")),
        Index("table_references_open", "job_id", postgresql_where=text("job_id IS NOT NULL AND NOT kept")),
        busy(),
    )


class TableSession(Row, table=True):
    """A process outside of tasks that holds tables, and when it was last known to live.

    One that is `in_clickhouse` has no connection here: its marker there says whether it lives.
    """

    __tablename__ = "table_sessions"

    id: int = column(BigInteger(), primary_key=True)
    in_clickhouse: bool = column(Boolean(), default=False, server="false")
    seen_at: datetime = now()


class MetricCount(Row, table=True):
    """What metrics counted of rows that are no longer there or have started over, so that counters only rise.

    Triggers append rows, and retention merges them. `kind` is `job`, `task` or `attempt` for deleted rows,
    `job_reopened` or `task_reopened` for those that started over; `bucket` is that of `store.words.BUCKETS`, -1
    without a duration.
    """

    __tablename__ = "metric_counts"

    id: int = Field(default=None, sa_column=Column(BigInteger(), Identity(always=True), primary_key=True))
    kind: str = words()
    status: str = words()
    worker_id: int | None = snowflake(null=True)
    bucket: int = column(Integer())
    count: int = column(BigInteger())
    seconds: float = column(Double())
