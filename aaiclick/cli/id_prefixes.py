"""Ids of jobs, tasks and workers by their first digits, if only one of the newest begins with them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Protocol

from aaiclick.cli.remote import PAGE_SIZE
from aaiclick.client.endpoints import SyncEndpoints
from aaiclick.errors import RequestError

FULL_ID = 10**15
"""Ids are larger: they contain the time in milliseconds since 2024, times 2²²."""
MAX_SEARCHED = 5_000
MAX_SHOWN = 5


class Identified(Protocol):
    @property
    def id(self) -> int: ...


def find_job_id(operations: SyncEndpoints, job_id: int) -> int:
    """The id of a job by its first digits; unchanged if it is complete, or if no job has it."""
    return job_id if job_id >= FULL_ID else _find_id("jobs", job_id, operations.list_jobs(limit=PAGE_SIZE))


def find_task_id(operations: SyncEndpoints, task_id: int) -> int:
    """The id of a task by its first digits."""
    return task_id if task_id >= FULL_ID else _find_id("tasks", task_id, operations.list_tasks(limit=PAGE_SIZE))


def find_worker_id(operations: SyncEndpoints, worker_id: int) -> int:
    """The id of a worker by its first digits."""
    return worker_id if worker_id >= FULL_ID else _find_id("workers", worker_id, operations.list_workers())


def _find_id(name: str, prefix: int, listing: Iterable[Identified]) -> int:
    matches = [item.id for item in islice(listing, MAX_SEARCHED) if str(item.id).startswith(str(prefix))]
    if len(matches) > 1:
        shown = ", ".join(map(str, matches[:MAX_SHOWN])) + (", …" if len(matches) > MAX_SHOWN else "")
        raise RequestError(f"{len(matches)} {name} have ids that begin with {prefix}: {shown}.", remedy="Add digits.")
    return matches[0] if matches else prefix
