"""Pause and resume orgs, queues, types and jobs; set limits of queues. Running tasks continue during a pause.

Claims skip a paused queue or org as a whole. Tasks of a paused type or job are set to HELD by the claim that finds
them, so that later claims do not scan them; a resume releases them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick import failpoints
from aaiclick.errors import NotFoundError
from aaiclick.store.engine.claims import notify_ready
from aaiclick.store.engine.concurrency_keys import admit_held_tasks
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.statements import statement
from aaiclick.store.tenancy.orgs import ClaimLimits

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection


async def set_queue(connection: Connection, name: str, limits: ClaimLimits, org_id: UUID = DEFAULT_ORG_ID) -> None:
    """Set weight and limits of a queue; limits that are None are removed."""
    async with failpoints.transaction(connection, "set_queue"):
        await connection.execute(
            statement("set_queue"),
            org_id, name, limits.weight, limits.max_running, limits.rate_per_second, limits.burst,
        )  # fmt: skip
        await notify_ready(connection, {name})


async def pause_queue(connection: Connection, name: str, org_id: UUID = DEFAULT_ORG_ID) -> None:
    async with failpoints.statement("pause_queue"):
        await connection.execute(statement("pause_queue"), org_id, name)


async def resume_queue(connection: Connection, name: str, org_id: UUID = DEFAULT_ORG_ID) -> None:
    async with failpoints.transaction(connection, "resume_queue"):
        await connection.execute(statement("resume_queue"), org_id, name)
        await notify_ready(connection, {name})


async def pause_org(connection: Connection, org_id: UUID) -> None:
    async with failpoints.statement("pause_org"):
        paused_id = await connection.fetchval(statement("pause_org"), org_id)
    if paused_id is None:
        raise NotFoundError(f"There is no org {org_id}.", remedy="'aaiclick org ls' lists them.")


async def resume_org(connection: Connection, org_id: UUID) -> None:
    async with failpoints.transaction(connection, "resume_org"):
        if await connection.fetchval(statement("resume_org"), org_id) is None:
            raise NotFoundError(f"There is no org {org_id}.", remedy="'aaiclick org ls' lists them.")
        await notify_ready(connection, {""})


async def pause_type(connection: Connection, name: str, org_id: UUID = DEFAULT_ORG_ID) -> None:
    async with failpoints.statement("pause_type"):
        await connection.execute(statement("pause_type"), org_id, name)


async def resume_type(connection: Connection, name: str, org_id: UUID = DEFAULT_ORG_ID) -> int:
    """Resume a type; returns how many held tasks were released."""
    async with failpoints.transaction(connection, "resume_type"):
        await connection.execute(statement("resume_type"), org_id, name)
        return await _release_held_tasks(connection, org_id, name, None)


async def pause_job(connection: Connection, job_id: int) -> None:
    async with failpoints.statement("pause_job"):
        paused_id = await connection.fetchval(statement("pause_job"), job_id)
    if paused_id is None:
        raise NotFoundError(f"There is no unfinished job {job_id}.", remedy="'aaiclick jobs ls' lists the jobs.")


async def resume_job(connection: Connection, job_id: int) -> int:
    """Resume a job; returns how many held tasks were released."""
    async with failpoints.transaction(connection, "resume_job"):
        org_id = await connection.fetchval(statement("resume_job"), job_id)
        if org_id is None:
            raise NotFoundError(f"There is no job {job_id}.", remedy="'aaiclick jobs ls' lists the jobs.")
        return await _release_held_tasks(connection, org_id, None, job_id)


async def _release_held_tasks(connection: Connection, org_id: UUID, task_type: str | None, job_id: int | None) -> int:
    rows = await connection.fetch(statement("release_held_tasks"), org_id, task_type, job_id)
    ready = {row["queue"] for row in rows if row["readiness"] == "READY"}
    ready |= await admit_held_tasks(connection, ((row["org_id"], row["concurrency_key"]) for row in rows))
    await notify_ready(connection, ready)
    return len(rows)
