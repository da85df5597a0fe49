"""The audit log: who did what."""

from __future__ import annotations

import json
from typing import Any

from aaiclick.server import shapes
from aaiclick.server.paging import Cursor, Limit, Page, id_cursor, page
from aaiclick.server.permissions import Permission
from aaiclick.server.routes.common import reading
from aaiclick.server.routing import Caller, Routes
from aaiclick.store import audit

routes = Routes("audit")


@routes.get("/v1/audit", Permission.ADMIN)
async def index(call: Caller, cursor: Cursor = None, limit: Limit = 100) -> Page[shapes.AuditEntry]:
    """List what was done in the organisation, newest first."""
    async with reading(call) as connection:
        rows = await audit.list_audit(
            connection, call.principal.org_id, before=id_cursor(cursor, audit.LAST_ID), limit=limit + 1
        )
    return page(rows, limit, _entry, lambda row: row["id"])


def _entry(row: Any) -> shapes.AuditEntry:
    plain = {name: row[name] for name in shapes.AuditEntry.model_fields if name not in ("id", "detail")}
    return shapes.AuditEntry(**plain, id=str(row["id"]), detail=json.loads(row["detail"]))
