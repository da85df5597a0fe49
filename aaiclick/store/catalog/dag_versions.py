"""Versions of DAGs and the dataset versions they refer to.

All writes happen under the DAG's advisory lock, in the caller's transaction: deploys of one DAG are serialised, and a
failed deploy changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from aaiclick.store.catalog import dataset_events as catalog_events
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.postgres_connections import Connection

DEPLOY_PAUSE_SECONDS = 30

OutputPosition = tuple[str, int]
"""Name of a definition, and index of its output."""


@dataclass(frozen=True)
class NewDefinition:
    """A job definition with resolved datasets; every field is a column."""

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
    rejected_datasets: list[str | None]
    reference_datasets: list[str]


@dataclass(frozen=True, slots=True)
class DagVersionRow:
    """A version of a DAG and the state of its fill job."""

    id: UUID
    dag_name: str
    yaml_hash: str
    created_at: datetime
    ready_at: datetime | None
    serving: bool
    serving_since: datetime | None
    paused_at: datetime | None
    fill_job_id: int | None
    fill_status: str | None


@dataclass(frozen=True, slots=True)
class VersionText:
    """A version with its YAML; `deploy_ticket` orders the requests to serve versions."""

    id: UUID
    yaml_hash: str
    yaml: str
    deploy_ticket: int


@dataclass(frozen=True, slots=True)
class VersionState:
    """Whether a version is filled, its fill job, and the version that served when that began."""

    ready_at: datetime | None
    fill_job_id: int | None
    serving_at_fill: UUID | None
    deploy_ticket: int
    fill_status: str | None
    fill_error: str | None


@dataclass(frozen=True, slots=True)
class NamedDataset:
    """A dataset and the DAG that produces it."""

    id: UUID
    name: str
    producer_dag_name: str


async def lock_dag(connection: Connection, org_id: UUID, dag_name: str) -> None:
    """Lock a DAG against other deploys, and allow pauses in the transaction while large files are compared."""
    await connection.execute(f"SET LOCAL idle_in_transaction_session_timeout = '{DEPLOY_PAUSE_SECONDS}s'")
    await connection.execute(statement("lock_dag"), org_id, dag_name)


async def add_version(
    connection: Connection, org_id: UUID, dag_name: str, yaml_hash: str, yaml: str, created_by: UUID | None
) -> UUID | None:
    """Insert a version; returns its id, or None if a version with this content exists."""
    return await connection.fetchval(
        statement("insert_dag_version"), uuid4(), org_id, dag_name, yaml_hash, yaml, created_by
    )


async def list_versions(connection: Connection, org_id: UUID, dag_name: str | None = None) -> list[DagVersionRow]:
    """Versions of a DAG or of all DAGs, newest first."""
    rows = await connection.fetch(statement("list_dag_versions"), org_id, dag_name)
    return [DagVersionRow(**row) for row in rows]


async def find_version(
    connection: Connection, org_id: UUID, dag_name: str, version_id: UUID | None = None
) -> VersionText | None:
    """A version with its YAML, by default the serving one."""
    row = await connection.fetchrow(statement("find_dag_version"), org_id, dag_name, version_id)
    return None if row is None else VersionText(**row)


async def ensure_dataset(
    connection: Connection, org_id: UUID, dag_name: str, job_name: str, index: int, storage: dict[str, object]
) -> UUID:
    default_name = f"{dag_name}.{job_name}.{index}"
    dataset_id: UUID = await connection.fetchval(
        statement("ensure_dataset"), uuid4(), org_id, default_name, dag_name, job_name, index, json.dumps(storage)
    )
    return dataset_id


async def ensure_dataset_version(
    connection: Connection,
    dataset_id: UUID,
    config_hash: str,
    new_id: UUID,
    location: str,
    built_for: UUID | None,
    bounds: Sequence[int] | None = None,
) -> tuple[UUID, bool]:
    """The generation with this configuration, and whether it is new: then it belongs to the version `built_for`."""
    row = await connection.fetchrow(
        statement("ensure_dataset_version"), new_id, dataset_id, location, config_hash, built_for,
        *(bounds or (None, None)),
    )  # fmt: skip
    assert row is not None  # noqa: S101  (one of the two branches always answers, under the DAG's lock)
    return row["id"], row["is_new"]


async def find_existing_outputs(
    connection: Connection,
    org_id: UUID,
    dag_name: str,
    hashes: Mapping[str, str],
    positions: Mapping[str, OutputPosition],
) -> set[str]:
    """Outputs that have a filled generation with the same configuration hash."""
    rows = await connection.fetch(
        statement("find_existing_outputs"), org_id, dag_name, [positions[output][0] for output in hashes],
        [positions[output][1] for output in hashes], list(hashes.values()), list(hashes),
    )  # fmt: skip
    return {row["output"] for row in rows}


async def find_outputs_built_for(
    connection: Connection, version_id: UUID, positions: Mapping[str, OutputPosition]
) -> tuple[str, ...]:
    """Outputs with generations that were created for a version."""
    rows = await connection.fetch(statement("list_outputs_built_for"), version_id)
    built = {(row["producer_job_name"], row["producer_output_index"]) for row in rows}
    return tuple(name for name, position in positions.items() if position in built)


async def set_dataset_version(
    connection: Connection, version_id: UUID, dataset_id: UUID, dataset_version: UUID
) -> None:
    await connection.execute(statement("set_version_dataset"), version_id, dataset_id, dataset_version)


async def add_definitions(
    connection: Connection, org_id: UUID, dag_name: str, version_id: UUID, definitions: Sequence[NewDefinition]
) -> None:
    def dump_json(value: dict[str, object] | None) -> str | None:
        return None if value is None else json.dumps(value)

    await connection.executemany(
        statement("insert_definition"),
        [
            (
                uuid4(), org_id, new.name, dag_name, version_id, new.activation, new.runtime, new.operator,
                dump_json(new.source), dump_json(new.bootstrap), new.execution_strategy, new.idle_timeout,
                dump_json(new.config), new.config_hash, dump_json(new.spec), new.input_datasets, new.output_datasets,
                new.update_strategy, new.unique_key, dump_json(new.scaling), new.timeout_seconds,
                new.heartbeat_timeout_seconds, new.max_attempts, new.status, new.rejected_datasets,
                new.reference_datasets,
            )
            for new in definitions
        ],
    )  # fmt: skip


async def set_serving_version(
    connection: Connection,
    org_id: UUID,
    dag_name: str,
    version_id: UUID,
    names: dict[tuple[str, int], str],
    next_runs: dict[str, datetime],
) -> None:
    """Make a version the serving one: the pointer, the names and declared lineage of its datasets, and its next runs.

    Readers find datasets through the pointer, so they see either the old or the new version.
    """
    await connection.execute(statement("set_serving_version"), org_id, dag_name, version_id)
    await connection.execute(statement("unname_datasets"), org_id, dag_name)
    jobs, indexes = [job for job, _ in names], [index for _, index in names]
    named = list(names.values())
    await connection.execute(statement("name_datasets"), org_id, dag_name, jobs, indexes, named, version_id)
    await connection.execute(statement("delete_declared_lineage"), version_id)
    await connection.execute(statement("insert_declared_lineage"), version_id)
    moments = list(next_runs.values())
    await connection.execute(statement("schedule_definitions"), org_id, dag_name, version_id, list(next_runs), moments)
    await connection.execute(statement("pause_new_types"), org_id, dag_name)
    await connection.execute(statement("update_source_status"), None, org_id, dag_name)


async def get_version_state(connection: Connection, version_id: UUID) -> VersionState:
    row = await connection.fetchrow(statement("get_version_state"), version_id)
    assert row is not None  # noqa: S101  (the caller found the version under the DAG's lock)
    return VersionState(**row)


async def request_serving(connection: Connection, version_id: UUID) -> None:
    """Record a request to serve a version: of several, the last request wins."""
    await connection.execute(statement("request_serving"), version_id)


async def set_ready(connection: Connection, version_id: UUID) -> None:
    await connection.execute(statement("mark_version_ready"), version_id)


async def start_fill_job(
    connection: Connection, org_id: UUID, dag_name: str, version_id: UUID, serving_id: UUID
) -> int | None:
    """Start a job that fills the generations of a version; None if there is nothing to fill them from.

    It uses ordinary events, which are routed to definitions of this version only (`build`).
    """
    stale = await connection.fetch(statement("list_stale_definitions"), version_id, True, False)
    sources = await connection.fetch(statement("list_unfilled_sources"), version_id)
    if not stale and not sources:
        return None
    trigger = {"kind": "deploy", "version": str(version_id)}
    job_id = await catalog_events.open_job(connection, org_id, f"{dag_name} (deploy)", version_id, trigger)
    await _emit_initial_events(connection, org_id, job_id, stale, version_id)
    for source in sources:
        await catalog_events.add_source_task(connection, job_id, source, trigger, build=version_id)
    await connection.execute(statement("set_fill_job"), version_id, job_id, serving_id)
    return job_id


async def start_catch_up_job(
    connection: Connection, org_id: UUID, dag_name: str, version_id: UUID, *, check_all: bool
) -> int | None:
    """Start a job for definitions with stale outputs, because another version served; None if there are none.

    `check_all` includes definitions that look up to date.
    """
    stale = await connection.fetch(statement("list_stale_definitions"), version_id, False, check_all)
    if not stale:
        return None
    trigger = {"kind": "catch up", "version": str(version_id)}
    job_id = await catalog_events.open_job(connection, org_id, f"{dag_name} (catch up)", version_id, trigger)
    await _emit_initial_events(connection, org_id, job_id, stale, None)
    return job_id


async def _emit_initial_events(
    connection: Connection, org_id: UUID, job_id: int, stale: Sequence[asyncpg.Record], build: UUID | None
) -> None:
    events = [
        catalog_events.Event(org_id, job_id, row["dataset"], row["generation"], build=build, only=row["id"])
        for row in stale
    ]
    await catalog_events.count_events(connection, await catalog_events.emit_events(connection, events))


async def find_obsolete_tasks(connection: Connection, version_id: UUID, serving_id: UUID) -> list[int]:
    """Unfinished tasks of a version that produce nothing for the serving one."""
    return [row["id"] for row in await connection.fetch(statement("find_obsolete_tasks"), version_id, serving_id)]


@dataclass(frozen=True, slots=True)
class DeletedDag:
    """What was deleted with a DAG."""

    versions: int
    datasets: int
    jobs: int


async def lock_versions(connection: Connection, org_id: UUID, dag_name: str) -> bool:
    """Lock a DAG with its versions against deploys and new jobs; returns whether it exists."""
    await lock_dag(connection, org_id, dag_name)
    return bool(await connection.fetch(statement("lock_dag_versions"), org_id, dag_name))


async def list_unfinished_jobs(connection: Connection, org_id: UUID, dag_name: str, limit: int) -> list[int]:
    """Unfinished jobs of a DAG, or with unfinished tasks of it."""
    return [row["id"] for row in await connection.fetch(statement("list_unfinished_dag_jobs"), org_id, dag_name, limit)]


async def list_reading_dags(connection: Connection, org_id: UUID, dag_name: str) -> list[str]:
    """Other DAGs that read datasets of a DAG."""
    return [row["dag_name"] for row in await connection.fetch(statement("list_reading_dags"), org_id, dag_name)]


async def delete_dag(connection: Connection, org_id: UUID, dag_name: str) -> DeletedDag:
    """Delete a DAG without unfinished jobs, under its lock. The cleanup loop drops the tables and files."""

    async def delete(text: str) -> int:
        return int((await connection.execute(text, org_id, dag_name)).rpartition(" ")[2])

    await connection.execute(statement("release_dag_tables"), org_id, dag_name)
    await connection.execute(statement("release_dag_files"), org_id, dag_name)
    await connection.execute(statement("stop_serving"), org_id, dag_name)
    jobs = await delete(statement("delete_dag_jobs"))
    versions = await delete(statement("delete_dag_versions"))
    return DeletedDag(versions, await delete(statement("delete_dag_datasets")), jobs)


async def find_datasets_by_name(
    connection: Connection, org_id: UUID, names: Sequence[str], roles: Collection[str] | None = None
) -> dict[str, NamedDataset]:
    """Datasets by name: those that one of the roles may read; None: all."""
    role_names = None if roles is None else sorted(roles)
    rows = await connection.fetch(statement("find_datasets_by_name"), org_id, list(names), role_names)
    return {row["name"]: NamedDataset(**row) for row in rows}


async def list_serving_datasets(connection: Connection, org_id: UUID, dag_name: str) -> list[asyncpg.Record]:
    return await connection.fetch(statement("list_serving_datasets"), org_id, dag_name)
