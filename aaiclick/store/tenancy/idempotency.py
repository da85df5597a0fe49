"""Stored responses by Idempotency-Key.

A response is written in the transaction of its operation, under an advisory lock: both are committed or neither, and no
stale marker remains after a crash.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick.errors import ConflictError
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

RETENTION_SECONDS = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response, and the hash of the request body."""

    body_hash: bytes
    status: int
    body: str


async def lock_idempotency_key(connection: Connection, org_id: UUID, route: str, key: str) -> StoredResponse | None:
    """Lock the key for this transaction; returns the stored response. Raises ConflictError if the key is locked."""
    if not await connection.fetchval(statement("lock_idempotency_key"), f"{org_id} {route} {key}"):
        raise ConflictError(
            "Another request with this Idempotency-Key is in progress.", remedy="Repeat the request in a second."
        )
    row = await connection.fetchrow(statement("find_response"), org_id, route, key)
    return None if row is None else StoredResponse(bytes(row["body_hash"]), row["status"], row["body"])


async def store_response(connection: Connection, org_id: UUID, route: str, key: str, response: StoredResponse) -> None:
    await connection.execute(
        statement("insert_response"), org_id, route, key, response.body_hash, response.status, response.body
    )


async def delete_old_responses(connection: Connection, *, older_than_seconds: float = RETENTION_SECONDS) -> None:
    """Delete responses past their retention."""
    await connection.execute(statement("delete_old_responses"), older_than_seconds)
