"""Route of the audit log."""

from __future__ import annotations

import json
from typing import Any

from aaiclick.api.field_types import Page
from aaiclick.api.orgs import AuditEntry
from aaiclick.operations.actor import Permission
from aaiclick.operations.pagination import make_page, read_id_cursor
from aaiclick.server.pagination import Cursor, Limit
from aaiclick.server.routes.common import tenant_connection
from aaiclick.server.routing import Context, Routes
from aaiclick.store.tenancy import audit

routes = Routes("audit")


@routes.get("/v1/audit", Permission.ADMIN)
async def list_audit_entries(context: Context, cursor: Cursor = None, limit: Limit = 100) -> Page[AuditEntry]:
    """List audit entries of the organisation, newest first."""
    async with tenant_connection(context) as connection:
        rows = await audit.list_audit(
            connection, context.actor.org_id, before=read_id_cursor(cursor, audit.LAST_ID), limit=limit + 1
        )
    return make_page(rows, limit, _to_audit_entry, lambda row: row["id"])


def _to_audit_entry(row: Any) -> AuditEntry:
    fields = {name: row[name] for name in AuditEntry.model_fields if name not in ("id", "detail")}
    return AuditEntry(**fields, id=str(row["id"]), detail=json.loads(row["detail"]))
