"""Sources: what is due, what is paused, and starting one by hand."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aaiclick import faults
from aaiclick.errors import ConflictError, NotFoundError
from aaiclick.store import catalog_events, pauses
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.engine import Connection


async def due_definitions(connection: Connection, *, now: datetime | None = None) -> list[asyncpg.Record]:
    """Cron sources whose next run is due, locked until the transaction ends."""
    return await connection.fetch(statement("due_definitions"), now)


async def resting_sources(connection: Connection, *, now: datetime | None = None) -> list[asyncpg.Record]:
    """Sources that always run, and do not at the moment; locked until the transaction ends."""
    return await connection.fetch(statement("resting_sources"), now)


async def watch_sources(
    connection: Connection, *, dag: tuple[UUID, str] | None = None, now: datetime | None = None
) -> int:
    """Set the status of sources by their tasks, of one DAG if org and name are given; returns how many have died."""
    return int(await connection.fetchval(statement("watch_sources"), now, *(dag or (None, None))))


async def schedule(connection: Connection, definition_id: UUID, next_run_at: datetime | None, started: bool) -> None:
    await connection.execute(statement("scheduled"), definition_id, next_run_at, started)


async def make_idle(connection: Connection) -> int:
    """Reactive definitions without work for longer than their `idle_timeout`."""
    status = await connection.execute(statement("definitions_idle"))
    return int(status.rpartition(" ")[2])


async def sources_of(
    connection: Connection, org_id: UUID, dag_name: str, job_name: str | None = None
) -> list[asyncpg.Record]:
    """The sources of the version of a DAG that serves."""
    return await connection.fetch(statement("source_definition"), org_id, dag_name, job_name)


async def list_definitions(connection: Connection, org_id: UUID, dag_name: str) -> list[asyncpg.Record]:
    """The definitions of the version that serves, with their states; raises NotFoundError if there is none."""
    rows = await connection.fetch(statement("list_definitions"), org_id, dag_name)
    if not rows:
        raise NotFoundError(
            f"No version of a DAG {dag_name!r:.80} serves.", remedy="'aaiclick dag versions' lists them."
        )
    return rows


async def start_source(
    connection: Connection,
    org_id: UUID,
    dag_name: str,
    job_name: str | None,
    trigger: Mapping[str, Any],
    *,
    idempotency_key: str | None = None,
) -> tuple[int, bool]:
    """Start a source of the version that serves; the only one, if none is named. Returns the job and whether it is new.

    Raises NotFoundError if there is none, ConflictError if there are several or the DAG is paused.
    """
    async with faults.transaction(connection, "fire"):
        found = await sources_of(connection, org_id, dag_name, job_name)
        if not found:
            what = f"The DAG {dag_name!r:.80} has no source {job_name!r:.80}" if job_name else f"{dag_name!r:.80}"
            raise NotFoundError(
                f"{what}." if job_name else f"There is no DAG {what} with a source.",
                remedy="'aaiclick dag versions' lists the DAGs.",
            )
        if len(found) > 1:
            names = ", ".join(row["name"] for row in found)
            raise ConflictError(f"The DAG {dag_name!r} has several sources: {names}.", remedy="Name one with --job.")
        if found[0]["paused"]:
            raise ConflictError(
                f"The DAG {dag_name!r} is paused.", remedy=f"Resume it first: aaiclick dag resume {dag_name}"
            )
        return await catalog_events.fire(connection, found[0], trigger, idempotency_key=idempotency_key)


async def pause_dag(connection: Connection, org_id: UUID, dag_name: str) -> None:
    """Start no source of a DAG and none of its tasks; what runs goes on."""
    async with faults.transaction(connection, "pause_dag"):
        for task_type in await _set_paused(connection, org_id, dag_name, paused=True):
            await pauses.pause_type(connection, task_type, org_id)
        await watch_sources(connection, dag=(org_id, dag_name))


async def resume_dag(connection: Connection, org_id: UUID, dag_name: str) -> int:
    """Returns how many tasks had been set aside."""
    async with faults.transaction(connection, "resume_dag"):
        types = await _set_paused(connection, org_id, dag_name, paused=False)
        resumed = sum([await pauses.resume_type(connection, task_type, org_id) for task_type in types])
        await watch_sources(connection, dag=(org_id, dag_name))
        return resumed


async def _set_paused(connection: Connection, org_id: UUID, dag_name: str, *, paused: bool) -> list[str]:
    rows = await connection.fetch(statement("pause_dag"), org_id, dag_name, paused)
    if not rows:
        raise NotFoundError(f"There is no DAG {dag_name!r:.80}.", remedy="'aaiclick dag versions' lists the DAGs.")
    return [row["type"] for row in rows]
