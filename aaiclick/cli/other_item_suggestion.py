"""Remedy for the id of another kind of item: a task instead of its job, or a worker."""

from __future__ import annotations

import re
from contextlib import suppress

from aaiclick.cli.local_and_remote_operations import open_operations
from aaiclick.client.endpoints import SyncEndpoints
from aaiclick.errors import AaiclickError, NotFoundError

_MISSING = re.compile(r"There is no (?:job|task|worker) (\d{18,19})\.")


def suggest_other_item(message: str) -> str:
    """Command for the job, task or worker with the id that a message reports as missing; empty if there is none."""
    match = _MISSING.fullmatch(message)
    if match is None:
        return ""
    with suppress(AaiclickError, OSError), open_operations() as operations:
        return _describe_item(operations, int(match[1]))
    return ""


def _describe_item(operations: SyncEndpoints, item_id: int) -> str:
    with suppress(NotFoundError):
        operations.get_job(item_id)
        return f"{item_id} is a job: aaiclick jobs show {item_id}"
    with suppress(NotFoundError):
        task = operations.get_task(item_id)
        job = "" if task.job_id is None else f" of job {task.job_id}"
        return f"{item_id} is a task{job}: aaiclick tasks show {item_id}"
    if any(worker.id == item_id for worker in operations.list_workers()):
        return f"{item_id} is a worker: aaiclick workers ls"
    return ""
