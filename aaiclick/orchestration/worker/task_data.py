"""DataContext of an attempt, and the clients that the attempts of a process share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from uuid import UUID

from aaiclick.data import DataContext
from aaiclick.data.context import provide_context, set_unavailable
from aaiclick.data.runtime.clickhouse_client import ClickHouseClient, connect
from aaiclick.errors import AaiclickError, UnauthorisedError, UnreachableError
from aaiclick.orchestration.gateway import WorkerGateway
from aaiclick.orchestration.pg_lifecycle import AttemptTables
from aaiclick.server_addresses import ClickHouseEndpoint
from aaiclick.store.engine.leases_and_outcomes import Claim

SOON_SECONDS = 1.0
OPEN_SECONDS = 30.0
CLIENT_TTL_SECONDS = 5.0
"""How long a client is used without asking the gateway again: its credentials may change."""
REFUSED_SECONDS = 1.0
"""How long tasks start without another attempt to connect."""


class ClickHouseClients:
    """Clients by organisation. Connects in the background: a task without data does not wait for an outage to end."""

    def __init__(self, gateway: WorkerGateway) -> None:
        self._gateway = gateway
        self._clients: dict[UUID, tuple[ClickHouseClient, float]] = {}
        self._connecting: dict[ClickHouseEndpoint, tuple[asyncio.Task[ClickHouseClient], float]] = {}
        self._refusals: dict[UUID, tuple[AaiclickError, float]] = {}

    def find_client(self, org_id: UUID) -> ClickHouseClient | None:
        """The client of an organisation, if it was used a moment ago."""
        client, until = self._clients.get(org_id, (None, 0.0))
        return client if time.monotonic() < until else None

    async def connect(self, org_id: UUID) -> ClickHouseClient:
        """Connect to the ClickHouse of an organisation; waits for at most SOON_SECONDS."""
        try:
            return await self._connect(org_id)
        except (UnreachableError, UnauthorisedError) as error:
            self._refusals[org_id] = error, time.monotonic() + REFUSED_SECONDS
            raise

    def find_refusal(self, org_id: UUID) -> AaiclickError | None:
        """The error of the last attempt to connect, if it failed a moment ago."""
        error, until = self._refusals.get(org_id, (None, 0.0))
        return error if time.monotonic() < until else None

    async def _connect(self, org_id: UUID) -> ClickHouseClient:
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
    """DataContext of one attempt, opened at its first use.

    If ClickHouse is unreachable, `open` connects again when the result is published.
    """

    __slots__ = ("_claim", "_client", "_clients", "_context", "_is_closed", "_max_literal_bytes", "_tables")

    def __init__(self, clients: ClickHouseClients, claim: Claim, tables: AttemptTables, max_literal_bytes: int) -> None:
        self._clients = clients
        self._claim = claim
        self._tables = tables
        self._max_literal_bytes = max_literal_bytes
        self._client: ClickHouseClient | None = None
        self._context: DataContext | None = None
        self._is_closed = False

    def provide(self) -> bool:
        """Make the context the current one; returns False if `open` must connect first."""
        provide_context(self)
        self._client = self._clients.find_client(self._claim.org_id)
        if self._client is not None:
            return True
        error = self._clients.find_refusal(self._claim.org_id)
        if error is not None:
            set_unavailable(error)
        return error is not None

    async def open(self) -> None:
        """Connect, or set the error that the first use of data raises."""
        if self._client is not None:
            return
        try:
            self._client = await self._clients.connect(self._claim.org_id)
        except (UnreachableError, UnauthorisedError) as error:
            set_unavailable(error)
        else:
            set_unavailable(None)

    def find_context(self) -> DataContext | None:
        """The context of the attempt; None if it is not connected, or has ended without using data."""
        if self._context is None and self._client is not None and not self._is_closed:
            lease = self._claim.lease
            context = DataContext(
                self._client.endpoint,
                lifecycle=self._tables,
                name=f"task {lease.task_id}",
                query_prefix=f"aai-{lease.task_id}-{lease.attempt}",
                max_literal_bytes=self._max_literal_bytes,
            )
            self._context = context.open_connected(self._client, self._tables)
        return self._context

    def close(self) -> Awaitable[None] | None:
        """End the use of data; returns what is left to await, if the context was opened."""
        self._is_closed = True
        return None if self._context is None else self._context.__aexit__(None, None, None)


def _unreachable_error(endpoint: ClickHouseEndpoint) -> UnreachableError:
    return UnreachableError(
        f"{endpoint} does not answer.", remedy="Check that it runs, and the network between it and this worker."
    ).at(endpoint.address)


async def _open_client(endpoint: ClickHouseEndpoint) -> ClickHouseClient:
    async with asyncio.timeout(OPEN_SECONDS):
        return await connect(endpoint)
