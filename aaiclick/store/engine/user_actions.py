"""Operations of users: cancel, retry, redrive, clear, pause, resume, set retry policies."""

from __future__ import annotations

from aaiclick.store.engine.cancel import cancel_job, cancel_tasks
from aaiclick.store.engine.pause import (
    pause_job,
    pause_org,
    pause_queue,
    pause_type,
    resume_job,
    resume_org,
    resume_queue,
    resume_type,
    set_queue,
)
from aaiclick.store.engine.retry_and_redrive import (
    clear_tasks,
    discard_dead_letters,
    list_cleared_tasks,
    redrive_dead_letters,
    retry_failed_tasks,
)
from aaiclick.store.engine.task_types import set_retry_policy

__all__ = [
    "cancel_job",
    "cancel_tasks",
    "clear_tasks",
    "discard_dead_letters",
    "list_cleared_tasks",
    "pause_job",
    "pause_org",
    "pause_queue",
    "pause_type",
    "redrive_dead_letters",
    "resume_job",
    "resume_org",
    "resume_queue",
    "resume_type",
    "retry_failed_tasks",
    "set_queue",
    "set_retry_policy",
]
