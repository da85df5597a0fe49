"""DAG versions, the definitions in them, and the datasets they publish."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, Index, Integer, Sequence, UniqueConstraint, text
from sqlalchemy.dialects.postgresql import JSONB

from aaiclick.store.enums import DefinitionStatus
from aaiclick.store.models.base import (
    Row,
    column,
    high_churn_storage,
    json_column,
    metadata,
    org_column,
    snowflake_column,
    text_array_column,
    text_column,
    timestamp_column,
    timestamp_now_column,
    uuid_column,
    uuid_key,
)
from aaiclick.store.models.enum_types import DEFINITION_STATUS

DATASET_TICKETS = Sequence("dataset_tickets", metadata=metadata)
"""Tickets of reads: rows computed from an older read never replace those of a newer one."""

JsonObject = dict[str, Any]


class DagVersion(Row, table=True):
    """An immutable version of a DAG, identified by the hash of its YAML.

    It may serve after its datasets are filled (`ready_at`).

    `deploy_ticket` is that of the latest request to serve it, `serving_at_fill` the serving version when its fill job
    began.
    """

    __tablename__ = "dag_versions"

    id: UUID = uuid_key()
    org_id: UUID = org_column()
    dag_name: str = text_column()
    yaml_hash: str = text_column()
    yaml: str = text_column()
    created_by: UUID | None = uuid_column("users.id", null=True, on_delete="SET NULL")
    created_at: datetime = timestamp_now_column()
    ready_at: datetime | None = timestamp_column()
    fill_job_id: int | None = snowflake_column(null=True)
    serving_at_fill: UUID | None = uuid_column(null=True)
    deploy_ticket: int = column(BigInteger(), default=0, server="0")

    __table_args__ = (
        UniqueConstraint("org_id", "dag_name", "yaml_hash"),
        Index("dag_versions_created_by", "created_by"),
    )


class DagCurrentVersion(Row, table=True):
    """The serving version of a DAG: deploy and rollback change this pointer."""

    __tablename__ = "dag_current_versions"

    org_id: UUID = org_column(primary_key=True)
    dag_name: str = text_column(primary_key=True)
    dag_version_id: UUID = uuid_column("dag_versions.id")
    serving_since: datetime = timestamp_now_column()
    updated_at: datetime = timestamp_now_column()
    paused_at: datetime | None = timestamp_column()

    __table_args__ = (Index("dag_current_versions_version", "dag_version_id"),)


class JobDefinition(Row, table=True):
    """A definition of a DAG version.

    All but its state (the last five columns) is immutable. `spec` is the whole definition as in the file.
    """

    __tablename__ = "job_definitions"

    id: UUID = uuid_key()
    org_id: UUID = org_column()
    name: str = text_column()
    dag_name: str = text_column()
    dag_version_id: UUID = uuid_column("dag_versions.id", on_delete="CASCADE")
    activation: str = text_column()
    runtime: str = text_column()
    operator: str = text_column()
    source: JsonObject | None = json_column(null=True)
    bootstrap: JsonObject | None = json_column(null=True)
    execution_strategy: str | None = text_column(null=True)
    idle_timeout: str | None = text_column(null=True)
    config: JsonObject = json_column()
    config_hash: str = text_column()
    spec: JsonObject = json_column()
    input_datasets: list[str] | None = text_array_column(null=True)
    output_datasets: list[str] | None = text_array_column(null=True)
    rejected_datasets: list[str | None] | None = text_array_column(null=True)
    """The dataset of the rejected rows of each output; NULL for an output without a quarantine."""
    reference_datasets: list[str] | None = text_array_column(null=True)
    """Datasets that the data tests compare rows with."""
    update_strategy: str = text_column()
    unique_key: list[str] | None = text_array_column(null=True)
    scaling: JsonObject | None = json_column(null=True)
    timeout_seconds: int | None = column(Integer(), null=True)
    heartbeat_timeout_seconds: int | None = column(Integer(), null=True)
    max_attempts: int = column(Integer(), default=3, server="3")
    created_at: datetime = timestamp_now_column()
    updated_at: datetime = timestamp_now_column()
    status: DefinitionStatus = column(DEFINITION_STATUS)
    last_heartbeat: datetime | None = timestamp_column()
    last_event_at: datetime | None = timestamp_column()
    next_run_at: datetime | None = timestamp_column()

    __table_args__ = (
        UniqueConstraint("dag_version_id", "name"),
        CheckConstraint("activation IN ('source', 'reactive')", name="activation"),
        CheckConstraint(r"runtime IN ('pool', 'dispatcher', 'lambda') OR runtime ~ '^ecs_[a-z0-9_]+$'", name="runtime"),
        CheckConstraint("(activation = 'source') = (source IS NOT NULL)", name="source"),
        CheckConstraint("activation = 'source' OR bootstrap IS NULL", name="bootstrap"),
        CheckConstraint("(activation = 'reactive') = (execution_strategy IS NOT NULL)", name="strategy_activation"),
        CheckConstraint("execution_strategy IN ('PerUpdate', 'PerPartition', 'Coalesce')", name="execution_strategy"),
        CheckConstraint("activation = 'reactive' OR idle_timeout IS NULL", name="idle_timeout"),
        CheckConstraint("update_strategy IN ('append', 'replace')", name="update_strategy"),
        CheckConstraint("update_strategy <> 'append' OR COALESCE(cardinality(unique_key), 0) > 0", name="unique_key"),
        CheckConstraint(
            "CASE activation WHEN 'source' THEN status <> 'Idle' ELSE status IN ('Idle', 'Running') END", name="status"
        ),
        CheckConstraint("timeout_seconds > 0 AND heartbeat_timeout_seconds > 0 AND max_attempts >= 1", name="limits"),
        Index("job_definitions_org", "org_id", "dag_name", "name"),
        Index("job_definitions_dead", "id", postgresql_where=text("status = 'Dead'")),
        Index("job_definitions_next_run", "next_run_at", postgresql_where=text("next_run_at IS NOT NULL")),
        Index("job_definitions_inputs", "input_datasets", postgresql_using="gin"),
    )


class Dataset(Row, table=True):
    """A published output: one name, one producer, readers by role."""

    __tablename__ = "datasets"

    id: UUID = uuid_key()
    org_id: UUID = org_column()
    name: str = text_column()
    producer_dag_name: str = text_column()
    producer_job_name: str = text_column()
    producer_output_index: int = column(Integer())
    storage: JsonObject = json_column()
    read_roles: list[str] = text_array_column()
    created_at: datetime = timestamp_now_column()
    updated_at: datetime = timestamp_now_column()

    __table_args__ = (
        UniqueConstraint("org_id", "name"),
        UniqueConstraint(
            "org_id",
            "producer_dag_name",
            "producer_job_name",
            "producer_output_index",
            name="datasets_producer_key",
        ),
        CheckConstraint("producer_output_index >= 0", name="output_index"),
    )


class DatasetVersion(Row, table=True):
    """One generation of a dataset's data, perhaps of a range of it.

    It was created for `dag_version_id`, and is filled before that serves. `ticket` is that of the latest update.
    """

    __tablename__ = "dataset_versions"

    id: UUID = uuid_key()
    dataset_uuid: UUID = uuid_column("datasets.id", on_delete="CASCADE")
    created_at: datetime = timestamp_now_column()
    storage_location: str = text_column()
    config_hash: str = text_column()
    schema_hash: str | None = text_column(null=True)
    range_start: int | None = column(BigInteger(), null=True)
    range_end: int | None = column(BigInteger(), null=True)
    dag_version_id: UUID | None = uuid_column("dag_versions.id", null=True, on_delete="SET NULL")
    columns: JsonObject | None = json_column(null=True)
    files: list[JsonObject] = column(JSONB(), default=list, server="'[]'")
    """The files of a generation that is stored in files. Other files at the location are ignored."""
    rows: int | None = column(BigInteger(), null=True)
    ticket: int = column(BigInteger(), default=0, server="0")
    publishes: int = column(BigInteger(), default=0, server="0")
    """Number of publications with data tests that depend on rows of other updates."""
    publishing_table: str | None = text_column(null=True)
    """The staged rows of such a publication that ClickHouse may execute, or may have executed, uncounted."""
    publishing_task: int | None = column(BigInteger(), null=True)
    publishing_lease: UUID | None = uuid_column(null=True)
    updated_at: datetime | None = timestamp_column()

    __table_args__ = (
        Index("dataset_versions_dag_version", "dag_version_id"),
        CheckConstraint("range_start <= range_end", name="range"),
        # A range type has a value for "no bound", so two versions without a range are equal. (NULLS NOT DISTINCT would
        # say the same, from PostgreSQL 15.) numrange and not int8range: that one overflows at the largest bigint.
        Index(
            "dataset_versions_identity",
            "dataset_uuid",
            "config_hash",
            text("numrange(range_start::numeric, range_end::numeric, '[]')"),
            unique=True,
        ),
    )


class DagVersionDataset(Row, table=True):
    """The generation of each dataset that a DAG version reads and serves."""

    __tablename__ = "dag_version_datasets"

    dag_version_id: UUID = uuid_column("dag_versions.id", on_delete="CASCADE", primary_key=True)
    dataset_uuid: UUID = uuid_column("datasets.id", on_delete="CASCADE", primary_key=True)
    dataset_version: UUID = uuid_column("dataset_versions.id")

    __table_args__ = (
        Index("dag_version_datasets_dataset", "dataset_uuid"),
        Index("dag_version_datasets_version", "dataset_version"),
    )


class DatasetPartition(Row, table=True):
    """The latest update of a partition of a generation ('' stands for all rows).

    `ticket` is set when its rows are published, the rest with the completion of the task: the hash of the inputs
    (`inputs_hash`) and of the content (`digest`).
    """

    __tablename__ = "dataset_partitions"

    dataset_version: UUID = uuid_column("dataset_versions.id", on_delete="CASCADE", primary_key=True)
    partition_key: str = text_column(primary_key=True)
    ticket: int = column(BigInteger())
    recorded_ticket: int = column(BigInteger(), default=0, server="0")
    rows: int | None = column(BigInteger(), null=True)
    digest: str | None = text_column(null=True)
    inputs_hash: str | None = text_column(null=True)
    task_id: int | None = snowflake_column(null=True)
    updated_at: datetime = timestamp_now_column()

    __table_args__ = (high_churn_storage(fillfactor=70),)


class DatasetFreshness(Row, table=True):
    """The freshness policy of a dataset in the serving version, and when its next update is due."""

    __tablename__ = "dataset_freshness"

    dataset_uuid: UUID = uuid_column("datasets.id", on_delete="CASCADE", primary_key=True)
    org_id: UUID = org_column()
    max_age_seconds: int | None = column(BigInteger(), null=True)
    by_time: str | None = text_column(null=True)
    timezone: str = text_column()
    days: str = text_column()
    due_at: datetime = timestamp_column(null=False)
    missed_at: datetime | None = timestamp_column()

    __table_args__ = (
        CheckConstraint("(max_age_seconds IS NULL) <> (by_time IS NULL)", name="policy"),
        Index("dataset_freshness_due", "org_id", "due_at"),
        Index("dataset_freshness_unreported", "due_at", postgresql_where=text("missed_at IS NULL")),
    )
