"""Pause and resume, and the limits of queues. A paused thing keeps what runs and starts nothing new.

A queue or an org is skipped by claims as a whole. Tasks of a paused type or job stand among others: a claim that meets
one sets it aside (HELD), so they are in nobody's way, and resuming lets go of all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick import faults
from aaiclick.errors import NotFoundError
from aaiclick.store.claims import notify_ready
from aaiclick.store.orgs import Limits
from aaiclick.store.slots import admit
from aaiclick.store.statements import statement
from aaiclick.store.words import DEFAULT_ORG_ID

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection


async def set_queue(connection: Connection, name: str, limits: Limits, org_id: UUID = DEFAULT_ORG_ID) -> None:
    """Give a queue its share and its limits; those that `limits` does not name are lifted."""
    async with faults.transaction(connection, "set_queue"):
        await connection.execute(
            statement("set_queue"),
            org_id, name, limits.weight, limits.max_running, limits.rate_per_second, limits.burst,
        )  # fmt: skip
        await notify_ready(connection, {name})


async def pause_queue(connection: Connection, name: str, org_id: UUID = DEFAULT_ORG_ID) -> None:
    async with faults.statement("pause_queue"):
        await connection.execute(statement("pause_queue"), org_id, name)


async def resume_queue(connection: Connection, name: str, org_id: UUID = DEFAULT_ORG_ID) -> None:
    async with faults.transaction(connection, "resume_queue"):
        await connection.execute(statement("resume_queue"), org_id, name)
        await notify_ready(connection, {name})


async def pause_org(connection: Connection, org_id: UUID) -> None:
    async with faults.statement("pause_org"):
        found = await connection.fetchval(statement("pause_org"), org_id)
    if found is None:
        raise NotFoundError(f"There is no org {org_id}.", remedy="'aaiclick org ls' lists them.")


async def resume_org(connection: Connection, org_id: UUID) -> None:
    async with faults.transaction(connection, "resume_org"):
        if await connection.fetchval(statement("resume_org"), org_id) is None:
            raise NotFoundError(f"There is no org {org_id}.", remedy="'aaiclick org ls' lists them.")
        await notify_ready(connection, {""})


async def pause_type(connection: Connection, name: str, org_id: UUID = DEFAULT_ORG_ID) -> None:
    async with faults.statement("pause_type"):
        await connection.execute(statement("pause_type"), org_id, name)


async def resume_type(connection: Connection, name: str, org_id: UUID = DEFAULT_ORG_ID) -> int:
    """Returns how many tasks had been set aside."""
    async with faults.transaction(connection, "resume_type"):
        await connection.execute(statement("resume_type"), org_id, name)
        return await _unhold(connection, org_id, name, None)


async def pause_job(connection: Connection, job_id: int) -> None:
    async with faults.statement("pause_job"):
        found = await connection.fetchval(statement("pause_job"), job_id)
    if found is None:
        raise NotFoundError(f"There is no unfinished job {job_id}.", remedy="'aaiclick jobs ls' lists the jobs.")


async def resume_job(connection: Connection, job_id: int) -> int:
    """Returns how many tasks had been set aside."""
    async with faults.transaction(connection, "resume_job"):
        org_id = await connection.fetchval(statement("resume_job"), job_id)
        if org_id is None:
            raise NotFoundError(f"There is no job {job_id}.", remedy="'aaiclick jobs ls' lists the jobs.")
        return await _unhold(connection, org_id, None, job_id)


async def _unhold(connection: Connection, org_id: UUID, kind: str | None, job_id: int | None) -> int:
    rows = await connection.fetch(statement("unhold"), org_id, kind, job_id)
    ready = {row["queue"] for row in rows if row["readiness"] == "READY"}
    ready |= await admit(connection, ((row["org_id"], row["concurrency_key"]) for row in rows))
    await notify_ready(connection, ready)
    return len(rows)
