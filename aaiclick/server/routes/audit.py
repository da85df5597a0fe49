"""Route of the audit log."""

from __future__ import annotations

from aaiclick.api.field_types import Page
from aaiclick.api.tenancy import AuditEntry
from aaiclick.operations import audit as operations
from aaiclick.operations.actor import Permission
from aaiclick.server.pagination import Cursor, Limit
from aaiclick.server.routing import Context, Routes

routes = Routes("audit")


@routes.get("/v1/audit", Permission.ADMIN)
async def list_audit_entries(context: Context, cursor: Cursor = None, limit: Limit = 100) -> Page[AuditEntry]:
    """List audit entries of the organisation, newest first."""
    return await context.perform(operations.list_audit_entries, cursor=cursor, limit=limit)
