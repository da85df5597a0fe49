"""Answers kept by their Idempotency-Key.

The answer is written in the transaction that did the work, under an advisory lock: either both are there or neither,
however the server ends, and there is no stale mark to clean up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick.errors import ConflictError
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

KEPT_SECONDS = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered, to which body."""

    body_hash: bytes
    status: int
    body: str


async def begin(connection: Connection, org_id: UUID, route: str, key: str) -> Answer | None:
    """Take the key for this transaction; returns what it was answered before, if it was. Taken: ConflictError."""
    if not await connection.fetchval(statement("lock_idempotency"), f"{org_id} {route} {key}"):
        raise ConflictError(
            "A request with this Idempotency-Key is being answered at this moment.", remedy="Ask again in a second."
        )
    row = await connection.fetchrow(statement("find_idempotency"), org_id, route, key)
    return None if row is None else Answer(bytes(row["body_hash"]), row["status"], row["body"])


async def keep(connection: Connection, org_id: UUID, route: str, key: str, answer: Answer) -> None:
    await connection.execute(
        statement("keep_idempotency"), org_id, route, key, answer.body_hash, answer.status, answer.body
    )


async def forget(connection: Connection, *, older_than_seconds: float = KEPT_SECONDS) -> None:
    """Drop answers that nobody asks for any more."""
    await connection.execute(statement("forget_idempotency"), older_than_seconds)
