"""The states of things: each a native PostgreSQL enum, so a wrong word never reaches a row."""

from __future__ import annotations

from aaiclick.store.models.base import enum
from aaiclick.store.words import (
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

JOB_STATUS = enum(JobStatus, "job_status")
TASK_STATUS = enum(TaskStatus, "task_status")
TASK_READINESS = enum(TaskReadiness, "task_readiness")
WORKER_STATUS = enum(WorkerStatus, "worker_status")
ATTEMPT_OUTCOME = enum(AttemptOutcome, "attempt_outcome")
NODE_TYPE = enum(NodeType, "node_type")
OUTBOX_STATUS = enum(OutboxStatus, "outbox_status")
DEFINITION_STATUS = enum(DefinitionStatus, "definition_status")
REFERENCE_OWNER = enum(ReferenceOwner, "reference_owner")
