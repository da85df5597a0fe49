"""The audit log of an org."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick.store.statements import statement

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.connections import Connection

LAST_ID = 2**63 - 1


async def write_audit(
    connection: Connection,
    *,
    org_id: UUID,
    actor: str,
    action: str,
    target: str,
    request_id: str | None = None,
    detail: Mapping[str, object] | None = None,
) -> None:
    """Write one audit entry, in the transaction of the operation."""
    await connection.execute(
        statement("write_audit"), org_id, actor, action, target, request_id, json.dumps(dict(detail or {}))
    )


async def list_audit(
    connection: Connection, org_id: UUID, *, before: int = LAST_ID, limit: int = 100
) -> list[asyncpg.Record]:
    """List audit entries, newest first; the last id is the `before` of the next page."""
    return await connection.fetch(statement("list_audit"), org_id, before, limit)
