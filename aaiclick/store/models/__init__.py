"""SQLModel classes of the tables, one module per subject; all are exported here.

- `base`: metadata of all models, and helpers that declare columns
- `enum_types`: PostgreSQL enum types
- `tenants`: organisations, queues, users, roles, keys, secrets, sessions, audit log
- `jobs`: jobs, groups, dependencies, additions, and attempts that did not succeed
- `schedules`: schedules of jobs and queue items
- `job_functions`: `@job` functions that workers have registered
- `tasks`: the table of tasks
- `rate_limits`: claims of the last period per rate key
- `result_cache`: cached results of tasks
- `waits`: waits of tasks, the events that end them, and approvals
- `incidents`: incidents and their occurrences
- `notifications`: channels, rules and messages about incidents
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
    DatasetFreshness,
    DatasetPartition,
    DatasetVersion,
    JobDefinition,
)
from aaiclick.store.models.incidents import Incident, IncidentOccurrence
from aaiclick.store.models.job_functions import JobFunctionRow
from aaiclick.store.models.jobs import Dependency, Group, Job, TaskAddition, TaskAttempt
from aaiclick.store.models.notifications import Notification, NotificationChannel, NotificationRule
from aaiclick.store.models.rate_limits import RateLimit
from aaiclick.store.models.result_cache import CachedResult
from aaiclick.store.models.schedules import Schedule
from aaiclick.store.models.task_effects import (
    ColumnLineage,
    DataTestResultRow,
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
from aaiclick.store.models.waits import ApprovalLink, ApprovalRow, WaitRow, WorkflowEvent
from aaiclick.store.models.workers import Worker

__all__ = [
    "ApiKey",
    "ApprovalLink",
    "ApprovalRow",
    "AuditEntry",
    "CachedResult",
    "ColumnLineage",
    "DagCurrentVersion",
    "DagVersion",
    "DagVersionDataset",
    "DataTestResultRow",
    "Dataset",
    "DatasetFreshness",
    "DatasetPartition",
    "DatasetVersion",
    "Dependency",
    "Dispatch",
    "Group",
    "IdempotencyKey",
    "Incident",
    "IncidentOccurrence",
    "Job",
    "JobDefinition",
    "JobFunctionRow",
    "Notification",
    "NotificationChannel",
    "NotificationRule",
    "OperatorState",
    "Org",
    "OrgRole",
    "OrgRoleMembership",
    "OrgSecret",
    "OutboxRow",
    "Queue",
    "QueueMinute",
    "RateLimit",
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
