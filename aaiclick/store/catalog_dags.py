"""Versions of DAGs and the datasets they point to, in PostgreSQL.

All of it happens under the DAG's advisory lock, inside the caller's transaction: deploys of one DAG follow each
other, and a deploy that fails has changed nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from aaiclick.store import catalog_events
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.engine import Connection

DEPLOY_PAUSE_SECONDS = 30

Place = tuple[str, int]
"""A job, and which of its outputs."""


@dataclass(frozen=True)
class NewDefinition:
    """A job definition with its datasets found; every field is a column."""

    name: str
    activation: str
    runtime: str
    operator: str
    source: dict[str, Any] | None
    bootstrap: dict[str, Any] | None
    execution_strategy: str | None
    idle_timeout: str | None
    config: dict[str, Any]
    config_hash: str
    spec: dict[str, Any]
    input_datasets: list[str]
    output_datasets: list[str]
    update_strategy: str
    unique_key: list[str] | None
    scaling: dict[str, Any] | None
    timeout_seconds: int | None
    heartbeat_timeout_seconds: int | None
    max_attempts: int
    status: str


async def lock_dag(connection: Connection, org_id: UUID, dag_name: str) -> None:
    """Lock a DAG against other deploys. The transaction may pause while large files are compared."""
    await connection.execute(f"SET LOCAL idle_in_transaction_session_timeout = '{DEPLOY_PAUSE_SECONDS}s'")
    await connection.execute(statement("lock_dag"), org_id, dag_name)


async def add_version(
    connection: Connection, org_id: UUID, dag_name: str, yaml_hash: str, yaml: str, created_by: UUID | None
) -> UUID | None:
    """The id of a new version; None if there is one of this content."""
    return await connection.fetchval(
        statement("insert_dag_version"), uuid4(), org_id, dag_name, yaml_hash, yaml, created_by
    )


async def list_versions(connection: Connection, org_id: UUID, dag_name: str | None = None) -> list[asyncpg.Record]:
    return await connection.fetch(statement("dag_versions"), org_id, dag_name)


async def find_version(
    connection: Connection, org_id: UUID, dag_name: str, version_id: UUID | None = None
) -> asyncpg.Record | None:
    """Id, hash and text of a version, or of the one that serves."""
    return await connection.fetchrow(statement("dag_version_yaml"), org_id, dag_name, version_id)


async def ensure_dataset(
    connection: Connection, org_id: UUID, dag_name: str, job_name: str, index: int, storage: dict[str, Any]
) -> UUID:
    hidden = f"{dag_name}.{job_name}.{index}"
    found: UUID = await connection.fetchval(
        statement("ensure_dataset"), uuid4(), org_id, hidden, dag_name, job_name, index, json.dumps(storage)
    )
    return found


async def ensure_dataset_version(
    connection: Connection,
    dataset_id: UUID,
    config_hash: str,
    fresh: UUID,
    location: str,
    made_for: UUID,
    bounds: Sequence[int] | None = None,
) -> tuple[UUID, bool]:
    """The generation made in this way, and whether it is new: then it is made for that version."""
    row = await connection.fetchrow(
        statement("ensure_dataset_version"), fresh, dataset_id, location, config_hash, made_for,
        *(bounds or (None, None)),
    )  # fmt: skip
    assert row is not None  # noqa: S101  (one of the two branches always answers, under the DAG's lock)
    return row["id"], row["made"]


async def made_before(
    connection: Connection, org_id: UUID, dag_name: str, hashes: Mapping[str, str], places: Mapping[str, Place]
) -> set[str]:
    """Outputs that have a generation which was made in this way, and served."""
    rows = await connection.fetch(
        statement("made_before"), org_id, dag_name, [places[each][0] for each in hashes],
        [places[each][1] for each in hashes], list(hashes.values()), list(hashes),
    )  # fmt: skip
    return {row["output"] for row in rows}


async def made_for(connection: Connection, version_id: UUID, places: Mapping[str, Place]) -> tuple[str, ...]:
    """Outputs whose generations were made for a version."""
    rows = await connection.fetch(statement("made_for"), version_id)
    made = {(row["producer_job_name"], row["producer_output_index"]) for row in rows}
    return tuple(name for name, place in places.items() if place in made)


async def point(connection: Connection, version_id: UUID, dataset_id: UUID, dataset_version: UUID) -> None:
    await connection.execute(statement("point_dataset"), version_id, dataset_id, dataset_version)


async def add_definitions(
    connection: Connection, org_id: UUID, dag_name: str, version_id: UUID, definitions: Sequence[NewDefinition]
) -> None:
    def text(value: dict[str, Any] | None) -> str | None:
        return None if value is None else json.dumps(value)

    await connection.executemany(
        statement("insert_definition"),
        [
            (
                uuid4(), org_id, each.name, dag_name, version_id, each.activation, each.runtime, each.operator,
                text(each.source), text(each.bootstrap), each.execution_strategy, each.idle_timeout, text(each.config),
                each.config_hash, text(each.spec), each.input_datasets, each.output_datasets, each.update_strategy,
                each.unique_key, text(each.scaling), each.timeout_seconds, each.heartbeat_timeout_seconds,
                each.max_attempts, each.status,
            )
            for each in definitions
        ],
    )  # fmt: skip


async def swap(
    connection: Connection,
    org_id: UUID,
    dag_name: str,
    version_id: UUID,
    names: dict[tuple[str, int], str],
    next_runs: dict[str, datetime],
) -> None:
    """Let a version serve: the pointer, the names of its datasets, and the next runs, all or nothing.

    A reader finds the datasets through the pointer, so it sees one version or the other.
    """
    await connection.execute(statement("swap_dag"), org_id, dag_name, version_id)
    await connection.execute(statement("unname_datasets"), org_id, dag_name)
    jobs, indexes = [job for job, _ in names], [index for _, index in names]
    await connection.execute(statement("name_datasets"), org_id, dag_name, jobs, indexes, list(names.values()))
    moments = list(next_runs.values())
    await connection.execute(statement("schedule_definitions"), org_id, dag_name, version_id, list(next_runs), moments)
    await connection.execute(statement("pause_missing"), org_id, dag_name)
    await connection.execute(statement("watch_sources"), None, org_id, dag_name)


async def version_state(connection: Connection, version_id: UUID) -> asyncpg.Record:
    """Whether a version is filled, the job that fills it, and beside which one."""
    row = await connection.fetchrow(statement("version_state"), version_id)
    assert row is not None  # noqa: S101  (the caller found the version under the DAG's lock)
    return row


async def wish(connection: Connection, version_id: UUID) -> None:
    """Somebody wants a version to serve: of two, the one that was wished for later does in the end."""
    await connection.execute(statement("wish_version"), version_id)


async def set_ready(connection: Connection, version_id: UUID) -> None:
    await connection.execute(statement("set_ready"), version_id)


async def start_filling(
    connection: Connection, org_id: UUID, dag_name: str, version_id: UUID, beside: UUID
) -> int | None:
    """Start a job that fills the generations made for a version; None if there is nothing to fill them from.

    It goes by the same events as everything else, which only this version hears of.
    """
    stale = await connection.fetch(statement("stale_definitions"), version_id, True, False)
    sources = await connection.fetch(statement("changed_sources"), version_id)
    if not stale and not sources:
        return None
    trigger = {"kind": "deploy", "version": str(version_id)}
    job_id = await catalog_events.open_job(connection, org_id, f"{dag_name} (deploy)", version_id, trigger)
    await _seed(connection, org_id, job_id, stale, version_id)
    for source in sources:
        await catalog_events.add_source(connection, job_id, source, trigger, build=version_id)
    await connection.execute(statement("set_fill_job"), version_id, job_id, beside)
    return job_id


async def catch_up(
    connection: Connection, org_id: UUID, dag_name: str, version_id: UUID, *, all_of_it: bool
) -> int | None:
    """Start what has fallen behind while another version served; returns the job, None if nothing has.

    `all_of_it`: look into everything; what is up to date is found to be so.
    """
    stale = await connection.fetch(statement("stale_definitions"), version_id, False, all_of_it)
    if not stale:
        return None
    trigger = {"kind": "catch up", "version": str(version_id)}
    job_id = await catalog_events.open_job(connection, org_id, f"{dag_name} (catch up)", version_id, trigger)
    await _seed(connection, org_id, job_id, stale, None)
    return job_id


async def _seed(
    connection: Connection, org_id: UUID, job_id: int, stale: Sequence[asyncpg.Record], build: UUID | None
) -> None:
    events = [
        catalog_events.Event(org_id, job_id, row["dataset"], row["generation"], build=build, only=row["id"])
        for row in stale
    ]
    await catalog_events.count_events(connection, await catalog_events.emit(connection, events))


async def tasks_left(connection: Connection, version_id: UUID, serving_id: UUID) -> list[int]:
    """Unfinished tasks of a version that make nothing which another one serves."""
    return [row["id"] for row in await connection.fetch(statement("tasks_left"), version_id, serving_id)]


async def datasets_named(
    connection: Connection, org_id: UUID, names: Sequence[str], roles: Collection[str] | None = None
) -> dict[str, asyncpg.Record]:
    """Datasets by name: those that one of the roles may read, or (None) all."""
    may = None if roles is None else sorted(roles)
    rows = await connection.fetch(statement("dataset_producers"), org_id, list(names), may)
    return {row["name"]: row for row in rows}


async def serving_datasets(connection: Connection, org_id: UUID, dag_name: str) -> list[asyncpg.Record]:
    return await connection.fetch(statement("serving_datasets"), org_id, dag_name)
