"""The tables, as SQLModel classes: one module per subject, all names here."""

from __future__ import annotations

from aaiclick.store.models import triggers as triggers
from aaiclick.store.models import walls as walls
from aaiclick.store.models.base import DEFAULT_ORG_ID, DEFAULT_ORG_SLUG, DEFAULT_QUEUE, metadata
from aaiclick.store.models.catalog import (
    DagCurrentVersion,
    DagVersion,
    DagVersionDataset,
    Dataset,
    DatasetVersion,
    JobDefinition,
)
from aaiclick.store.models.records import (
    ColumnLineage,
    OperatorState,
    OutboxRow,
    TableRefcount,
    TableReference,
    TableSession,
    TaskInput,
)
from aaiclick.store.models.status import (
    AttemptOutcome,
    DefinitionStatus,
    JobStatus,
    NodeType,
    OutboxStatus,
    ReferenceOwner,
    TaskReadiness,
    TaskStatus,
    WorkerStatus,
)
from aaiclick.store.models.tasks import Task
from aaiclick.store.models.tenants import (
    ApiKey,
    AuditEntry,
    IdempotencyKey,
    Org,
    OrgRole,
    OrgRoleMembership,
    Queue,
    TaskType,
    UiSession,
    User,
)
from aaiclick.store.models.work import Dependency, Group, Job, TaskAddition, TaskAttempt
from aaiclick.store.models.workers import Worker

__all__ = [
    "DEFAULT_ORG_ID",
    "DEFAULT_ORG_SLUG",
    "DEFAULT_QUEUE",
    "ApiKey",
    "AttemptOutcome",
    "AuditEntry",
    "ColumnLineage",
    "DagCurrentVersion",
    "DagVersion",
    "DagVersionDataset",
    "Dataset",
    "DatasetVersion",
    "DefinitionStatus",
    "Dependency",
    "Group",
    "IdempotencyKey",
    "Job",
    "JobDefinition",
    "JobStatus",
    "NodeType",
    "OperatorState",
    "Org",
    "OrgRole",
    "OrgRoleMembership",
    "OutboxRow",
    "OutboxStatus",
    "Queue",
    "ReferenceOwner",
    "TableRefcount",
    "TableReference",
    "TableSession",
    "Task",
    "TaskAddition",
    "TaskAttempt",
    "TaskInput",
    "TaskReadiness",
    "TaskStatus",
    "TaskType",
    "UiSession",
    "User",
    "Worker",
    "WorkerStatus",
    "metadata",
]
