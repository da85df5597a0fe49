"""Endpoints of datasets."""

from __future__ import annotations

from typing import Any

from aaiclick.api.field_types import CreatedResponse
from aaiclick.api.objects import RowsResponse
from aaiclick.client.endpoint import endpoint
from aaiclick.client.requests import ApiRequest, build_request


class DatasetEndpoints:
    """Methods for datasets."""

    @endpoint
    def datasets(self) -> ApiRequest[list[dict[str, Any]]]:
        """List datasets that the caller may read."""
        return build_request("GET", list[dict[str, Any]], "datasets")

    @endpoint
    def get_dataset(self, name: str) -> ApiRequest[dict[str, Any]]:
        """Get a dataset with its columns, generations and runs."""
        return build_request("GET", dict[str, Any], "datasets", name)

    @endpoint
    def lineage(self, name: str, direction: str = "up") -> ApiRequest[dict[str, Any]]:
        """Get the upstream or downstream lineage of a dataset."""
        return build_request("GET", dict[str, Any], "datasets", name, "lineage", query={"direction": direction})

    @endpoint
    def query(self, sql: str, **limits: object) -> ApiRequest[RowsResponse]:
        """Return the rows of a SELECT over datasets; raises beyond `max_rows` or `seconds`."""
        return build_request("POST", RowsResponse, "datasets", "query", body={"sql": sql, **limits})

    @endpoint
    def rematerialize(self, name: str) -> ApiRequest[CreatedResponse]:
        """Rematerialize a dataset and everything downstream of it; returns the job id."""
        return build_request("POST", CreatedResponse, "datasets", name, "rematerialize")
