"""Backfill: start the missing runs of past schedule times and partitions.

A schedule time has the idempotency key of the scheduler, so it runs once. The key of a partition contains its content,
so it runs again only after a change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aaiclick import failpoints
from aaiclick.errors import ConflictError
from aaiclick.store.catalog import dag_versions, dataset_events
from aaiclick.store.catalog.datasets import VersionRange, register_version
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.postgres_connections import Connection


@dataclass(frozen=True, slots=True)
class BackfillRun:
    """One run of a backfill: its key, the event for its task, and its partition if it has one."""

    key: str
    event: Mapping[str, Any]
    partition: str | None = None


async def list_serving_definitions(
    connection: Connection, org_id: UUID, dag_name: str, job_name: str | None = None
) -> list[asyncpg.Record]:
    """Definitions of the serving version of a DAG."""
    return await connection.fetch(statement("list_serving_definitions"), org_id, dag_name, job_name)


async def find_started_jobs(
    connection: Connection, definition: asyncpg.Record, keys: Sequence[str]
) -> dict[str, asyncpg.Record]:
    """Id and status of the jobs with these idempotency keys."""
    rows = await connection.fetch(statement("find_jobs_by_keys"), definition["org_id"], definition["type"], list(keys))
    return {row["key"]: row for row in rows}


async def find_tasks_by_dedupe_key(
    connection: Connection, definition: asyncpg.Record, keys: Sequence[str]
) -> dict[str, asyncpg.Record]:
    """Job and status of the tasks with these dedupe keys."""
    rows = await connection.fetch(statement("find_tasks_by_dedupe_keys"), definition["id"], list(keys))
    return {row["key"]: row for row in rows}


async def load_job_ids(connection: Connection, task_ids: Iterable[int]) -> dict[int, int]:
    """Task → job, of those tasks that still exist."""
    rows = await connection.fetch(statement("load_job_ids"), sorted(task_ids))
    return {row["id"]: row["job_id"] for row in rows}


async def find_partition_readers(
    connection: Connection, definition: asyncpg.Record, dataset: UUID, changed: Mapping[str, datetime]
) -> dict[str, asyncpg.Record]:
    """Job and status of the tasks that have read partitions of a dataset after they changed."""
    rows = await connection.fetch(
        statement("find_partition_readers"), definition["id"], dataset, list(changed), list(changed.values())
    )
    return {row["key"]: row for row in rows}


async def start_backfill(
    connection: Connection,
    definition: asyncpg.Record,
    runs: Sequence[BackfillRun],
    *,
    limit: int | None,
    bounds: VersionRange | None = None,
) -> list[int]:
    """Start planned runs, at most `limit` concurrently, except existing ones; returns their jobs.

    A schedule time gets its own job; partitions share one. With `bounds`, the range is registered for each output.
    """
    async with failpoints.transaction(connection, "backfill"):
        await dag_versions.lock_dag(connection, definition["org_id"], definition["dag_name"])
        await _check_still_serving(connection, definition)
        if bounds is not None:
            for row in await connection.fetch(statement("list_output_generations"), definition["id"]):
                await register_version(connection, row["dataset_version"], bounds)
        limited = {**definition, "max_concurrency": limit}
        if definition["activation"] == "source":
            fired = [await dataset_events.start_source_job(connection, limited, run.event, idempotency_key=run.key)
                     for run in runs]  # fmt: skip
            return [job_id for job_id, is_new in fired if is_new]
        existing = await find_tasks_by_dedupe_key(connection, definition, [run.key for run in runs])
        new_runs = [(run.key, run.event, run.partition) for run in runs if run.key not in existing]
        if not new_runs:
            return []
        job_id = await dataset_events.open_job(
            connection, definition["org_id"], f"{definition['type']} (backfill)", definition["dag_version_id"],
            {"kind": "backfill", "job": definition["name"]},
        )  # fmt: skip
        await dataset_events.add_tasks(connection, job_id, limited, new_runs)
        return [job_id]


async def _check_still_serving(connection: Connection, definition: asyncpg.Record) -> None:
    dag, name = definition["dag_name"], definition["name"]
    rows = await list_serving_definitions(connection, definition["org_id"], dag, name)
    if not rows or rows[0]["id"] != definition["id"]:
        raise ConflictError(f"Another version of {dag!r} is serving now.", remedy="Repeat the backfill.")
    if rows[0]["paused"]:
        raise ConflictError(f"The DAG {dag!r} is paused.", remedy=f"Resume it first: aaiclick dag resume {dag}")
