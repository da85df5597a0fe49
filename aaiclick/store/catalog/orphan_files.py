"""Files of datasets that belong to no generation: being written, or replaced. They are tracked until deleted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick.store.engine.leases_and_outcomes import Lease
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

RETENTION_SECONDS = 3600.0
"""Retention of a replaced file: longer than any query over datasets may take."""

RETRY_SECONDS = 300.0
"""Interval after which an unfinished or failed deletion is repeated."""

BATCH_SIZE = 200


@dataclass(frozen=True, slots=True)
class OrphanFile:
    generation: UUID
    location: str
    """Storage prefix of its generation."""
    name: str


async def register_file(connection: Connection, generation: UUID, name: str, lease: Lease) -> None:
    """Record a file before an attempt writes it."""
    await connection.execute(statement("register_file"), generation, name, lease.task_id, lease.attempt)


async def mark_orphan_files(
    connection: Connection, *, retention_seconds: float = RETENTION_SECONDS, retry_seconds: float = RETRY_SECONDS
) -> list[OrphanFile]:
    """Mark files without readers and writers for deletion.

    The caller deletes them and then calls `delete_orphan_files`.
    """
    rows = await connection.fetch(statement("mark_orphan_files"), BATCH_SIZE, retention_seconds, retry_seconds)
    return [OrphanFile(row["dataset_version"], row["location"], row["name"]) for row in rows]


async def delete_orphan_files(connection: Connection, files: Sequence[OrphanFile]) -> None:
    generations, names = [file.generation for file in files], [file.name for file in files]
    await connection.execute(statement("delete_orphan_files"), generations, names)
