"""SQLModel classes of the tables, one module per subject; all are exported here.

- `base`: metadata of all models, and helpers that declare columns
- `enum_types`: PostgreSQL enum types
- `tenants`: organisations, queues, users, roles, keys, secrets, sessions, audit log
- `jobs`: jobs, groups, dependencies, additions, and attempts that did not succeed
- `schedules`: schedules of jobs and queue items
- `tasks`: the table of tasks
- `waits`: waits of tasks, and the events that end them
- `workers`: worker processes and leadership
- `task_effects`: effects of tasks: events, inputs, lineage, state, table references; metrics
- `catalog`: DAG versions, definitions and datasets
- `triggers`: triggers and functions
- `row_level_security`: policies of row-level security
"""

from __future__ import annotations

from aaiclick.store.models import row_level_security as row_level_security
from aaiclick.store.models import triggers as triggers
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
from aaiclick.store.models.jobs import Dependency, Group, Job, TaskAddition, TaskAttempt
from aaiclick.store.models.schedules import Schedule
from aaiclick.store.models.task_effects import (
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
from aaiclick.store.models.waits import WaitRow, WorkflowEvent
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
    "Schedule",
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
    "WaitRow",
    "Worker",
    "WorkflowEvent",
    "metadata",
]
