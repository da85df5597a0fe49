"""Endpoints of the freshness of datasets."""

from __future__ import annotations

from aaiclick.api.freshness import DatasetFreshness
from aaiclick.client.endpoint_decorators import endpoint
from aaiclick.client.requests import ApiRequest, build_request


class FreshnessEndpoints:
    """Methods for the freshness of datasets."""

    @endpoint
    def list_freshness(
        self, *, dataset: str | None = None, late: bool = False, limit: int = 1_000
    ) -> ApiRequest[list[DatasetFreshness]]:
        """List datasets with a freshness policy, those that are due first."""
        query = {"dataset": dataset, "late": late, "limit": limit}
        return build_request("GET", list[DatasetFreshness], "freshness", query=query)
