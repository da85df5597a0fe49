"""The tables, as SQLModel classes: one module per subject, all names here."""

from __future__ import annotations

from aaiclick.store.models import triggers as triggers
from aaiclick.store.models import walls as walls
from aaiclick.store.models.base import metadata
from aaiclick.store.models.catalog import (
    DagCurrentVersion,
    DagVersion,
    DagVersionDataset,
    Dataset,
    DatasetPartition,
    DatasetVersion,
    JobDefinition,
)
from aaiclick.store.models.records import (
    ColumnLineage,
    Dispatch,
    OperatorState,
    OutboxRow,
    TableRefcount,
    TableReference,
    TableSession,
    TaskInput,
)
from aaiclick.store.models.tasks import Task
from aaiclick.store.models.tenants import (
    ApiKey,
    AuditEntry,
    IdempotencyKey,
    Org,
    OrgRole,
    OrgRoleMembership,
    OrgSecret,
    Queue,
    QueueMinute,
    TaskType,
    UiSession,
    User,
)
from aaiclick.store.models.work import Dependency, Group, Job, TaskAddition, TaskAttempt
from aaiclick.store.models.workers import Worker

__all__ = [
    "ApiKey",
    "AuditEntry",
    "ColumnLineage",
    "DagCurrentVersion",
    "DagVersion",
    "DagVersionDataset",
    "Dataset",
    "DatasetPartition",
    "DatasetVersion",
    "Dependency",
    "Dispatch",
    "Group",
    "IdempotencyKey",
    "Job",
    "JobDefinition",
    "OperatorState",
    "Org",
    "OrgRole",
    "OrgRoleMembership",
    "OrgSecret",
    "OutboxRow",
    "Queue",
    "QueueMinute",
    "TableRefcount",
    "TableReference",
    "TableSession",
    "Task",
    "TaskAddition",
    "TaskAttempt",
    "TaskInput",
    "TaskType",
    "UiSession",
    "User",
    "Worker",
    "metadata",
]
