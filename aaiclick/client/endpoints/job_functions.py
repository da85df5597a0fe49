"""Endpoints of job functions."""

from __future__ import annotations

from collections.abc import Mapping

from aaiclick.api.field_types import CreatedResponse, Page
from aaiclick.api.job_functions import JobFunction, JobFunctionDetail
from aaiclick.client.endpoint_decorators import endpoint, listing
from aaiclick.client.requests import ApiRequest, build_request


class JobFunctionEndpoints:
    """Methods for job functions."""

    @listing
    def list_job_functions(self, *, cursor: str | None = None, limit: int = 100) -> ApiRequest[Page[JobFunction]]:
        """Iterate over job functions by entrypoint."""
        return build_request("GET", Page[JobFunction], "functions", query={"cursor": cursor, "limit": limit})

    @endpoint
    def get_job_function(self, entrypoint: str) -> ApiRequest[JobFunctionDetail]:
        """Get a job function with its last jobs."""
        return build_request("GET", JobFunctionDetail, "functions", entrypoint)

    @endpoint
    def run_job_function(
        self, entrypoint: str, arguments: Mapping[str, object] | None = None
    ) -> ApiRequest[CreatedResponse]:
        """Validate arguments and submit a job of a function."""
        body = {"arguments": dict(arguments or {})}
        return build_request("POST", CreatedResponse, "functions", entrypoint, "run", body=body)
