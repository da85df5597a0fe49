"""Retry policies per task type; `pause` pauses a type."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.postgres_connections import Connection


async def set_retry_policy(
    connection: Connection, name: str, policy: str | None, org_id: UUID = DEFAULT_ORG_ID
) -> None:
    """Set the retry policy of a type: JSON text with base_seconds and cap_seconds; None removes it."""
    await connection.execute(statement("set_retry_policy"), org_id, name, policy)


async def list_types(connection: Connection, org_id: UUID | None = None) -> list[asyncpg.Record]:
    """Types with settings, of one org or of all."""
    return await connection.fetch(statement("list_task_types"), org_id)
