"""DataContext of an attempt, and the clients that the attempts of a process share."""

from __future__ import annotations

import asyncio
import time
from uuid import UUID

from aaiclick.data import DataContext
from aaiclick.data.context import set_unavailable
from aaiclick.data.runtime.clickhouse_client import Client, connect
from aaiclick.endpoints import ClickHouseEndpoint
from aaiclick.errors import UnauthorisedError, UnreachableError
from aaiclick.orchestration.gateway import WorkerGateway
from aaiclick.orchestration.lifecycle import AttemptTables
from aaiclick.store.engine.leases import Claim

SOON_SECONDS = 1.0
OPEN_SECONDS = 30.0
CLIENT_TTL_SECONDS = 5.0
"""How long a client is used without asking the gateway again: its credentials may change."""


class ClickHouseClients:
    """Clients by organisation. Connects in the background: a task without data does not wait for an outage to end."""

    def __init__(self, gateway: WorkerGateway) -> None:
        self._gateway = gateway
        self._clients: dict[UUID, tuple[Client, float]] = {}
        self._connecting: dict[ClickHouseEndpoint, tuple[asyncio.Task[Client], float]] = {}

    def find_client(self, org_id: UUID) -> Client | None:
        """The client of an organisation, if it was used a moment ago."""
        client, until = self._clients.get(org_id, (None, 0.0))
        return client if time.monotonic() < until else None

    async def connect(self, org_id: UUID) -> Client:
        """Connect to the ClickHouse of an organisation; waits for at most SOON_SECONDS."""
        endpoint = await self._gateway.clickhouse(org_id)
        if endpoint not in self._connecting:
            connecting = asyncio.create_task(_open_client(endpoint))
            connecting.add_done_callback(lambda _: self._connecting.pop(endpoint, None))
            self._connecting[endpoint] = connecting, time.monotonic() + SOON_SECONDS
        connecting, until = self._connecting[endpoint]
        done, _ = await asyncio.wait([connecting], timeout=max(0.0, until - time.monotonic()))
        if not done:
            raise _unreachable_error(endpoint)
        try:
            client = connecting.result()
        except TimeoutError as error:
            raise _unreachable_error(endpoint) from error
        self._clients[org_id] = client, time.monotonic() + CLIENT_TTL_SECONDS
        return client


class TaskData:
    """DataContext of one attempt; if ClickHouse is unreachable, it is opened when the result is published."""

    def __init__(self, clients: ClickHouseClients, claim: Claim, tables: AttemptTables, max_literal_bytes: int) -> None:
        self._clients = clients
        self._claim = claim
        self._tables = tables
        self._max_literal_bytes = max_literal_bytes
        self._context: DataContext | None = None

    async def open(self) -> None:
        """Open the context, or set the error that the first use of data raises."""
        if self._context is not None:
            return
        claim = self._claim
        client = self._clients.find_client(claim.org_id)
        if client is None:
            try:
                client = await self._clients.connect(claim.org_id)
            except (UnreachableError, UnauthorisedError) as error:
                set_unavailable(error)
                return
            set_unavailable(None)
        context = DataContext(
            client.endpoint,
            lifecycle=self._tables,
            name=f"task {claim.lease.task_id}",
            query_prefix=f"aai-{claim.lease.task_id}-{claim.lease.attempt}",
            max_literal_bytes=self._max_literal_bytes,
        )
        self._context = context.enter_connected(client, self._tables)

    async def close(self) -> None:
        if self._context is not None:
            await self._context.__aexit__(None, None, None)


def _unreachable_error(endpoint: ClickHouseEndpoint) -> UnreachableError:
    return UnreachableError(
        f"{endpoint} does not answer.", remedy="Check that it runs, and the network between it and this worker."
    ).at(endpoint.address)


async def _open_client(endpoint: ClickHouseEndpoint) -> Client:
    async with asyncio.timeout(OPEN_SECONDS):
        return await connect(endpoint)
