"""Gateways between a worker and the queue: PostgreSQL directly, or a server over HTTP.

- `base`: interfaces of worker processes and supervisors
- `attempt`: interface of a running attempt, and its implementation for PostgreSQL
- `postgres`: calls functions of the store
- `http`: sends requests to a server, which calls the same functions of the store
- `schedule_requests`: requests that create schedules
- `http_client`: HTTP client, shared by all gateways of an event loop

Next: aaiclick.store.engine.queue; over HTTP, aaiclick.server.routes.worker_api comes first.
"""

from __future__ import annotations

import importlib

from aaiclick.orchestration.gateway.attempt import AttemptGateway
from aaiclick.orchestration.gateway.base import GatewayConnection, WorkerGateway
from aaiclick.orchestration.gateway.postgres import PostgresGateway
from aaiclick.server_addresses import ClickHouseEndpoint, PostgresEndpoint, WorkEndpoint

__all__ = ["AttemptGateway", "GatewayConnection", "PostgresGateway", "WorkerGateway", "make_gateway"]


def make_gateway(
    work: WorkEndpoint, clickhouse: ClickHouseEndpoint | None, *, sends_logs: bool = True
) -> WorkerGateway:
    """Make the gateway of an endpoint. A server sends the ClickHouse endpoint along with claims."""
    if isinstance(work, PostgresEndpoint):
        return PostgresGateway(work, clickhouse)
    http = importlib.import_module("aaiclick.orchestration.gateway.http")  # httpx is imported only if needed
    return http.HttpGateway(work, sends_logs=sends_logs)
