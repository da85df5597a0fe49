"""Endpoint of the audit log."""

from __future__ import annotations

from aaiclick.api.field_types import Page
from aaiclick.api.tenancy import AuditEntry
from aaiclick.client.endpoint_decorators import listing
from aaiclick.client.requests import ApiRequest, build_request


class AuditEndpoints:
    """Methods for the audit log."""

    @listing
    def list_audit_entries(self, *, cursor: str | None = None, limit: int = 100) -> ApiRequest[Page[AuditEntry]]:
        """Iterate over audit entries of the organisation, newest first."""
        return build_request("GET", Page[AuditEntry], "audit", query={"cursor": cursor, "limit": limit})
