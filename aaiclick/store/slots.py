"""Concurrency keys: who is next for a free slot.

A task with a key is HELD when nothing else stops it, and made READY only while a slot of its key is free; so claims
need not know of keys, and a million tasks behind one key are not in their way. Whatever may free a slot or add to the
line calls `admit`, in its own transaction, which hands out slots one key at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick.store.statements import statement

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection


async def admit(connection: Connection, keys: Iterable[tuple[UUID, str | None]]) -> set[str]:
    """Hand out the free slots of `keys` (org, key); returns the queues in which something became ready."""
    wanted = sorted({(org_id, key) for org_id, key in keys if key is not None})
    if not wanted:
        return set()
    arrays = [org_id for org_id, _ in wanted], [key for _, key in wanted]
    # Two statements: the count must be made by a snapshot that is younger than the lock.
    await connection.execute(statement("lock_keys"), *arrays)
    return {row["queue"] for row in await connection.fetch(statement("admit"), *arrays)}
