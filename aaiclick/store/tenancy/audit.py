"""The audit log of an org."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick.store.statements import statement

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

LAST_ID = 2**63 - 1


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One audit entry."""

    id: int
    at: datetime
    actor: str
    action: str
    target: str
    request_id: str | None
    detail: dict[str, object]


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
) -> list[AuditRow]:
    """List audit entries, newest first; the last id is the `before` of the next page."""
    rows = await connection.fetch(statement("list_audit"), org_id, before, limit)
    return [AuditRow(**{**row, "detail": json.loads(row["detail"])}) for row in rows]
