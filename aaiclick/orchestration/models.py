"""Jobs, tasks, groups, dependencies, workers and their states.

`Job`, `Task`, `Group` and `Worker` are plain classes; in a SQLAlchemy query each represents its table.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from aaiclick.orchestration.graph import Group, Job, Task
from aaiclick.store.engine.workers import Worker
from aaiclick.store.enums import JobStatus, TaskStatus, WorkerStatus

if TYPE_CHECKING:
    from aaiclick.store.models import Dependency

__all__ = ["Dependency", "Group", "Job", "JobStatus", "Task", "TaskStatus", "Worker", "WorkerStatus"]


def __getattr__(name: str) -> Any:
    if name != "Dependency":  # a mapped class: SQLAlchemy is imported with it, and only then
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("aaiclick.store.models").Dependency
