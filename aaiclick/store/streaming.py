"""Submitting a job too large to hold: slice after slice, in one transaction; all of it is there at its end, or none."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterable, Mapping
from typing import TYPE_CHECKING

from aaiclick import faults
from aaiclick.store.plan import Plan
from aaiclick.store.propagate import settle
from aaiclick.store.statements import statement
from aaiclick.store.submit import Limits, NewJob, add_to_job

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection


async def submit_slices(
    connection: Connection,
    job: NewJob,
    slices: AsyncIterable[tuple[Plan, Mapping[int, str]]],
    *,
    limits: Limits | None = None,
) -> int:
    """Insert a job and each slice (a plan, and names for errors) as it comes; a slice may refer to earlier ones.

    Returns the job's id, or that of the job that has its idempotency key: then no slice is looked at.
    """
    async with faults.transaction(connection, "submit_slices"):
        inserted = await connection.fetchval(
            statement("insert_job"), job.id, job.org_id, job.name, job.timeout_seconds, 0, job.idempotency_key,
            job.definition_id, job.dag_version_id, job.trigger,
        )  # fmt: skip
        if inserted is None:
            return int(await connection.fetchval(statement("job_by_key"), job.org_id, job.name, job.idempotency_key))
        empty = True
        async for plan, names in slices:
            await add_to_job(connection, job.id, plan, names, limits=limits)
            empty = empty and not plan.tasks
        if empty:
            await settle(connection, completed=Counter({job.id: 0}))
    return job.id
