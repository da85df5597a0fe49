"""Jobs: tasks, groups and dependencies, durable in PostgreSQL, run by workers.

from aaiclick.orchestration import OrchContext, create_job, create_task

extract, load = create_task("myapp.extract"), create_task("myapp.load")
extract >> load
job = await create_job("nightly", load)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from aaiclick.orchestration.context import Context, OrchContext, get_current_context, get_orch_context_session
from aaiclick.orchestration.decorators import job, task
from aaiclick.orchestration.events import emit_event
from aaiclick.orchestration.factories import (
    add_task_to_job,
    cancel_job,
    create_job,
    create_task,
    deregister_worker,
    enqueue,
    enqueue_many,
    get_job,
    get_task,
    list_jobs,
    list_workers,
    register_worker,
    retry_failed_tasks,
    set_retry_policy,
    worker_heartbeat,
)
from aaiclick.orchestration.graph import Group, Job, Task
from aaiclick.orchestration.handlers import handler
from aaiclick.orchestration.health import Health, health_check
from aaiclick.orchestration.models import JobStatus, TaskStatus, Worker, WorkerStatus
from aaiclick.orchestration.retry import PermanentError, RetryPolicy
from aaiclick.orchestration.secrets import get_secret
from aaiclick.orchestration.trial import run_job_test

if TYPE_CHECKING:
    from aaiclick.store.models import Dependency

__all__ = [
    "Context",
    "Dependency",
    "Group",
    "Health",
    "Job",
    "JobStatus",
    "OrchContext",
    "PermanentError",
    "RetryPolicy",
    "Task",
    "TaskStatus",
    "Worker",
    "WorkerStatus",
    "add_task_to_job",
    "cancel_job",
    "create_job",
    "create_task",
    "deregister_worker",
    "emit_event",
    "enqueue",
    "enqueue_many",
    "get_current_context",
    "get_job",
    "get_orch_context_session",
    "get_secret",
    "get_task",
    "handler",
    "health_check",
    "job",
    "list_jobs",
    "list_workers",
    "register_worker",
    "retry_failed_tasks",
    "run_job_test",
    "set_retry_policy",
    "task",
    "worker_heartbeat",
]


def __getattr__(name: str) -> Any:
    if name != "Dependency":  # a mapped class: SQLAlchemy is imported with it, and only then
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("aaiclick.store.models").Dependency
