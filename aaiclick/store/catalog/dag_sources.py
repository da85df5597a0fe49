"""Sources of DAGs: due ones, their status, pause and resume, manual start."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick import failpoints
from aaiclick.errors import ConflictError, NotFoundError
from aaiclick.store.catalog import dataset_events
from aaiclick.store.engine import pause
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.postgres_connections import Connection


async def lock_due_definitions(connection: Connection, *, now: datetime | None = None) -> list[asyncpg.Record]:
    """Lock the cron sources with a due next run until the transaction ends."""
    return await connection.fetch(statement("lock_due_definitions"), now)


async def lock_idle_sources(connection: Connection, *, now: datetime | None = None) -> list[asyncpg.Record]:
    """Lock the always-on sources that do not run until the transaction ends."""
    return await connection.fetch(statement("lock_idle_sources"), now)


async def update_source_status(
    connection: Connection, *, dag: tuple[UUID, str] | None = None, now: datetime | None = None
) -> int:
    """Set the status of sources by their tasks, optionally of one DAG (org, name); returns how many became Dead."""
    return int(await connection.fetchval(statement("update_source_status"), now, *(dag or (None, None))))


async def list_unfinished_runs(connection: Connection, definition: asyncpg.Record, limit: int) -> list[int]:
    """Unfinished jobs of a source."""
    name = f"{definition['dag_name']}.{definition['name']}"
    rows = await connection.fetch(statement("list_unfinished_source_runs"), definition["org_id"], name, limit)
    return [row["id"] for row in rows]


async def set_next_run(
    connection: Connection, definition_id: UUID, next_run_at: datetime | None, started: bool
) -> None:
    await connection.execute(statement("set_next_run"), definition_id, next_run_at, started)


async def mark_idle_definitions(connection: Connection) -> int:
    """Mark reactive definitions as Idle that had no task for their `idle_timeout`; returns how many."""
    status = await connection.execute(statement("mark_idle_definitions"))
    return int(status.rpartition(" ")[2])


async def list_sources(
    connection: Connection, org_id: UUID, dag_name: str, job_name: str | None = None
) -> list[asyncpg.Record]:
    """Sources of the serving version of a DAG."""
    return await connection.fetch(statement("list_sources"), org_id, dag_name, job_name)


async def list_definitions(connection: Connection, org_id: UUID, dag_name: str) -> list[asyncpg.Record]:
    """Definitions of the serving version with their states; raises NotFoundError if there is none."""
    rows = await connection.fetch(statement("list_definitions"), org_id, dag_name)
    if not rows:
        raise NotFoundError(
            f"The DAG {dag_name!r:.80} has no serving version.", remedy="'aaiclick dag ls' lists the DAGs."
        )
    return rows


async def start_source(
    connection: Connection,
    org_id: UUID,
    dag_name: str,
    job_name: str | None,
    trigger: Mapping[str, object],
    *,
    idempotency_key: str | None = None,
) -> tuple[int, bool]:
    """Start a source of the serving version, by default its only one; returns the job and whether it is new.

    Raises NotFoundError if there is none, ConflictError if there are several or the DAG is paused.
    """
    async with failpoints.transaction(connection, "fire"):
        sources = await list_sources(connection, org_id, dag_name, job_name)
        if not sources:
            what = f"The DAG {dag_name!r:.80} has no source {job_name!r:.80}" if job_name else f"{dag_name!r:.80}"
            raise NotFoundError(
                f"{what}." if job_name else f"There is no DAG {what} with a source.",
                remedy="'aaiclick dag ls' lists the DAGs.",
            )
        if len(sources) > 1:
            names = ", ".join(row["name"] for row in sources)
            raise ConflictError(f"The DAG {dag_name!r} has several sources: {names}.", remedy="Name one with --job.")
        if sources[0]["paused"]:
            raise ConflictError(
                f"The DAG {dag_name!r} is paused.", remedy=f"Resume it first: aaiclick dag resume {dag_name}"
            )
        return await dataset_events.start_source_job(connection, sources[0], trigger, idempotency_key=idempotency_key)


async def pause_dag(connection: Connection, org_id: UUID, dag_name: str) -> None:
    """Pause a DAG: start none of its sources and tasks. Running tasks continue."""
    async with failpoints.transaction(connection, "pause_dag"):
        for task_type in await _set_paused(connection, org_id, dag_name, paused=True):
            await pause.pause_type(connection, task_type, org_id)
        await update_source_status(connection, dag=(org_id, dag_name))


async def resume_dag(connection: Connection, org_id: UUID, dag_name: str) -> int:
    """Resume a DAG; returns how many held tasks were released."""
    async with failpoints.transaction(connection, "resume_dag"):
        types = await _set_paused(connection, org_id, dag_name, paused=False)
        resumed = sum([await pause.resume_type(connection, task_type, org_id) for task_type in types])
        await update_source_status(connection, dag=(org_id, dag_name))
        return resumed


async def _set_paused(connection: Connection, org_id: UUID, dag_name: str, *, paused: bool) -> list[str]:
    rows = await connection.fetch(statement("set_dag_paused"), org_id, dag_name, paused)
    if not rows:
        raise NotFoundError(f"There is no DAG {dag_name!r:.80}.", remedy="'aaiclick dag ls' lists the DAGs.")
    return [row["type"] for row in rows]
