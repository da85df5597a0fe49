"""The words for states, as the rest of the world imports them."""

from __future__ import annotations

from aaiclick.store.words import JobStatus, TaskStatus, WorkerStatus
from aaiclick.store.workers import Worker

__all__ = ["JobStatus", "TaskStatus", "Worker", "WorkerStatus"]
