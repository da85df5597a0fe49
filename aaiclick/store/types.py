"""Settings of types of tasks: how long they wait before they are tried again. (Pausing one is in `pauses`.)"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick.store.statements import statement
from aaiclick.store.words import DEFAULT_ORG_ID

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.engine import Connection


async def set_retry_policy(
    connection: Connection, name: str, policy: str | None, org_id: UUID = DEFAULT_ORG_ID
) -> None:
    """`policy` is JSON text with base_seconds and cap_seconds; None takes the type's policy away."""
    await connection.execute(statement("set_retry_policy"), org_id, name, policy)


async def list_types(connection: Connection, org_id: UUID | None = None) -> list[asyncpg.Record]:
    """Types that have settings of their own, of one org or of all."""
    return await connection.fetch(statement("list_types"), org_id)
