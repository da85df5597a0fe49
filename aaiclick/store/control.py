"""What people do to work: cancel, retry, redrive, clear, pause, resume, say when to try again."""

from __future__ import annotations

from aaiclick.store.cancel import cancel_job, cancel_tasks
from aaiclick.store.pauses import (
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
from aaiclick.store.revival import clear, discard, redrive, retry_failed_tasks
from aaiclick.store.types import set_retry_policy

__all__ = [
    "cancel_job",
    "cancel_tasks",
    "clear",
    "discard",
    "pause_job",
    "pause_org",
    "pause_queue",
    "pause_type",
    "redrive",
    "resume_job",
    "resume_org",
    "resume_queue",
    "resume_type",
    "retry_failed_tasks",
    "set_queue",
    "set_retry_policy",
]
