"""Sessions of browsers: the hash of a random token, and the key or user it stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick.store.statements import statement

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.engine import Connection


async def create_session(
    connection: Connection,
    token_hash: bytes,
    *,
    key_id: UUID | None,
    user_id: UUID | None,
    lifetime_seconds: float,
) -> None:
    """A new session; those that are over are forgotten by the way."""
    await connection.execute(statement("forget_ui_sessions"))
    await connection.execute(statement("insert_ui_session"), token_hash, key_id, user_id, lifetime_seconds)


async def find_session(connection: Connection, token_hash: bytes) -> asyncpg.Record | None:
    """Whose session this is; None if it is over, its key revoked or expired, or its user disabled."""
    return await connection.fetchrow(statement("find_ui_session"), token_hash)


async def end_session(connection: Connection, token_hash: bytes) -> None:
    await connection.execute(statement("delete_ui_session"), token_hash)
