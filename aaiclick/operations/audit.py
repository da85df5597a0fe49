"""Reads of the audit log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aaiclick.api.field_types import Page
from aaiclick.api.tenancy import AuditEntry
from aaiclick.operations.actor import Actor, Permission
from aaiclick.operations.operation import operation
from aaiclick.operations.pagination import make_page, read_id_cursor
from aaiclick.store.tenancy import audit
from aaiclick.store.tenancy.audit import AuditRow

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection


@operation(Permission.ADMIN, changes=False)
async def list_audit_entries(
    connection: Connection, actor: Actor, *, cursor: str | None = None, limit: int = 100
) -> Page[AuditEntry]:
    """List audit entries of the organisation, newest first."""
    before = read_id_cursor(cursor, audit.LAST_ID)
    rows = await audit.list_audit(connection, actor.org_id, before=before, limit=limit + 1)
    return make_page(rows, limit, _to_entry, lambda row: row.id)


def _to_entry(row: AuditRow) -> AuditEntry:
    return AuditEntry.model_validate(row, from_attributes=True)
