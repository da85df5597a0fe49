"""HTTP client of the worker protocol: requests and responses are schemas of `aaiclick.api.worker_protocol`."""

from __future__ import annotations

import asyncio
from collections import Counter
from weakref import WeakKeyDictionary

from pydantic import BaseModel

from aaiclick import failpoints
from aaiclick.api.worker_protocol import endpoints
from aaiclick.api.worker_protocol.claims import ClickHouseAccess, ExchangeRequest, WaitRequest
from aaiclick.api.worker_protocol.endpoints import Endpoint, RequestT, ResponseT
from aaiclick.client import AsyncClient
from aaiclick.client.requests import ApiRequest
from aaiclick.errors import UnansweredError, UnreachableError
from aaiclick.server_addresses import ServerEndpoint

FAILPOINTS = {
    endpoints.START.path: "start",
    endpoints.ADD_TASKS.path: "add",
    endpoints.EMIT_EVENTS.path: "emit",
    endpoints.RENEW_LEASES.path: "extend_worker_leases",
}
"""Failpoint of each request path; see `_failpoint_of`."""


class WorkerApiClient:
    """HTTP client of the worker API, shared by all connections of an event loop to one server."""

    def __init__(self, endpoint: ServerEndpoint) -> None:
        self._endpoint = endpoint
        self._client = self._make_client()
        self._open_requests: Counter[AsyncClient] = Counter()
        self.clickhouse_access = ClickHouseAccess(no_clickhouse="nothing was claimed yet")

    def _make_client(self) -> AsyncClient:
        return AsyncClient(self._endpoint.url, self._endpoint.key or None)

    async def send_request(
        self, endpoint: Endpoint[RequestT, ResponseT], request: RequestT, *, timeout_seconds: float | None = None
    ) -> ResponseT:
        """Send a request; raises UnreachableError with the address of the server if there is no response."""
        client = self._client
        self._open_requests[client] += 1
        try:
            async with failpoints.statement(_failpoint_of(endpoint.path, request)):
                body = request.model_dump(mode="json")
                call: ApiRequest[ResponseT] = ApiRequest("POST", endpoint.path, body=body, response=endpoint.response)
                return await client.call(call, timeout_seconds=timeout_seconds)
        except UnreachableError as error:
            if isinstance(error, UnansweredError) and client is self._client:
                self._client = self._make_client()  # other connections of the pool are likely lost as well
            raise error.at(self._endpoint.address) from error.__cause__
        finally:
            self._open_requests[client] -= 1
            if client is not self._client and not self._open_requests[client]:
                del self._open_requests[client]
                await client.__aexit__(None, None, None)

    async def close(self) -> None:
        await self._client.__aexit__(None, None, None)


def _failpoint_of(path: str, request: BaseModel) -> str:
    """Name of the failpoint of a request; an exchange with outcomes passes `end`, one without `claim`."""
    if isinstance(request, ExchangeRequest):
        return "end" if request.completed or request.failed or request.released else "claim"
    return FAILPOINTS.get(path, path)


_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[ServerEndpoint, WorkerApiClient]] = WeakKeyDictionary()


def worker_api_client(endpoint: ServerEndpoint) -> WorkerApiClient:
    """The client of this event loop for a server."""
    clients = _clients.setdefault(asyncio.get_running_loop(), {})
    if endpoint not in clients:
        clients[endpoint] = WorkerApiClient(endpoint)
    return clients[endpoint]


async def check_server(endpoint: ServerEndpoint) -> None:
    """Raise an error if the server is unreachable or rejects the key."""
    client = WorkerApiClient(endpoint)
    try:
        await client.send_request(endpoints.WAIT, WaitRequest(wait_seconds=0))
    finally:
        await client.close()
