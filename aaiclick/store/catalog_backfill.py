"""Runs of times and partitions that are past: what was started of them, and starting the rest.

A time of a schedule is known by the key that the scheduler gives it, so it runs once, whoever starts it. A partition is
known by what it held, so it is given out again when it has changed, and not before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aaiclick import faults
from aaiclick.errors import ConflictError
from aaiclick.store import catalog_dags, catalog_events
from aaiclick.store.catalog_datasets import VersionRange, register_version
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.engine import Connection


@dataclass(frozen=True, slots=True)
class Wanted:
    """One run: what it is known by, what its task is told, and its partition if it is of one."""

    key: str
    event: Mapping[str, Any]
    partition: str | None = None


async def definitions_of(
    connection: Connection, org_id: UUID, dag_name: str, job_name: str | None = None
) -> list[asyncpg.Record]:
    """The definitions of the version that serves."""
    return await connection.fetch(statement("serving_definitions"), org_id, dag_name, job_name)


async def jobs_started(
    connection: Connection, definition: asyncpg.Record, keys: Sequence[str]
) -> dict[str, asyncpg.Record]:
    """Id and status of the jobs that were started under these keys."""
    rows = await connection.fetch(statement("jobs_by_keys"), definition["org_id"], definition["type"], list(keys))
    return {row["key"]: row for row in rows}


async def tasks_given_out(
    connection: Connection, definition: asyncpg.Record, keys: Sequence[str]
) -> dict[str, asyncpg.Record]:
    """Job and status of the tasks that were given out under these keys."""
    rows = await connection.fetch(statement("tasks_by_dedupe_keys"), definition["id"], list(keys))
    return {row["key"]: row for row in rows}


async def jobs_of(connection: Connection, task_ids: Iterable[int]) -> dict[int, int]:
    """The jobs of those of these tasks that are still known."""
    rows = await connection.fetch(statement("jobs_of_tasks"), sorted(task_ids))
    return {row["id"]: row["job_id"] for row in rows}


async def partitions_read(
    connection: Connection, definition: asyncpg.Record, dataset: UUID, changed: Mapping[str, datetime]
) -> dict[str, asyncpg.Record]:
    """Job and status of the tasks that have read partitions of a dataset since those changed."""
    rows = await connection.fetch(
        statement("partitions_read"), definition["id"], dataset, list(changed), list(changed.values())
    )
    return {row["key"]: row for row in rows}


async def start(
    connection: Connection,
    definition: asyncpg.Record,
    wanted: Sequence[Wanted],
    *,
    limit: int | None,
    bounds: VersionRange | None = None,
) -> list[int]:
    """Start runs that were planned, at most `limit` at a time; those known already are left out. Returns their jobs.

    A time gets a job of its own, as if the schedule had started it; partitions share one. With `bounds`, the range is
    registered for each output.
    """
    async with faults.transaction(connection, "backfill"):
        await catalog_dags.lock_dag(connection, definition["org_id"], definition["dag_name"])
        await _check(connection, definition)
        if bounds is not None:
            for row in await connection.fetch(statement("output_generations"), definition["id"]):
                await register_version(connection, row["dataset_version"], bounds)
        limited = {**definition, "max_concurrency": limit}
        if definition["activation"] == "source":
            fired = [await catalog_events.fire(connection, limited, each.event, idempotency_key=each.key)
                     for each in wanted]  # fmt: skip
            return [job_id for job_id, is_new in fired if is_new]
        known = await tasks_given_out(connection, definition, [each.key for each in wanted])
        left = [(each.key, each.event, each.partition) for each in wanted if each.key not in known]
        if not left:
            return []
        job_id = await catalog_events.open_job(
            connection, definition["org_id"], f"{definition['type']} (backfill)", definition["dag_version_id"],
            {"kind": "backfill", "job": definition["name"]},
        )  # fmt: skip
        await catalog_events.add_tasks(connection, job_id, limited, left)
        return [job_id]


async def _check(connection: Connection, definition: asyncpg.Record) -> None:
    dag, name = definition["dag_name"], definition["name"]
    now = await definitions_of(connection, definition["org_id"], dag, name)
    if not now or now[0]["id"] != definition["id"]:
        raise ConflictError(f"Another version of {dag!r} began to serve meanwhile.", remedy="Look at it again.")
    if now[0]["paused"]:
        raise ConflictError(f"The DAG {dag!r} is paused.", remedy=f"Resume it first: aaiclick dag resume {dag}")
