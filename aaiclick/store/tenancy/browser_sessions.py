"""Browser sessions: the hash of a random token, and its API key or user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick.store.statements import statement

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection


@dataclass(frozen=True, slots=True)
class SessionHolder:
    """The API key (`prefix` and `scopes`) or the user (`user_id` and `role`) of a session."""

    org_id: UUID
    prefix: str | None
    scopes: list[str] | None
    user_id: UUID | None
    role: str | None


async def create_session(
    connection: Connection,
    token_hash: bytes,
    *,
    key_id: UUID | None,
    user_id: UUID | None,
    lifetime_seconds: float,
) -> None:
    """Create a session, and delete expired ones."""
    await connection.execute(statement("delete_expired_sessions"))
    await connection.execute(statement("insert_session"), token_hash, key_id, user_id, lifetime_seconds)


async def find_session(connection: Connection, token_hash: bytes) -> SessionHolder | None:
    """The holder of a session; None if it is expired, its key revoked or expired, or its user disabled."""
    row = await connection.fetchrow(statement("find_session"), token_hash)
    return None if row is None else SessionHolder(**row)


async def end_session(connection: Connection, token_hash: bytes) -> None:
    await connection.execute(statement("delete_session"), token_hash)
