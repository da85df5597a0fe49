"""Endpoints of the results of data tests."""

from __future__ import annotations

from aaiclick.api.data_tests import DataTestResult
from aaiclick.api.field_types import Page
from aaiclick.client.endpoint_decorators import listing
from aaiclick.client.requests import ApiRequest, build_request


class DataTestEndpoints:
    """Methods for the results of data tests."""

    @listing
    def list_data_tests(
        self, *, dataset: str | None = None, failed: bool = False, cursor: str | None = None, limit: int = 100
    ) -> ApiRequest[Page[DataTestResult]]:
        """Iterate over results, newest first: the history of a dataset, or the latest result of every test."""
        query = {"dataset": dataset, "failed": failed, "cursor": cursor, "limit": limit}
        return build_request("GET", Page[DataTestResult], "data-tests", query=query)
