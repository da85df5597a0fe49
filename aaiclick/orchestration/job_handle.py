"""Functions behind the methods of Job: wait for a job, read its result and logs, cancel it.

They use the current OrchContext or a temporary one, so they work in scripts, notebooks and tasks.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from aaiclick.errors import JobFailedError, NotFoundError
from aaiclick.orchestration.context import current_or_new_context
from aaiclick.orchestration.graph import Job
from aaiclick.store.engine import control, queries
from aaiclick.store.enums import Cancellation, JobStatus

POLL_SECONDS = 0.05
MAX_POLL_SECONDS = 1.0
MAX_RESULTS = 1_000
MAX_LOGS = 1_000


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
    """Wait until a job has ended; raises TimeoutError."""
    pause = POLL_SECONDS
    async with asyncio.timeout(timeout_seconds), current_or_new_context():
        await refresh_job(job)
        while job.completed_at is None:
            await asyncio.sleep(pause)
            pause = min(pause * 1.2, MAX_POLL_SECONDS)
            await refresh_job(job)


async def load_result(job: Job, annotation: object) -> Any:
    """Result of a job that has ended: that of its final task, or a list if it has several."""
    if job.status is not JobStatus.COMPLETED:
        raise JobFailedError(
            f"Job {job.id} ({job.name}) is {job.status.value}: {job.error or 'it was cancelled.'}",
            remedy="Its output is in `await job.logs()`.",
        )
    async with current_or_new_context() as context:
        async with context.connection() as connection:
            rows = await queries.load_job_results(connection, job.id, MAX_RESULTS)
        values = [await _read_result(row, annotation) for row in rows]
    return None if not values else values[0] if len(values) == 1 else values


async def _read_result(row: Any, annotation: Any) -> Any:
    # slow imports, only needed for results
    from aaiclick.data import DataContext, is_reference, open_reference
    from aaiclick.data.io.annotations import convert_argument
    from aaiclick.data.io.literal_codec import EncodedLiteral
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


async def cancel(job: Job) -> bool:
    """Cancel a job; False if it had ended before."""
    async with current_or_new_context() as context, context.connection() as connection:
        outcome = await control.cancel_job(connection, job.id)
    await refresh_job(job)
    return outcome is not Cancellation.OVER
