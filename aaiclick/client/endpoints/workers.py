"""Endpoints of workers."""

from __future__ import annotations

from types import NoneType

from aaiclick.api.field_types import Page
from aaiclick.api.workers import Worker
from aaiclick.client.endpoint_decorators import endpoint, listing
from aaiclick.client.requests import ApiRequest, build_request


class WorkerEndpoints:
    """Methods for workers."""

    @listing
    def list_workers(
        self, *, stopped: bool = False, cursor: str | None = None, limit: int = 100
    ) -> ApiRequest[Page[Worker]]:
        """Iterate over workers that serve the organisation; with `stopped` also over stopped ones."""
        query = {"stopped": stopped, "cursor": cursor, "limit": limit}
        return build_request("GET", Page[Worker], "workers", query=query)

    @endpoint
    def get_worker(self, worker_id: int) -> ApiRequest[Worker]:
        """Get a worker."""
        return build_request("GET", Worker, "workers", worker_id)

    @endpoint
    def drain_worker(self, worker_id: int) -> ApiRequest[None]:
        """Drain a worker: it finishes its running tasks and exits."""
        return build_request("POST", NoneType, "workers", worker_id, "drain")
