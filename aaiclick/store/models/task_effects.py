"""Effects of tasks besides their results: events, inputs, lineage, operator state, table references; and metrics."""

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

from aaiclick.store.enums import DEFAULT_ORG_ID, OutboxStatus, ReferenceOwner
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
    uuid_column,
)
from aaiclick.store.models.enum_types import OUTBOX_STATUS, REFERENCE_OWNER


class OutboxRow(Row, table=True):
    """An event of a committed transaction that has to be routed.

    Routing an event deletes it in the transaction that inserts its tasks. An event that cannot be routed stays Pending
    until `available_at` and is Failed after its last attempt; other events do not wait for it. Events of one generation
    are routed in the order of their ids. `cursor` identifies the update: two events with the same one create one task
    per definition.
    """

    __tablename__ = "outbox"

    id: int = Field(default=None, sa_column=Column(BigInteger(), Identity(always=True), primary_key=True))
    org_id: UUID = org_column()
    job_id: int | None = snowflake_column(null=True)
    created_at: datetime = timestamp_now_column()
    available_at: datetime = timestamp_now_column()
    status: OutboxStatus = column(OUTBOX_STATUS, default=OutboxStatus.PENDING, server="'Pending'")
    attempts: int = column(Integer(), default=0, server="0")
    kind: str = text_column()
    payload: dict[str, Any] = json_column()
    cursor: str | None = text_column(null=True)
    processed_at: datetime | None = timestamp_column()
    last_error: str | None = text_column(null=True)

    __table_args__ = (
        ForeignKeyConstraint(["org_id", "job_id"], ["jobs.org_id", "jobs.id"], ondelete="CASCADE"),
        CheckConstraint("kind = 'route_event'", name="kind"),
        CheckConstraint("(status IN ('Done', 'Failed')) = (processed_at IS NOT NULL)", name="processed"),
        CheckConstraint("attempts >= 0", name="attempts"),
        CheckConstraint("status <> 'Failed' OR last_error IS NOT NULL", name="failed"),
        Index("outbox_pending", "kind", "id", postgresql_where=text("status = 'Pending'")),
        Index("outbox_failed", "org_id", "id", postgresql_where=text("status = 'Failed'")),
        Index("outbox_job", "job_id", postgresql_where=text("job_id IS NOT NULL")),
        high_churn_storage(),
    )


class Dispatch(Row, table=True):
    """The last dispatch of a ready task to its runtime: after which attempt, how often, when, and its error.

    The row of the task decides what is dispatched; this one limits repetitions. So it may be lost, and is deleted when
    the task is no longer ready.
    """

    __tablename__ = "dispatches"

    task_id: int = snowflake_key()
    org_id: UUID = org_column()
    attempt: int = column(Integer())
    sent: int = column(Integer(), default=1, server="1")
    sent_at: datetime = timestamp_now_column()
    error: str | None = text_column(null=True)

    __table_args__ = (
        CheckConstraint("sent >= 1", name="sent"),
        high_churn_storage(),
    )


class OrphanFileRow(Row, table=True):
    """A file that is not part of its generation: being written by an attempt, or replaced.

    Recorded from before it is written until after it is deleted, so that no crash leaves an unknown file.
    """

    __tablename__ = "orphan_files"

    dataset_version: UUID = uuid_column(primary_key=True)
    name: str = text_column(primary_key=True)
    org_id: UUID = org_column()
    location: str = text_column()
    written_at: datetime = timestamp_now_column()
    task_id: int | None = snowflake_column(null=True)
    attempt: int | None = column(Integer(), null=True)
    replaced_at: datetime | None = timestamp_column()
    deleting_at: datetime | None = timestamp_column()

    __table_args__ = (
        CheckConstraint("(replaced_at IS NULL) = (task_id IS NOT NULL AND attempt IS NOT NULL)", name="writer"),
    )


class TaskInput(Row, table=True):
    """A partition version that a task has read: for memoization and dataset lineage."""

    __tablename__ = "task_inputs"

    task_id: int = snowflake_column("tasks.id", on_delete="CASCADE", primary_key=True)
    input_dataset_uuid: UUID = uuid_column("datasets.id", on_delete="CASCADE", primary_key=True)
    input_partition_key: str = text_column(primary_key=True)
    input_version: datetime = column(DateTime(timezone=True))

    __table_args__ = (Index("task_inputs_version", "input_dataset_uuid", "input_partition_key", "input_version"),)


class DataTestResultRow(Row, table=True):
    """The result of one data test of one update, kept for longer than its task.

    `subject` is DAG.OUTPUT, or the type of a task outside of a DAG; `latest`: no later update of the same partition was
    tested.
    """

    __tablename__ = "data_test_results"

    id: int = Field(default=None, sa_column=Column(BigInteger(), Identity(always=True), primary_key=True))
    org_id: UUID = org_column()
    subject: str = text_column()
    dataset_uuid: UUID | None = uuid_column("datasets.id", null=True, on_delete="CASCADE")
    partition_key: str = text_column(default="")
    task_id: int = snowflake_column()
    job_id: int | None = snowflake_column(null=True)
    attempt: int = column(Integer())
    tested_at: datetime = timestamp_now_column()
    number: int = column(Integer())
    test: str = text_column()
    on_failure: str = text_column()
    outcome: str = text_column()
    rows: int = column(BigInteger())
    failing_rows: int = column(BigInteger())
    message: str = text_column()
    sample_table: str | None = text_column(null=True)
    """The table of an Object with some failing rows; it is kept as long as the results of its job."""
    published: bool = column(Boolean())
    latest: bool = column(Boolean(), default=True, server="true")

    __table_args__ = (
        CheckConstraint("on_failure IN ('block', 'quarantine', 'warn')", name="on_failure"),
        CheckConstraint("outcome IN ('passed', 'warned', 'quarantined', 'blocked')", name="outcome"),
        CheckConstraint("outcome <> 'blocked' OR NOT published", name="published"),
        Index("data_test_results_failed", "org_id", "id", postgresql_where=text("latest AND outcome <> 'passed'")),
        Index("data_test_results_latest", "org_id", "subject", "partition_key", postgresql_where=text("latest")),
        Index("data_test_results_runs", "dataset_uuid", "id", postgresql_where=text("number = 0 AND published")),
        Index("data_test_results_subject", "org_id", "subject", "id"),
        Index("data_test_results_task", "task_id"),
    )


class ColumnLineage(Row, table=True):
    """A column of a generation (`output_version`) and a column that it is computed from.

    Rows belong to the generation, so that a version that is being filled does not change what the serving one shows.
    """

    __tablename__ = "column_lineage"

    output_dataset_uuid: UUID = uuid_column("datasets.id", on_delete="CASCADE")
    output_version: UUID = uuid_column("dataset_versions.id", on_delete="CASCADE", primary_key=True)
    output_column: str = text_column(primary_key=True)
    input_dataset_uuid: UUID = uuid_column("datasets.id", on_delete="CASCADE", primary_key=True)
    input_column: str = text_column(primary_key=True)
    definition_id: UUID | None = uuid_column("job_definitions.id", null=True, on_delete="SET NULL")

    __table_args__ = (
        Index("column_lineage_output", "output_dataset_uuid"),
        Index("column_lineage_input", "input_dataset_uuid", "input_column"),
        Index("column_lineage_definition", "definition_id"),
    )


class OperatorState(Row, table=True):
    """State of an operator between tasks, written in the transaction of a completion."""

    __tablename__ = "operator_state"

    org_id: UUID = org_column(primary_key=True)
    definition_id: UUID = uuid_column("job_definitions.id", on_delete="CASCADE", primary_key=True)
    state_key: str = text_column(default="default", primary_key=True)
    state: dict[str, Any] = json_column()
    updated_at: datetime = timestamp_now_column()

    __table_args__ = (Index("operator_state_definition", "definition_id"),)


class TableRefcount(Row, table=True):
    """A registered ClickHouse table, from before it is created until after it is dropped.

    `refcount` is the sum of its references. `dropping_at` marks that the drop has begun: new references are refused
    from then on. `org_id` determines its database.
    """

    __tablename__ = "table_refcounts"

    table_name: str = text_column(primary_key=True)
    org_id: UUID = column(Uuid(), default=DEFAULT_ORG_ID, server=f"'{DEFAULT_ORG_ID}'")
    refcount: int = column(Integer(), default=0, server="0")
    created_at: datetime = timestamp_now_column()
    updated_at: datetime = timestamp_now_column()
    dropping_at: datetime | None = timestamp_column()

    __table_args__ = (
        CheckConstraint("dropping_at IS NULL OR refcount <= 0", name="dropping"),
        Index("table_refcounts_unused", "updated_at", postgresql_where=text("refcount <= 0")),
        high_churn_storage(fillfactor=70),
    )


class TableReference(Row, table=True):
    """A reference to a table by its owner.

    The owner is an attempt (`owner_id`, `attempt`), a task, a job or a session (`owner_id`), or a name (`name`).

    Releasing an owner is one delete by owner, also for a worker that died. A trigger maintains the sum in
    `table_refcounts`. References of a job are deleted with it; after its end only those that are `kept` remain.
    """

    __tablename__ = "table_references"

    table_name: str = column(Text(), ForeignKey("table_refcounts.table_name", ondelete="CASCADE"), primary_key=True)
    owner: ReferenceOwner = column(REFERENCE_OWNER, primary_key=True)
    owner_id: int = column(BigInteger(), default=0, server="0", primary_key=True)
    attempt: int = column(Integer(), default=0, server="0", primary_key=True)
    name: str = text_column(default="", primary_key=True)
    refs: int = column(Integer(), default=1, server="1")
    job_id: int | None = snowflake_column("jobs.id", null=True, on_delete="CASCADE")
    kept: bool = column(Boolean(), default=False, server="false")
    created_at: datetime = timestamp_now_column()

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
        high_churn_storage(),
    )


class TableSession(Row, table=True):
    """A process outside of tasks that references tables, and its last heartbeat.

    A session that is `in_clickhouse` has no connection here: its heartbeat is a marker there.
    """

    __tablename__ = "table_sessions"

    id: int = column(BigInteger(), primary_key=True)
    in_clickhouse: bool = column(Boolean(), default=False, server="false")
    seen_at: datetime = timestamp_now_column()


class MetricCount(Row, table=True):
    """Metric counts of rows that were deleted or restarted, so that counters only rise.

    Triggers append rows, and retention merges them. `kind` is `job`, `task` or `attempt` for deleted rows,
    `job_reopened` or `task_reopened` for restarted ones; `bucket` is an index of `store.enums.BUCKETS`, -1 without a
    duration.
    """

    __tablename__ = "metric_counts"

    id: int = Field(default=None, sa_column=Column(BigInteger(), Identity(always=True), primary_key=True))
    kind: str = text_column()
    status: str = text_column()
    worker_id: int | None = snowflake_column(null=True)
    bucket: int = column(Integer())
    count: int = column(BigInteger())
    seconds: float = column(Double())
