"""Endpoints of the outbox."""

from __future__ import annotations

from aaiclick.api.dead_letters import OutboxEvent, OutboxRetryRequest, OutboxState
from aaiclick.api.field_types import ChangedIdsResponse, Page
from aaiclick.client.endpoint_decorators import endpoint, listing
from aaiclick.client.requests import ApiRequest, build_request


class OutboxEndpoints:
    """Methods for events of datasets that are not routed."""

    @listing
    def list_outbox_events(
        self, *, status: OutboxState | None = None, cursor: str | None = None, limit: int = 100
    ) -> ApiRequest[Page[OutboxEvent]]:
        """Iterate over pending and failed events, newest first."""
        query = {"status": status, "cursor": cursor, "limit": limit}
        return build_request("GET", Page[OutboxEvent], "outbox", query=query)

    @endpoint
    def retry_outbox_events(self, selection: OutboxRetryRequest) -> ApiRequest[ChangedIdsResponse]:
        """Retry failed events, at most ten thousand at a time; their jobs continue."""
        return build_request("POST", ChangedIdsResponse, "outbox", "retry", body=selection)
