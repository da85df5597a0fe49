"""Concurrency keys: make held tasks ready while slots of their key are free.

A task with a key is HELD when nothing else blocks it, and READY only while it has a slot. Claims therefore ignore keys,
and do not scan the tasks that wait for one. Every transaction that may free a slot or add a held task calls
`admit_held_tasks`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick.store.statements import statement

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection


async def admit_held_tasks(connection: Connection, keys: Iterable[tuple[UUID, str | None]]) -> set[str]:
    """Fill the free slots of `keys` (org, key) with held tasks; returns the queues that have newly ready tasks."""
    sorted_keys = sorted({(org_id, key) for org_id, key in keys if key is not None})
    if not sorted_keys:
        return set()
    arrays = [org_id for org_id, _ in sorted_keys], [key for _, key in sorted_keys]
    # Two statements: the count needs a snapshot that is younger than the lock.
    await connection.execute(statement("lock_concurrency_keys"), *arrays)
    return {row["queue"] for row in await connection.fetch(statement("admit_held_tasks"), *arrays)}
