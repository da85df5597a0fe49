"""The row of a new job, and its place below the task that submits it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick.errors import LeaseLost, LimitError
from aaiclick.store.engine.leases_and_outcomes import Lease
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.job_policy import DEFAULT_POLICY, JobPolicy
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection


@dataclass(frozen=True, slots=True)
class NewJob:
    id: int
    name: str
    org_id: UUID = DEFAULT_ORG_ID
    timeout_seconds: float | None = None
    idempotency_key: str | None = None
    definition_id: UUID | None = None
    dag_version_id: UUID | None = None
    trigger: str | None = None
    """What started it, as JSON text."""
    schedule_id: int | None = None
    tags: str | None = None
    """JSON text of an object of strings; the owner is one of them."""
    policy: JobPolicy = DEFAULT_POLICY
    pinned_version: str | None = None
    """Version of the code that must run its tasks."""
    parent: Lease | None = None
    """The attempt that submits it as a child."""


MAX_CHILD_DEPTH = 50
"""Levels of child jobs; more are a job that submits itself."""


async def insert_job(connection: Connection, job: NewJob, tasks: int) -> int | None:
    """Insert a job of so many tasks; returns the id of the existing job if its idempotency key is used, else None."""
    parent_job_id, parent_task_id = (None, None) if job.parent is None else await _lock_parent(connection, job.parent)
    policy = job.policy.to_json() if job.policy != DEFAULT_POLICY else None
    inserted = await connection.fetchval(
        statement("insert_job"), job.id, job.org_id, job.name, job.timeout_seconds, tasks, job.idempotency_key,
        job.definition_id, job.dag_version_id, job.trigger, job.schedule_id, job.tags,
        job.policy.concurrency, parent_job_id, parent_task_id, job.policy.deadline_seconds, policy,
    )  # fmt: skip
    if inserted is not None:
        return None
    return int(await connection.fetchval(statement("find_job_by_key"), job.org_id, job.name, job.idempotency_key))


async def _lock_parent(connection: Connection, lease: Lease) -> tuple[int | None, int]:
    """Lock the attempt that submits a child; returns its job and task.

    A cancellation of the parent comes before, and is refused here, or after, and cancels the child too.
    """
    row = await connection.fetchrow(statement("lock_lease"), lease.task_id, lease.attempt, lease.token)
    if row is None or row["cancelled"]:
        raise LeaseLost(
            f"Attempt {lease.attempt} of task {lease.task_id} has lost its lease or is cancelled: no job submitted.",
            remedy="Stop: another attempt runs, or the job is being cancelled.",
        )
    depth = await connection.fetchval(statement("count_ancestors"), row["job_id"], MAX_CHILD_DEPTH)
    if (depth or 0) >= MAX_CHILD_DEPTH:
        raise LimitError(
            f"Job {row['job_id']} is a child {MAX_CHILD_DEPTH} levels deep.",
            remedy="A job that submits itself needs an end; add tasks to the running job instead.",
        )
    await connection.execute(statement("release_child_keys"), [lease.task_id], False)
    return row["job_id"], lease.task_id
