"""Endpoints of dead letters."""

from __future__ import annotations

from aaiclick.api.dead_letters import DeadLetter, DeadLetterGroup, DeadLetterSelection, RedriveRequest
from aaiclick.api.field_types import ChangedIdsResponse, Page
from aaiclick.client.endpoint_decorators import endpoint, listing
from aaiclick.client.requests import ApiRequest, build_request


class DeadLetterEndpoints:
    """Methods for dead letters."""

    @listing
    def list_dead_letters(
        self,
        *,
        type: str | None = None,  # noqa: A002  (the column's name)
        fingerprint: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> ApiRequest[Page[DeadLetter]]:
        """Iterate over dead letters, newest first."""
        query = {"type": type, "fingerprint": fingerprint, "cursor": cursor, "limit": limit}
        return build_request("GET", Page[DeadLetter], "dead-letters", query=query)

    @endpoint
    def group_dead_letters(self) -> ApiRequest[list[DeadLetterGroup]]:
        """Count dead letters by error fingerprint, most frequent first."""
        return build_request("GET", list[DeadLetterGroup], "dead-letters", "groups")

    @endpoint
    def redrive_dead_letters(self, selection: RedriveRequest) -> ApiRequest[ChangedIdsResponse]:
        """Redrive dead letters, at most ten thousand at a time."""
        return build_request("POST", ChangedIdsResponse, "dead-letters", "redrive", body=selection)

    @endpoint
    def discard_dead_letters(self, selection: DeadLetterSelection) -> ApiRequest[ChangedIdsResponse]:
        """Discard dead letters, at most ten thousand at a time: they become FAILED."""
        return build_request("POST", ChangedIdsResponse, "dead-letters", "discard", body=selection)
