"""Is it well? The questions that the database can answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aaiclick.store.statements import statement

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

STALE_SECONDS = 60.0
"""How long a lease may have run out before somebody should have taken the task back."""


@dataclass(frozen=True, slots=True)
class Check:
    """One question and its answer."""

    name: str
    ok: bool
    detail: str


async def check_work(connection: Connection) -> list[Check]:
    """Whether there are workers, and whether lost tasks are taken back."""
    row = await connection.fetchrow(statement("health"), STALE_SECONDS)
    assert row is not None  # noqa: S101
    return [
        Check("database", True, "PostgreSQL answers"),
        Check("workers", row["workers"] > 0, f"{row['workers']} active"),
        Check("stale_tasks", row["stale"] == 0, f"{row['stale']} tasks whose lease ran out long ago"),
    ]
