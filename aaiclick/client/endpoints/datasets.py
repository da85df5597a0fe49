"""Endpoints of datasets."""

from __future__ import annotations

from collections.abc import Sequence
from types import NoneType

from aaiclick.api.datasets import (
    Dataset,
    DatasetDetail,
    LineageDirection,
    LineageResponse,
    RegisteredVersion,
    RegisterVersionRequest,
)
from aaiclick.api.field_types import CreatedResponse
from aaiclick.api.objects import RowsResponse
from aaiclick.client.endpoint_decorators import endpoint
from aaiclick.client.requests import ApiRequest, build_request


class DatasetEndpoints:
    """Methods for datasets."""

    @endpoint
    def list_datasets(self) -> ApiRequest[list[Dataset]]:
        """List the datasets that the caller may read."""
        return build_request("GET", list[Dataset], "datasets")

    @endpoint
    def get_dataset(self, name: str) -> ApiRequest[DatasetDetail]:
        """Get a dataset with its columns, generations and runs."""
        return build_request("GET", DatasetDetail, "datasets", name)

    @endpoint
    def get_lineage(self, name: str, direction: LineageDirection = "up") -> ApiRequest[LineageResponse]:
        """Get the upstream or (`down`) downstream lineage of a dataset."""
        return build_request("GET", LineageResponse, "datasets", name, "lineage", query={"direction": direction})

    @endpoint
    def query_datasets(self, sql: str, *, max_rows: int = 10_000, seconds: float = 30.0) -> ApiRequest[RowsResponse]:
        """Return the rows of a SELECT over datasets; raises beyond `max_rows` or `seconds`."""
        body = {"sql": sql, "max_rows": max_rows, "seconds": seconds}
        return build_request("POST", RowsResponse, "datasets", "query", body=body)

    @endpoint
    def set_dataset_readers(self, name: str, roles: Sequence[str]) -> ApiRequest[None]:
        """Set the roles that may read a dataset; without roles, only admins may."""
        return build_request("PUT", NoneType, "datasets", name, "readers", body={"roles": list(roles)})

    @endpoint
    def rematerialize_dataset(self, name: str) -> ApiRequest[CreatedResponse]:
        """Rebuild a dataset and everything downstream of it; returns the job id."""
        return build_request("POST", CreatedResponse, "datasets", name, "rematerialize")

    @endpoint
    def register_dataset_version(self, name: str, version: RegisterVersionRequest) -> ApiRequest[RegisteredVersion]:
        """Register a version of a dataset by its range; registering it again changes nothing."""
        return build_request("POST", RegisteredVersion, "datasets", name, "versions", body=version)
