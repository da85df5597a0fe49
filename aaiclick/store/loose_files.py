"""Files of datasets that no generation is: being written, or replaced. They are known until they are deleted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick.store.leases import Lease
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

KEPT_SECONDS = 3600.0
"""How long a file stays after it was replaced: longer than any query over datasets may take."""

AGAIN_SECONDS = 300.0
"""After which a deletion that was begun, or failed, is tried again."""

AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class LooseFile:
    generation: UUID
    location: str
    """The prefix of its generation."""
    name: str


async def announce(connection: Connection, generation: UUID, name: str, lease: Lease) -> None:
    """Say that an attempt is about to write a file."""
    await connection.execute(statement("announce_file"), generation, name, lease.task_id, lease.attempt)


async def mark(
    connection: Connection, *, kept_seconds: float = KEPT_SECONDS, again_seconds: float = AGAIN_SECONDS
) -> list[LooseFile]:
    """Files that nobody reads or writes any more: to be deleted, then forgotten."""
    rows = await connection.fetch(statement("mark_loose_files"), AT_ONCE, kept_seconds, again_seconds)
    return [LooseFile(row["dataset_version"], row["location"], row["name"]) for row in rows]


async def forget(connection: Connection, files: Sequence[LooseFile]) -> None:
    generations, names = [each.generation for each in files], [each.name for each in files]
    await connection.execute(statement("forget_loose_files"), generations, names)
