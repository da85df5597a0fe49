"""Operations on jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aaiclick.api.field_types import ChangedIdsResponse
from aaiclick.api.jobs import ReleasedTablesResponse
from aaiclick.api.tasks import CancelResponse
from aaiclick.errors import NotFoundError
from aaiclick.operations.actor import Actor, Permission
from aaiclick.operations.operation import operation, write_audit
from aaiclick.store.engine import cancel, pause, queries, retry
from aaiclick.store.tables.table_references import release_jobs

if TYPE_CHECKING:
    from collections.abc import Iterable

    import asyncpg

    from aaiclick.store.connections import Connection

MAX_LISTED_IDS = 1_000


@operation(Permission.WRITER)
async def cancel_job(connection: Connection, actor: Actor, job_id: int) -> CancelResponse:
    """Cancel a job: waiting tasks end at once, running ones are asked to stop."""
    job = await find_job(connection, actor, job_id)
    outcome = await cancel.cancel_job(connection, job_id)
    await write_audit(connection, actor, "job.cancel", job_id, org_id=job["org_id"])
    return CancelResponse(outcome=outcome)


@operation(Permission.WRITER)
async def retry_job(
    connection: Connection, actor: Actor, job_id: int, *, cancelled: bool = False
) -> ChangedIdsResponse:
    """Start failed tasks again, and tasks that were cancelled because of them; with `cancelled` all cancelled ones."""
    job = await find_job(connection, actor, job_id)
    task_ids = await retry.retry_failed_tasks(connection, job_id, cancelled=cancelled)
    await write_audit(connection, actor, "job.retry", job_id, {"tasks": len(task_ids)}, org_id=job["org_id"])
    return changed_ids(task_ids)


@operation(Permission.WRITER)
async def release_job(connection: Connection, actor: Actor, job_id: int) -> ReleasedTablesResponse:
    """Release the results of a job that has ended; tables that nothing else refers to are dropped."""
    job = await find_job(connection, actor, job_id)
    tables = await release_jobs(connection, [job_id])
    await write_audit(connection, actor, "job.release", job_id, {"tables": tables}, org_id=job["org_id"])
    return ReleasedTablesResponse(tables=tables)


@operation(Permission.WRITER)
async def pause_job(connection: Connection, actor: Actor, job_id: int) -> None:
    """Pause a job: running tasks continue, no task starts."""
    job = await find_job(connection, actor, job_id)
    await pause.pause_job(connection, job_id)
    await write_audit(connection, actor, "job.pause", job_id, org_id=job["org_id"])


@operation(Permission.WRITER)
async def resume_job(connection: Connection, actor: Actor, job_id: int) -> None:
    """Resume a paused job."""
    job = await find_job(connection, actor, job_id)
    await pause.resume_job(connection, job_id)
    await write_audit(connection, actor, "job.resume", job_id, org_id=job["org_id"])


async def find_job(connection: Connection, actor: Actor, job_id: int) -> asyncpg.Record:
    """A job that the actor sees; a job of another org does not exist."""
    row = await queries.get_job(connection, job_id)
    if row is None or not actor.sees(row["org_id"]):
        raise NotFoundError(f"There is no job {job_id}.", remedy="List the jobs: 'aaiclick jobs ls', or GET /v1/jobs.")
    return row


def changed_ids(ids: Iterable[int]) -> ChangedIdsResponse:
    """The number of changed items and the first thousand ids."""
    ordered = sorted(ids)
    return ChangedIdsResponse(count=len(ordered), ids=ordered[:MAX_LISTED_IDS])
