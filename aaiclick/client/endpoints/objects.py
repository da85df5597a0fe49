"""Endpoints of Objects. `export_object` streams a file, so each client has its own."""

from __future__ import annotations

from aaiclick.api.field_types import Page
from aaiclick.api.objects import ObjectSchema, ObjectState, ObjectSummary, RowsResponse
from aaiclick.client.endpoint_decorators import endpoint, listing
from aaiclick.client.requests import ApiRequest, build_request


class ObjectEndpoints:
    """Methods for Objects."""

    @listing
    def list_objects(
        self,
        *,
        job_id: int | None = None,
        state: ObjectState | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> ApiRequest[Page[ObjectSummary]]:
        """Iterate over Objects by table; missing ones are only listed for a job or with their state."""
        query = {"job_id": job_id, "state": state, "cursor": cursor, "limit": limit}
        return build_request("GET", Page[ObjectSummary], "objects", query=query)

    @endpoint
    def get_object(self, table_id: str) -> ApiRequest[ObjectSchema]:
        """Get an Object with its columns."""
        return build_request("GET", ObjectSchema, "objects", table_id)

    @endpoint
    def preview_object(self, table_id: str, *, offset: int = 0, limit: int = 100) -> ApiRequest[RowsResponse]:
        """Get rows of an Object in their order."""
        query = {"offset": offset, "limit": limit}
        return build_request("GET", RowsResponse, "objects", table_id, "rows", query=query)
