"""Functions behind the methods of Job: wait for a job, read its result and logs, cancel it.

They use the current OrchContext or a temporary one, so they work in scripts, notebooks and tasks.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

from aaiclick.api.jobs import GroupProgress
from aaiclick.errors import JobFailedError, NotFoundError
from aaiclick.orchestration.context import current_or_new_context
from aaiclick.orchestration.graph import Job
from aaiclick.orchestration.retry_policy import PermanentError
from aaiclick.orchestration.task_context import SuspendTask, TaskScope, current_scope, refuse_repeated
from aaiclick.store.engine import queries, user_actions
from aaiclick.store.engine.explain_task import explain_task
from aaiclick.store.engine.leases_and_outcomes import MAX_WAIT_SECONDS, Wait
from aaiclick.store.enums import Cancellation, JobStatus
from aaiclick.store.postgres_connections import OUTAGE_ERRORS

LOGGER = logging.getLogger(__name__)

POLL_SECONDS = 0.05
MAX_POLL_SECONDS = 1.0
WARN_SECONDS = 3.0
"""Wait until a warning that no worker runs; workers that are just being started need a moment."""

MAX_LOGS = 1_000
PROGRESS_FIELDS = ("total", "completed", "running", "failed", "cancelled", "rows", "seconds")


async def refresh_job(job: Job) -> None:
    """Update the fields of a job from the database."""
    async with current_or_new_context() as context, context.connection() as connection:
        row = await queries.get_job(connection, job.id)
    if row is None:
        raise NotFoundError(f"There is no job {job.id}.", remedy="'aaiclick jobs ls' lists the jobs there are.")
    current = Job.from_row(row)
    for field in fields(job):
        setattr(job, field.name, getattr(current, field.name))


async def wait_for_job(job: Job, timeout_seconds: float | None) -> None:
    """Wait until a job has ended; raises TimeoutError. A task that waits for its child is suspended."""
    scope = current_scope()
    if scope is not None and job.parent_task_id == scope.lease.task_id:
        await refresh_job(job)
        if job.completed_at is None:
            raise _suspend(scope, job, timeout_seconds)
        return
    async with current_or_new_context():
        limit = asyncio.timeout(timeout_seconds)
        try:
            async with limit:
                await _poll(job)
        except TimeoutError:
            if not limit.expired():
                raise
            raise TimeoutError(
                f"Job {job.id} ({job.name}) is {job.status.value} after {timeout_seconds:g} s.{await _explain(job)}"
            ) from None


async def _poll(job: Job) -> None:
    """Poll a job until it has ended; a warning is logged if no worker runs that could take it."""
    pause, started, has_warned = POLL_SECONDS, time.monotonic(), False
    await refresh_job(job)
    while job.completed_at is None:
        await asyncio.sleep(pause)
        pause = min(pause * 1.2, MAX_POLL_SECONDS)
        await refresh_job(job)
        if not has_warned and time.monotonic() - started > WARN_SECONDS:
            started = time.monotonic()
            if reason := await _explain(job, only="no_worker"):
                has_warned = True
                LOGGER.warning("Job %d (%s) is %s.%s", job.id, job.name, job.status.value, reason)


async def _explain(job: Job, only: str = "") -> str:
    """Why the first runnable task of a job waits; empty if one runs. `only` is the code of a reason."""
    with contextlib.suppress(*OUTAGE_ERRORS):
        async with current_or_new_context() as context, context.connection() as connection:
            task = await queries.find_next_task(connection, job.id)
            if task is None:
                return ""
            reasons = [reason for reason in await explain_task(connection, task["id"]) if only in ("", reason.code)]
            return f" {task['type']}: {'; '.join(reason.text for reason in reasons)}." if reasons else ""
    return ""


def _suspend(scope: TaskScope, job: Job, timeout_seconds: float | None) -> BaseException:
    """What ends the attempt: a wait for the child, or the reason why it cannot wait (again)."""
    awaited = (scope.wait_state or {}).get("job")
    if awaited is not None and int(awaited["id"]) not in scope.child_ids:
        return PermanentError(
            f"The task waited for its child job {awaited['id']} and was called again, but has submitted others.",
            remedy="A task that awaits a child is called from its start: submit the same jobs with the same arguments, "
            "or return the job instead of awaiting it.",
        )
    if timeout_seconds is not None and scope.wait_state is not None and awaited is None:
        return TimeoutError(f"Job {job.id} has not ended within {timeout_seconds:g} s.")
    return SuspendTask(Wait("job", MAX_WAIT_SECONDS if timeout_seconds is None else timeout_seconds, job_id=job.id))


async def load_result(job: Job, annotation: object) -> Any:
    """Result of a job that has ended: that of its final task, or a list if it has several."""
    if job.status is not JobStatus.COMPLETED:
        raise JobFailedError(
            f"Job {job.id} ({job.name}) is {job.status.value}: {job.error or 'it was cancelled.'}",
            remedy=f"Its output: aaiclick logs {job.id}",
        )
    async with current_or_new_context() as context:
        async with context.connection() as connection:
            rows = await queries.load_job_results(connection, job.id)
        values = [
            await _read_result(row, _find_annotation(row["name"]) if annotation is None else annotation) for row in rows
        ]
    return None if not values else values[0] if len(values) == 1 else values


def _find_annotation(entrypoint: str) -> Any:
    """Return annotation of a function, if it restores values and this process has imported its module; else None."""
    from aaiclick.data.io.typed_values import find_adapter, return_annotation_of  # slow import

    module, _, name = entrypoint.rpartition(".")
    function = getattr(sys.modules.get(module), name, None)
    annotation = return_annotation_of(getattr(function, "function", function)) if callable(function) else None
    return None if find_adapter(annotation) is None else annotation


async def _read_result(row: Any, annotation: Any) -> Any:
    # slow imports, only needed for results
    from aaiclick.data import DataContext, is_reference, open_reference
    from aaiclick.data.io.argument_conversion import convert_argument
    from aaiclick.data.io.literal_result_codec import EncodedLiteral
    from aaiclick.data.io.typed_values import restore_value
    from aaiclick.orchestration.worker.argument_binding import map_leaves

    value: Any = json.loads(row["result"])
    if row["literal"] is not None:
        value = EncodedLiteral(value["table_id"], row["literal"])
        if annotation is None and value.is_plain:
            return value.plain_value()
    async with DataContext():
        value = await map_leaves(value, is_reference, open_reference)
        value = await convert_argument(value, list if annotation is None else annotation)
    return value if annotation is None else restore_value(value, annotation, f"The result of {row['name']}")


async def read_logs(job: Job) -> str:
    """Logs of the tasks of a job, each after a line with its name; those on other machines are left out."""
    async with current_or_new_context() as context, context.connection() as connection:
        rows = await queries.list_tasks_of_job(connection, job.org_id, job.id, limit=MAX_LOGS)
    paths = [(f"{row['type']} (task {row['id']})", Path(row["log_path"])) for row in rows if row["log_path"]]
    return await asyncio.to_thread(_read_files, paths)


def _read_files(paths: list[tuple[str, Path]]) -> str:
    texts = ((name, path.read_text(errors="replace")) for name, path in paths if path.is_file())
    return "\n".join(f"--- {name}\n{text}" for name, text in texts)


async def load_progress(job: Job) -> list[GroupProgress]:
    """Progress of the groups of a job."""
    async with current_or_new_context() as context, context.connection() as connection:
        rows = await queries.load_job_progress(connection, job.id)
    return [GroupProgress(**{"group": row["name"], **{name: row[name] for name in PROGRESS_FIELDS}}) for row in rows]


async def cancel(job: Job) -> bool:
    """Cancel a job; False if it had ended before."""
    refuse_repeated(f"cancel job {job.id}")
    async with current_or_new_context() as context, context.connection() as connection:
        outcome = await user_actions.cancel_job(connection, job.id)
    await refresh_job(job)
    return outcome is not Cancellation.OVER
