"""The row of a new job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    from aaiclick.store.connections import Connection


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


async def insert_job(connection: Connection, job: NewJob, tasks: int) -> int | None:
    """Insert a job of so many tasks; returns the id of the existing job if its idempotency key is used, else None."""
    inserted = await connection.fetchval(
        statement("insert_job"), job.id, job.org_id, job.name, job.timeout_seconds, tasks, job.idempotency_key,
        job.definition_id, job.dag_version_id, job.trigger, job.schedule_id,
    )  # fmt: skip
    if inserted is not None:
        return None
    return int(await connection.fetchval(statement("find_job_by_key"), job.org_id, job.name, job.idempotency_key))
