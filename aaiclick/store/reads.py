"""Reading jobs and tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick.store.statements import statement

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.engine import Connection

LAST_ID = 2**63 - 1


async def get_job(connection: Connection, job_id: int) -> asyncpg.Record | None:
    return await connection.fetchrow(statement("get_job"), job_id)


async def list_jobs(
    connection: Connection,
    *,
    status: str | None = None,
    org_id: UUID | None = None,
    before: int = LAST_ID,
    limit: int = 100,
) -> list[asyncpg.Record]:
    """Newest first; the last id is the `before` of the next page."""
    return await connection.fetch(statement("list_jobs"), org_id, status, before, limit)


async def get_task(connection: Connection, task_id: int) -> asyncpg.Record | None:
    return await connection.fetchrow(statement("get_task"), task_id)


async def list_tasks(
    connection: Connection, job_id: int, *, after: int = 0, limit: int = 1_000
) -> list[asyncpg.Record]:
    """In the order of their ids; the last id is the `after` of the next page."""
    return await connection.fetch(statement("list_tasks"), job_id, after, limit)


async def task_results(connection: Connection, job_id: int, task_ids: Sequence[int]) -> dict[int, str | None]:
    """Task id → what it returned, as JSON text; only of tasks of the job."""
    rows = await connection.fetch(statement("task_results"), list(task_ids), job_id)
    return {row["id"]: row["result"] for row in rows}


async def group_results(connection: Connection, group_id: int) -> list[asyncpg.Record]:
    """What the tasks of a group returned, in the order of their ids."""
    return await connection.fetch(statement("group_results"), group_id)


async def job_progress(connection: Connection, job_id: int) -> list[asyncpg.Record]:
    """How many tasks of each group are where; the group named '' is what is in none."""
    return await connection.fetch(statement("job_progress"), job_id)


async def queue_depths(connection: Connection) -> list[asyncpg.Record]:
    """Every queue with its depth, limits and pause."""
    return await connection.fetch(statement("queue_depths"))


async def list_dead_letters(
    connection: Connection,
    *,
    type: str | None = None,  # noqa: A002  (the column's name)
    fingerprint: str | None = None,
    limit: int = 100,
) -> list[asyncpg.Record]:
    """Newest first."""
    return await connection.fetch(statement("list_dead_letters"), type, fingerprint, limit)


async def group_dead_letters(connection: Connection) -> list[asyncpg.Record]:
    """By fingerprint, most frequent first."""
    return await connection.fetch(statement("group_dead_letters"))
