"""State shared by all requests: connection pools, caches, background components and authentication."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast
from uuid import UUID

from starlette.requests import Request

from aaiclick.errors import AaiclickError, ForbiddenError, NotFoundError
from aaiclick.local import clickhouse_endpoint
from aaiclick.operations.actor import Actor
from aaiclick.orchestration.tenant_databases import TenantDatabases
from aaiclick.server import metrics
from aaiclick.server.analysis_pool import AnalysisPool
from aaiclick.server.authentication import Authenticator, bearer_token
from aaiclick.server.cache import QueryCache
from aaiclick.server.change_feed import ChangeFeed
from aaiclick.server.csrf import is_cross_site_change
from aaiclick.server.event_router import ServerEventRouter
from aaiclick.server.listen_address import is_loopback
from aaiclick.server.notification_sender import ServerNotificationSender
from aaiclick.server.query_limits import QueryLimiter
from aaiclick.server.work_notifier import WorkNotifier
from aaiclick.server.worker_clickhouse_users import WorkerCredentials
from aaiclick.server_addresses import ClickHouseEndpoint, PostgresEndpoint
from aaiclick.settings import Settings
from aaiclick.store.engine.workers import are_workers_of_org
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.postgres_connections import SERVICE_IDLE_TRANSACTION_SECONDS, create_pool
from aaiclick.store.tenancy.api_keys import SCOPES
from aaiclick.store.tenancy.postgres_api_role import create_api_pool, ensure_api_role, set_tenant

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection, Pool

API_CONNECTIONS = 16
OWNER_CONNECTIONS = 8
MAX_KNOWN_WORKERS = 100_000

NO_AUTH_PRINCIPAL = Actor(DEFAULT_ORG_ID, "anonymous (no authentication)", frozenset(SCOPES))


class AppState:
    """Pools, caches and background components of one server."""

    def __init__(self, settings: Settings, postgres: PostgresEndpoint, *, auth: bool = True) -> None:
        self.settings = settings
        self.postgres = postgres
        self.auth = auth
        self.authenticator = Authenticator(settings)
        self._api_pool: Pool | None = None
        self._owner_pool: Pool | None = None
        self.closing = asyncio.Event()
        self.change_feed = ChangeFeed(postgres, self.closing)
        self.work_notifier = WorkNotifier(postgres, self.closing)
        self.event_router = ServerEventRouter(postgres)
        self.notification_sender = ServerNotificationSender(postgres)
        self.queue_depths = QueryCache()
        self.health_cache = QueryCache(max_ttl_seconds=1.0)  # also after a check that timed out
        self._tenants: TenantDatabases | None = None
        self.worker_credentials = WorkerCredentials(settings, self._get_tenants, self.owner_connection)
        self._known_workers: set[tuple[UUID, int]] = set()
        self.metrics_cache = QueryCache(ttl_factor=metrics.TTL_FACTOR, min_ttl_seconds=metrics.MIN_TTL_SECONDS)
        self.analysis_pool = AnalysisPool()
        self.query_limiter = QueryLimiter()
        self.failure: AaiclickError | None = None
        """The error that prevented the start, raised again by `serve`."""

    async def start(self) -> None:
        try:
            await self._start()
        except AaiclickError as error:
            self.failure = error
            raise

    async def _start(self) -> None:
        self._owner_pool = create_pool(
            self.postgres, size=OWNER_CONNECTIONS, silent_seconds=SERVICE_IDLE_TRANSACTION_SECONDS
        )
        self._api_pool = create_api_pool(
            self.postgres, size=API_CONNECTIONS, statement_seconds=self.settings.server_statement_seconds
        )
        await self._owner_pool
        await self._api_pool
        async with self.owner_connection() as connection:
            await ensure_api_role(connection)
        async with self.tenant_connection(DEFAULT_ORG_ID):
            pass  # fails now, not at the first request, if row-level security cannot be set up

    def close_streams(self) -> None:
        """End event streams and waiting requests before the server stops."""
        self.closing.set()
        self.work_notifier.notify()
        self._waking = asyncio.ensure_future(self.change_feed.wake_all())

    async def stop(self) -> None:
        self.closing.set()
        await self.analysis_pool.close()
        for pool in (self._api_pool, self._owner_pool):
            if pool is not None:
                await pool.close()

    @asynccontextmanager
    async def tenant_connection(self, org_id: UUID) -> AsyncGenerator[Connection]:
        """A connection that row-level security restricts to one org."""
        assert self._api_pool is not None  # noqa: S101
        async with self._api_pool.acquire() as connection:
            tenant_connection = cast("Connection", connection)
            await set_tenant(tenant_connection, org_id)
            yield tenant_connection

    @asynccontextmanager
    async def owner_connection(self) -> AsyncGenerator[Connection]:
        """A connection without row-level security, for credentials, claims and changes across orgs."""
        assert self._owner_pool is not None  # noqa: S101
        async with self._owner_pool.acquire() as connection:
            yield cast("Connection", connection)

    async def authenticate(self, request: Request) -> Actor | None:
        """Authenticate a request; None without a credential. An invalid one raises, also on public routes."""
        if not self.auth:
            _refuse_foreign_host(request)
            _refuse_cross_site_changes(request)
            return NO_AUTH_PRINCIPAL
        token = bearer_token(request.headers.getlist("authorization"))
        if token is None:
            return None
        async with self.owner_connection() as connection:
            return await self.authenticator.identify(connection, token)

    async def identify(self, connection: Connection, token: str) -> Actor:
        """Authenticate a token; raises CredentialError."""
        return await self.authenticator.identify(connection, token)

    async def clickhouse_endpoint(self, org_id: UUID) -> ClickHouseEndpoint:
        """ClickHouse database of an org: the configured one for the default org, else one of its own."""
        return await (await self._get_tenants()).ensure_database(org_id)

    async def _get_tenants(self) -> TenantDatabases:
        if self._tenants is None:
            self._tenants = TenantDatabases(await clickhouse_endpoint(self.settings))
        return self._tenants

    async def check_workers(self, connection: Connection, org_id: UUID, worker_ids: Sequence[int]) -> None:
        """Raise NotFoundError unless all workers belong to the org. Cached, since a worker never changes its org."""
        self.worker_credentials.activate()
        unknown = [worker_id for worker_id in worker_ids if (org_id, worker_id) not in self._known_workers]
        if not unknown:
            return
        if not await are_workers_of_org(connection, unknown, org_id):
            raise NotFoundError("There is no such worker.", remedy="Register it: POST /v1/worker-api/workers/register.")
        if len(self._known_workers) > MAX_KNOWN_WORKERS:
            self._known_workers.clear()
        self._known_workers.update((org_id, worker_id) for worker_id in unknown)


@dataclass(frozen=True, slots=True)
class OrgDatabases:
    """Databases of one org, for operations."""

    app_state: AppState
    org_id: UUID

    def connect(self, *, as_owner: bool = False) -> AbstractAsyncContextManager[Connection]:
        return self.app_state.owner_connection() if as_owner else self.app_state.tenant_connection(self.org_id)

    async def clickhouse(self) -> ClickHouseEndpoint:
        return await self.app_state.clickhouse_endpoint(self.org_id)


def _refuse_foreign_host(request: Request) -> None:
    """Refuse host names other than loopback without authentication (DNS rebinding)."""
    host = request.headers.get("host", "")
    name = host[: host.index("]") + 1] if host.startswith("[") and "]" in host else host.partition(":")[0]
    if not is_loopback(name):
        raise ForbiddenError(f"Without authentication the server accepts loopback host names only, not {name!r}.")


def _refuse_cross_site_changes(request: Request) -> None:
    """Refuse changes from pages of other sites without authentication (CSRF)."""
    if is_cross_site_change(request):
        raise ForbiddenError(
            "Without authentication the server refuses changes from pages of other sites.",
            remedy="Start it with authentication and send an API key, or use a program or the server's own pages.",
        )
