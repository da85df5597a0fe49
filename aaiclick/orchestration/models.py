"""The words for states, as the rest of the world imports them."""

from __future__ import annotations

from aaiclick.store.models import JobStatus, TaskStatus, Worker, WorkerStatus

__all__ = ["JobStatus", "TaskStatus", "Worker", "WorkerStatus"]
