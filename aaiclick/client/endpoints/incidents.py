"""Endpoints of incidents."""

from __future__ import annotations

from aaiclick.api.field_types import Page
from aaiclick.api.incidents import Incident, SnoozeIncidentRequest
from aaiclick.client.endpoint_decorators import endpoint, listing
from aaiclick.client.requests import ApiRequest, build_request
from aaiclick.store.enums import IncidentRule


class IncidentEndpoints:
    """Methods for incidents."""

    @listing
    def list_incidents(
        self,
        *,
        acknowledged: bool | None = None,
        rule: IncidentRule | None = None,
        closed: bool = False,
        cursor: str | None = None,
        limit: int = 100,
    ) -> ApiRequest[Page[Incident]]:
        """Iterate over open incidents, newest first; with `closed` also over those that are over."""
        query = {"acknowledged": acknowledged, "rule": rule, "closed": closed, "cursor": cursor, "limit": limit}
        return build_request("GET", Page[Incident], "incidents", query=query)

    @endpoint
    def get_incident(self, incident_id: int) -> ApiRequest[Incident]:
        """Get an incident."""
        return build_request("GET", Incident, "incidents", incident_id)

    @endpoint
    def acknowledge_incident(self, incident_id: int) -> ApiRequest[Incident]:
        """Acknowledge an open incident: it is not escalated any more."""
        return build_request("POST", Incident, "incidents", incident_id, "acknowledge")

    @endpoint
    def snooze_incident(self, incident_id: int, seconds: float = 3600.0) -> ApiRequest[Incident]:
        """Send no messages about an open incident for some time; then one if it is still open."""
        body = SnoozeIncidentRequest(seconds=seconds)
        return build_request("POST", Incident, "incidents", incident_id, "snooze", body=body)

    @endpoint
    def close_incident(self, incident_id: int) -> ApiRequest[Incident]:
        """Close an open incident; another occurrence opens a new one."""
        return build_request("POST", Incident, "incidents", incident_id, "close")
