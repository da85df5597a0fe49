"""Datasets as readers see them: who may read what, where it is, what it was made from and by."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from aaiclick import faults
from aaiclick.errors import ConflictError, NotFoundError
from aaiclick.store import catalog_events
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.engine import Connection


@dataclass(frozen=True, slots=True)
class Reader:
    """Who reads, of which org. Without roles nothing is visible; None stands for whoever may see all of it."""

    org_id: UUID
    roles: frozenset[str] | None = frozenset()


@dataclass(frozen=True, slots=True)
class VersionRange:
    """First and last position that a version holds; None: no bound."""

    start: int | None = None
    end: int | None = None

    def __str__(self) -> str:
        return f"{'' if self.start is None else self.start}..{'' if self.end is None else self.end}"


async def register_version(
    connection: Connection, version_id: UUID, bounds: VersionRange, location: str | None = None
) -> tuple[UUID, bool]:
    """The version like `version_id` that holds a range, and whether it is new. Within a transaction of the caller.

    Locked by generation: of several callers one inserts, the others find its row.
    """
    ends = bounds.start, bounds.end
    await connection.execute(statement("lock_generation"), version_id)
    if location is not None:
        other = await connection.fetchrow(statement("overlapping_version"), version_id, *ends)
        if other is not None:
            raise ConflictError(
                f"The range {bounds} overlaps {VersionRange(*other)}, which is registered: rows would be read twice.",
                remedy="Register ranges that do not overlap.",
            )
    made = await connection.fetchval(statement("register_dataset_version"), version_id, uuid4(), location, *ends)
    if made is not None:
        return made, True
    found = await connection.fetchrow(statement("registered_version"), version_id, *ends)
    assert found is not None  # noqa: S101  (it was in the way of the insert, and versions are not deleted)
    if location is not None and found["storage_location"] != location:
        raise ConflictError(
            f"The range {bounds} is registered at {found['storage_location']}.",
            remedy="A range has one location: register it there, or another range.",
        )
    return found["id"], False


async def reader_of(connection: Connection, org_id: UUID, external_id: str) -> Reader:
    """A user as a reader: an admin of the org sees everything, anybody else what its roles may read, and who is
    disabled nothing. Raises NotFoundError if there is none.
    """
    row = await connection.fetchrow(statement("reader_roles"), org_id, external_id)
    if row is None:
        raise NotFoundError(f"There is no user {external_id!r:.120}.", remedy="'aaiclick user ls' lists them.")
    if row["disabled"]:
        return Reader(org_id)
    return Reader(org_id, None if row["role"] == "admin" else frozenset(row["roles"]))


async def visible(connection: Connection, reader: Reader, names: Sequence[str] | None = None) -> list[asyncpg.Record]:
    """The datasets that a reader may read, each in the generation that is served, as of one moment."""
    roles = None if reader.roles is None else sorted(reader.roles)
    return await connection.fetch(
        statement("visible_datasets"), reader.org_id, roles, None if names is None else list(names)
    )


async def may_read_version(connection: Connection, reader: Reader, version_id: UUID, names: Sequence[str]) -> bool:
    """Whether a reader may read everything that a version of a DAG makes and reads, and what now has these names."""
    if reader.roles is None:
        return True
    return bool(
        await connection.fetchval(
            statement("may_read_version"), version_id, reader.org_id, sorted(reader.roles), list(names)
        )
    )


async def readable_tasks(connection: Connection, reader: Reader, task_ids: Iterable[int]) -> dict[int, asyncpg.Record]:
    """Of the tasks that belong to definitions: which outputs a reader with roles may read, and whether everything."""
    roles = sorted(reader.roles or ())
    rows = await connection.fetch(statement("readable_tasks"), list(task_ids), reader.org_id, roles)
    return {row["id"]: row for row in rows}


async def find_dataset(connection: Connection, reader: Reader, name: str) -> asyncpg.Record:
    """Raises NotFoundError, in the same words whether there is none or it may not be read."""
    found = await visible(connection, reader, [name])
    if not found:
        raise no_dataset(name)
    return found[0]


def no_dataset(name: str) -> NotFoundError:
    return NotFoundError(f"There is no dataset {name!r:.120}.", remedy="'aaiclick datasets ls' lists them.")


async def generations_of(connection: Connection, dataset_id: UUID) -> list[asyncpg.Record]:
    return await connection.fetch(statement("dataset_versions_of"), dataset_id)


async def runs_of(connection: Connection, dataset_id: UUID, limit: int = 20) -> list[asyncpg.Record]:
    return await connection.fetch(statement("dataset_runs"), dataset_id, limit)


async def set_read_roles(connection: Connection, org_id: UUID, name: str, roles: Sequence[str]) -> None:
    """Let these roles read a dataset, and no others. One that is not there is refused: misspelt, it would shut out
    everybody.
    """
    slugs = sorted(set(roles))
    unknown = await connection.fetch(statement("unknown_roles"), org_id, slugs)
    if unknown:
        words = " and ".join(f"no role {row['slug']!r:.120}" for row in unknown)
        raise NotFoundError(f"There is {words}.", remedy="'aaiclick role ls' lists them.")
    if await connection.fetchval(statement("set_read_roles"), org_id, name, slugs) is None:
        raise no_dataset(name)


async def edges(connection: Connection, org_id: UUID) -> list[asyncpg.Record]:
    """The definitions that serve, with the datasets that they read and make."""
    return await connection.fetch(statement("serving_edges"), org_id)


async def column_edges(connection: Connection, datasets: Sequence[UUID]) -> list[asyncpg.Record]:
    """Column lineage among datasets."""
    return await connection.fetch(statement("column_edges"), list(datasets))


async def rematerialize(connection: Connection, org_id: UUID, dataset_id: UUID, name: str) -> int:
    """Make a dataset again, and then everything downstream; returns the job."""
    async with faults.transaction(connection, "rematerialize"):
        producer = await connection.fetchrow(statement("producer"), dataset_id)
        if producer is None:
            raise no_dataset(name)
        trigger = {"kind": "rematerialize", "dataset": name}
        if producer["activation"] == "source":
            job_id, _ = await catalog_events.fire(connection, producer, trigger)
            return job_id
        await connection.execute(statement("forget_inputs"), producer["dataset_version"])
        job_name = f"{producer['dag_name']} (rematerialize)"
        job_id = await catalog_events.open_job(connection, org_id, job_name, producer["dag_version_id"], trigger)
        event = catalog_events.Event(org_id, job_id, producer["dataset"], producer["generation"], only=producer["id"])
        await catalog_events.count_events(connection, await catalog_events.emit(connection, [event]))
        return job_id
