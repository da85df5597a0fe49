"""Submit a job slice by slice in one transaction, for jobs that do not fit into memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterable, Mapping
from typing import TYPE_CHECKING

from aaiclick import failpoints
from aaiclick.store.engine.new_jobs import NewJob, insert_job
from aaiclick.store.engine.propagate import update_jobs
from aaiclick.store.engine.submission_plan import Plan
from aaiclick.store.engine.submit import AddedCounts, JobLimits, add_to_job, write_added_counts

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection


async def submit_slices(
    connection: Connection,
    job: NewJob,
    slices: AsyncIterable[tuple[Plan, Mapping[int, str]]],
    *,
    limits: JobLimits | None = None,
) -> int:
    """Insert a job and each slice (a plan, and names for errors); a slice may refer to earlier ones.

    Returns the job's id, or that of the existing job with its idempotency key; then no slice is read. Counters are
    written once, at the end: each new version of the job's row would make the foreign key check of later tasks slower.
    """
    async with failpoints.transaction(connection, "submit_slices"):
        if (existing_id := await insert_job(connection, job, 0)) is not None:
            return existing_id
        counts = AddedCounts()
        async for plan, names in slices:
            await add_to_job(connection, job.id, plan, names, limits=limits, counts=counts)
        await write_added_counts(connection, job.id, counts)
        if not counts.tasks:
            await update_jobs(connection, completed=Counter({job.id: 0}))
    return job.id
