"""Datasets for readers: visibility by role, generations, registered ranges, lineage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from aaiclick import failpoints
from aaiclick.errors import ConflictError, NotFoundError
from aaiclick.store.catalog import dataset_events
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.postgres_connections import Connection

MAX_COMPARED = 200
"""Names that are compared with a missing one, and the length of the comparison."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Organisation and roles of a reader. Without roles nothing is visible; `roles=None` sees everything."""

    org_id: UUID
    roles: frozenset[str] | None = frozenset()


@dataclass(frozen=True, slots=True)
class VersionRange:
    """First and last position of a version; None: no bound."""

    start: int | None = None
    end: int | None = None

    def __str__(self) -> str:
        return f"{'' if self.start is None else self.start}..{'' if self.end is None else self.end}"


@dataclass(frozen=True, slots=True)
class ServedDataset:
    """A dataset in its serving generation; `columns` and `files` are JSON, `columns` is None before an update."""

    id: UUID
    name: str
    dag: str
    job: str
    read_roles: list[str]
    version: UUID
    storage_location: str
    columns: str | None
    files: str
    rows: int | None
    updated_at: datetime | None


@dataclass(frozen=True, slots=True)
class GenerationRow:
    """One materialisation of a dataset version."""

    id: UUID
    created_at: datetime
    updated_at: datetime | None
    schema_hash: str | None
    range_start: int | None
    range_end: int | None
    serving: bool


@dataclass(frozen=True, slots=True)
class ServingEdge:
    """A serving definition with the ids of its input and output datasets."""

    dag_name: str
    job: str
    inputs: list[str]
    outputs: list[str]


@dataclass(frozen=True, slots=True)
class ColumnSource:
    """A column is computed from a column of another dataset."""

    output_dataset: UUID
    output_column: str
    input_dataset: UUID
    input_column: str


async def register_version(
    connection: Connection, version_id: UUID, bounds: VersionRange, location: str | None = None
) -> tuple[UUID, bool]:
    """Register a range of the generation `version_id`; returns its version, and whether that is new.

    Runs in the caller's transaction under a lock per generation: of concurrent callers one inserts.
    """
    ends = bounds.start, bounds.end
    await connection.execute(statement("lock_generation"), version_id)
    if location is not None:
        other = await connection.fetchrow(statement("find_overlapping_version"), version_id, *ends)
        if other is not None:
            raise ConflictError(
                f"The range {bounds} overlaps the registered range {VersionRange(*other)}: rows would be read twice.",
                remedy="Register ranges that do not overlap.",
            )
    new_id = await connection.fetchval(statement("register_dataset_version"), version_id, uuid4(), location, *ends)
    if new_id is not None:
        return new_id, True
    registered = await connection.fetchrow(statement("find_registered_version"), version_id, *ends)
    assert registered is not None  # noqa: S101  (it conflicted with the insert, and versions are not deleted)
    if location is not None and registered["storage_location"] != location:
        raise ConflictError(
            f"The range {bounds} is registered at {registered['storage_location']}.",
            remedy="A range has one location: register it there, or another range.",
        )
    return registered["id"], False


async def load_reader(connection: Connection, org_id: UUID, external_id: str) -> Reader:
    """The reader for a user: admins see everything, other users what their roles may read, disabled users nothing.

    Raises NotFoundError if there is no such user.
    """
    row = await connection.fetchrow(statement("load_reader_roles"), org_id, external_id)
    if row is None:
        raise NotFoundError(f"There is no user {external_id!r:.120}.", remedy="'aaiclick user ls' lists them.")
    if row["disabled"]:
        return Reader(org_id)
    return Reader(org_id, None if row["role"] == "admin" else frozenset(row["roles"]))


async def list_visible_datasets(
    connection: Connection, reader: Reader, names: Sequence[str] | None = None
) -> list[ServedDataset]:
    """Datasets that a reader may read, each in its serving generation, in one snapshot."""
    roles = None if reader.roles is None else sorted(reader.roles)
    rows = await connection.fetch(
        statement("list_visible_datasets"), reader.org_id, roles, None if names is None else list(names)
    )
    return [ServedDataset(**row) for row in rows]


async def may_read_version(connection: Connection, reader: Reader, version_id: UUID, names: Sequence[str]) -> bool:
    """Whether a reader may read all inputs and outputs of a DAG version, and the current datasets with these names."""
    if reader.roles is None:
        return True
    return bool(
        await connection.fetchval(
            statement("may_read_version"), version_id, reader.org_id, sorted(reader.roles), list(names)
        )
    )


async def load_task_visibility(
    connection: Connection, reader: Reader, task_ids: Iterable[int]
) -> dict[int, asyncpg.Record]:
    """Task of a definition → outputs that a reader may read, and whether it may read all inputs and outputs."""
    roles = sorted(reader.roles or ())
    rows = await connection.fetch(statement("load_task_visibility"), list(task_ids), reader.org_id, roles)
    return {row["id"]: row for row in rows}


async def hidden_incident_ids(
    connection: Connection, reader: Reader, incidents: Sequence[Mapping[str, Any] | asyncpg.Record]
) -> set[int]:
    """Incidents with causes that are hidden from a reader: of tasks of DAGs that it may not read, or that are gone."""
    if reader.roles is None:
        return set()
    of_tasks = [row for row in incidents if row["task_id"] is not None]
    readable = await load_task_visibility(connection, reader, {row["task_id"] for row in of_tasks})
    return {
        row["id"]
        for row in of_tasks
        if (not readable[row["task_id"]]["everything"] if row["task_id"] in readable else row["dag_name"] is not None)
    }


async def find_dataset(connection: Connection, reader: Reader, name: str) -> ServedDataset:
    """Find a visible dataset; raises the same NotFoundError for missing and invisible ones."""
    rows = await list_visible_datasets(connection, reader, [name])
    if not rows:
        raise await unknown_visible_dataset(connection, reader, name)
    return rows[0]


def unknown_dataset(name: str, visible_names: Sequence[str] = ()) -> NotFoundError:
    """Return the error for a missing name; it suggests an output of that name, or the most similar name."""
    suggestions = [visible for visible in visible_names if visible.endswith(f".{name}")]
    suggestions = suggestions or get_close_matches(name[:MAX_COMPARED], visible_names[:MAX_COMPARED], 1)
    remedy = f"Did you mean {suggestions[0]!r}?" if suggestions else "'aaiclick datasets ls' lists them."
    return NotFoundError(f"There is no dataset {name!r:.120}.", remedy=remedy)


async def unknown_visible_dataset(connection: Connection, reader: Reader, name: str) -> NotFoundError:
    """Return the same, with a suggestion among the datasets that the reader may read."""
    return unknown_dataset(name, [row.name for row in await list_visible_datasets(connection, reader)])


async def list_generations(connection: Connection, dataset_id: UUID) -> list[GenerationRow]:
    return [GenerationRow(**row) for row in await connection.fetch(statement("list_generations"), dataset_id)]


async def list_dataset_runs(connection: Connection, dataset_id: UUID, limit: int = 20) -> list[asyncpg.Record]:
    return await connection.fetch(statement("list_dataset_runs"), dataset_id, limit)


async def set_read_roles(connection: Connection, org_id: UUID, name: str, roles: Sequence[str]) -> None:
    """Set the roles that may read a dataset. Unknown roles raise NotFoundError: a typo would hide it from everyone."""
    slugs = sorted(set(roles))
    unknown = await connection.fetch(statement("find_unknown_roles"), org_id, slugs)
    if unknown:
        missing = " and ".join(f"no role {row['slug']!r:.120}" for row in unknown)
        raise NotFoundError(f"There is {missing}.", remedy="'aaiclick role ls' lists them.")
    if await connection.fetchval(statement("set_read_roles"), org_id, name, slugs) is None:
        raise unknown_dataset(name)


async def list_serving_edges(connection: Connection, org_id: UUID) -> list[ServingEdge]:
    """Serving definitions with their input and output datasets."""
    return [ServingEdge(**row) for row in await connection.fetch(statement("list_serving_edges"), org_id)]


async def list_column_edges(connection: Connection, datasets: Sequence[UUID]) -> list[ColumnSource]:
    """Column lineage among datasets."""
    return [ColumnSource(*row) for row in await connection.fetch(statement("list_column_edges"), list(datasets))]


async def rematerialize(connection: Connection, org_id: UUID, dataset_id: UUID, name: str) -> int:
    """Rebuild a dataset and everything downstream; returns the job."""
    async with failpoints.transaction(connection, "rematerialize"):
        producer = await connection.fetchrow(statement("find_producer"), dataset_id)
        if producer is None:
            raise unknown_dataset(name)
        trigger = {"kind": "rematerialize", "dataset": name}
        if producer["activation"] == "source":
            job_id, _ = await dataset_events.start_source_job(connection, producer, trigger)
            return job_id
        await connection.execute(statement("clear_inputs_hash"), producer["dataset_version"])
        job_name = f"{producer['dag_name']} (rematerialize)"
        job_id = await dataset_events.open_job(connection, org_id, job_name, producer["dag_version_id"], trigger)
        event = dataset_events.Event(org_id, job_id, producer["dataset"], producer["generation"], only=producer["id"])
        await dataset_events.count_events(connection, await dataset_events.emit_events(connection, [event]))
        return job_id
