"""Native PostgreSQL enum types of `store.enums`."""

from __future__ import annotations

from aaiclick.store.enums import (
    AttemptOutcome,
    DefinitionStatus,
    JobStatus,
    NodeType,
    OutboxStatus,
    ReferenceOwner,
    TaskReadiness,
    TaskStatus,
    TriggerRule,
    WorkerStatus,
)
from aaiclick.store.models.base import enum_type

JOB_STATUS = enum_type(JobStatus, "job_status")
TASK_STATUS = enum_type(TaskStatus, "task_status")
TASK_READINESS = enum_type(TaskReadiness, "task_readiness")
TRIGGER_RULE = enum_type(TriggerRule, "trigger_rule")
WORKER_STATUS = enum_type(WorkerStatus, "worker_status")
ATTEMPT_OUTCOME = enum_type(AttemptOutcome, "attempt_outcome")
NODE_TYPE = enum_type(NodeType, "node_type")
OUTBOX_STATUS = enum_type(OutboxStatus, "outbox_status")
DEFINITION_STATUS = enum_type(DefinitionStatus, "definition_status")
REFERENCE_OWNER = enum_type(ReferenceOwner, "reference_owner")
