"""DAG versions, the definitions in them, and the datasets they publish."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, Index, Integer, Sequence, UniqueConstraint, text
from sqlalchemy.dialects.postgresql import JSONB

from aaiclick.store.models.base import (
    Row,
    busy,
    column,
    document,
    many_words,
    metadata,
    moment,
    now,
    org,
    snowflake,
    uuid,
    uuid_key,
    words,
)
from aaiclick.store.models.status import DEFINITION_STATUS
from aaiclick.store.words import DefinitionStatus

DATASET_TICKETS = Sequence("dataset_tickets", metadata=metadata)
"""Who reads later has the higher ticket; what was made from an older reading never replaces what is newer."""


class DagVersion(Row, table=True):
    """An immutable DAG, known by the hash of its YAML. It may serve once its datasets are filled (`ready_at`).

    `deploy_ticket` is of the latest wish that it serve, `filled_beside` the version that served when its filling began.
    """

    __tablename__ = "dag_versions"

    id: UUID = uuid_key()
    org_id: UUID = org()
    dag_name: str = words()
    yaml_hash: str = words()
    yaml: str = words()
    created_by: UUID | None = uuid("users.id", null=True, on_delete="SET NULL")
    created_at: datetime = now()
    ready_at: datetime | None = moment()
    fill_job_id: int | None = snowflake(null=True)
    filled_beside: UUID | None = uuid(null=True)
    deploy_ticket: int = column(BigInteger(), default=0, server="0")

    __table_args__ = (
        UniqueConstraint("org_id", "dag_name", "yaml_hash"),
        Index("dag_versions_created_by", "created_by"),
    )


class DagCurrentVersion(Row, table=True):
    """Which version serves: deploy and rollback move this pointer."""

    __tablename__ = "dag_current_versions"

    org_id: UUID = org(primary_key=True)
    dag_name: str = words(primary_key=True)
    dag_version_id: UUID = uuid("dag_versions.id")
    serving_since: datetime = now()
    updated_at: datetime = now()
    paused_at: datetime | None = moment()

    __table_args__ = (Index("dag_current_versions_version", "dag_version_id"),)


class JobDefinition(Row, table=True):
    """A node of a DAG version. Everything but its state (the last five columns) is immutable. `spec` is all of it as
    the file has it.
    """

    __tablename__ = "job_definitions"

    id: UUID = uuid_key()
    org_id: UUID = org()
    name: str = words()
    dag_name: str = words()
    dag_version_id: UUID = uuid("dag_versions.id", on_delete="CASCADE")
    activation: str = words()
    runtime: str = words()
    operator: str = words()
    source: dict[str, Any] | None = document(null=True)
    bootstrap: dict[str, Any] | None = document(null=True)
    execution_strategy: str | None = words(null=True)
    idle_timeout: str | None = words(null=True)
    config: dict[str, Any] = document()
    config_hash: str = words()
    spec: dict[str, Any] = document()
    input_datasets: list[str] | None = many_words(null=True)
    output_datasets: list[str] | None = many_words(null=True)
    update_strategy: str = words()
    unique_key: list[str] | None = many_words(null=True)
    scaling: dict[str, Any] | None = document(null=True)
    timeout_seconds: int | None = column(Integer(), null=True)
    heartbeat_timeout_seconds: int | None = column(Integer(), null=True)
    max_attempts: int = column(Integer(), default=3, server="3")
    created_at: datetime = now()
    updated_at: datetime = now()
    status: DefinitionStatus = column(DEFINITION_STATUS)
    last_heartbeat: datetime | None = moment()
    last_event_at: datetime | None = moment()
    next_run_at: datetime | None = moment()

    __table_args__ = (
        UniqueConstraint("dag_version_id", "name"),
        CheckConstraint("activation IN ('source', 'reactive')", name="activation"),
        CheckConstraint(r"runtime IN ('pool', 'dispatcher', 'lambda') OR runtime ~ '^ecs_[a-z0-9_]+$'", name="runtime"),
        CheckConstraint("(activation = 'source') = (source IS NOT NULL)", name="source"),
        CheckConstraint("activation = 'source' OR bootstrap IS NULL", name="bootstrap"),
        CheckConstraint("(activation = 'reactive') = (execution_strategy IS NOT NULL)", name="strategy_activation"),
        CheckConstraint("execution_strategy IN ('PerUpdate', 'PerPartition')", name="execution_strategy"),
        CheckConstraint("activation = 'reactive' OR idle_timeout IS NULL", name="idle_timeout"),
        CheckConstraint("update_strategy IN ('append', 'replace')", name="update_strategy"),
        CheckConstraint("update_strategy <> 'append' OR COALESCE(cardinality(unique_key), 0) > 0", name="unique_key"),
        CheckConstraint(
            "CASE activation WHEN 'source' THEN status <> 'Idle' ELSE status IN ('Idle', 'Running') END", name="status"
        ),
        CheckConstraint("timeout_seconds > 0 AND heartbeat_timeout_seconds > 0 AND max_attempts >= 1", name="limits"),
        Index("job_definitions_org", "org_id", "dag_name", "name"),
        Index("job_definitions_next_run", "next_run_at", postgresql_where=text("next_run_at IS NOT NULL")),
        Index("job_definitions_inputs", "input_datasets", postgresql_using="gin"),
    )


class Dataset(Row, table=True):
    """A published output: one name, one producer, readers by role."""

    __tablename__ = "datasets"

    id: UUID = uuid_key()
    org_id: UUID = org()
    name: str = words()
    producer_dag_name: str = words()
    producer_job_name: str = words()
    producer_output_index: int = column(Integer())
    storage: dict[str, Any] = document()
    read_roles: list[str] = many_words()
    created_at: datetime = now()
    updated_at: datetime = now()

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

    It was made for `dag_version_id`, and is filled before that serves. `ticket` is of the latest update.
    """

    __tablename__ = "dataset_versions"

    id: UUID = uuid_key()
    dataset_uuid: UUID = uuid("datasets.id", on_delete="CASCADE")
    created_at: datetime = now()
    storage_location: str = words()
    config_hash: str = words()
    schema_hash: str | None = words(null=True)
    range_start: int | None = column(BigInteger(), null=True)
    range_end: int | None = column(BigInteger(), null=True)
    dag_version_id: UUID | None = uuid("dag_versions.id", null=True, on_delete="SET NULL")
    columns: dict[str, Any] | None = document(null=True)
    files: list[dict[str, Any]] = column(JSONB(), default=list, server="'[]'")
    """Of a generation that is kept in files: which ones it is. Nothing else says so, least of all what lies there."""
    rows: int | None = column(BigInteger(), null=True)
    ticket: int = column(BigInteger(), default=0, server="0")
    updated_at: datetime | None = moment()

    __table_args__ = (
        Index("dataset_versions_made_for", "dag_version_id"),
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
    """Which version of each dataset a DAG version reads and serves."""

    __tablename__ = "dag_version_datasets"

    dag_version_id: UUID = uuid("dag_versions.id", on_delete="CASCADE", primary_key=True)
    dataset_uuid: UUID = uuid("datasets.id", on_delete="CASCADE", primary_key=True)
    dataset_version: UUID = uuid("dataset_versions.id")

    __table_args__ = (
        Index("dag_version_datasets_dataset", "dataset_uuid"),
        Index("dag_version_datasets_version", "dataset_version"),
    )


class DatasetPartition(Row, table=True):
    """The latest update of a partition of a generation (the whole is the partition '').

    `ticket` is set when its rows are, the rest with the completion of the task that made them: what they were made of
    (`inputs_hash`), and what they are (`digest`).
    """

    __tablename__ = "dataset_partitions"

    dataset_version: UUID = uuid("dataset_versions.id", on_delete="CASCADE", primary_key=True)
    partition_key: str = words(primary_key=True)
    ticket: int = column(BigInteger())
    recorded_ticket: int = column(BigInteger(), default=0, server="0")
    rows: int | None = column(BigInteger(), null=True)
    digest: str | None = words(null=True)
    inputs_hash: str | None = words(null=True)
    task_id: int | None = snowflake(null=True)
    updated_at: datetime = now()

    __table_args__ = (busy(fillfactor=70),)
