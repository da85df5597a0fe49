"""What the routes work with: connections to the databases, and who is asking."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, cast
from uuid import UUID

from starlette.requests import Request

from aaiclick.errors import AaiclickError, ForbiddenError, NotFoundError
from aaiclick.local import clickhouse_target
from aaiclick.orchestration.tenants import Tenants
from aaiclick.server.address import is_loopback
from aaiclick.server.analysis_pool import AnalysisPool
from aaiclick.server.bell import Bell
from aaiclick.server.events import Routing
from aaiclick.server.figures import Scraped
from aaiclick.server.identity import Identity, bearer_token
from aaiclick.server.lending import Lending
from aaiclick.server.live import Live
from aaiclick.server.origin import changes_across_sites
from aaiclick.server.permissions import Principal
from aaiclick.server.query_slots import QuerySlots
from aaiclick.server.shared import Shared
from aaiclick.settings import Settings
from aaiclick.store.api_role import create_api_pool, ensure_api_role, speak_for
from aaiclick.store.engine import SERVANT_SILENT_SECONDS, create_pool
from aaiclick.store.health import Check
from aaiclick.store.keys import SCOPES
from aaiclick.store.words import DEFAULT_ORG_ID
from aaiclick.store.workers import are_of
from aaiclick.targets import ClickHouseTarget, PostgresTarget

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.engine import Connection, Pool

API_CONNECTIONS = 16
OWNER_CONNECTIONS = 8
KNOWN_WORKERS = 100_000

ANYBODY = Principal(DEFAULT_ORG_ID, "anybody (no authentication)", frozenset(SCOPES))


class Service:
    """Everything that outlives a request."""

    def __init__(self, settings: Settings, postgres: PostgresTarget, *, auth: bool = True) -> None:
        self.settings = settings
        self.postgres = postgres
        self.auth = auth
        self.identity = Identity(settings)
        self._api: Pool | None = None
        self._owner: Pool | None = None
        self.closing = asyncio.Event()
        self.live = Live(postgres, self.closing)
        self.bell = Bell(postgres, self.closing)
        self.routing = Routing(postgres)
        self.depths = Shared[list["asyncpg.Record"]]()
        self.health = Shared[list[Check]](max_age_seconds=1.0)  # a check that timed out is not kept for a minute
        self._tenants: Tenants | None = None
        self.lending = Lending(settings, self._databases, self.owner)
        self._workers: set[tuple[UUID, int]] = set()
        self.figures = Scraped(self.owner, settings.worker_timeout_seconds)
        self.analysis = AnalysisPool()
        self.queries = QuerySlots()
        self.failure: AaiclickError | None = None
        """Why it could not start, for whoever waits for it."""

    async def start(self) -> None:
        try:
            await self._start()
        except AaiclickError as error:
            self.failure = error
            raise

    async def _start(self) -> None:
        self._owner = create_pool(self.postgres, size=OWNER_CONNECTIONS, silent_seconds=SERVANT_SILENT_SECONDS)
        self._api = create_api_pool(
            self.postgres, size=API_CONNECTIONS, statement_seconds=self.settings.server_statement_seconds
        )
        await self._owner
        await self._api
        async with self.owner() as connection:
            await ensure_api_role(connection)
        async with self.tenant(DEFAULT_ORG_ID):
            pass  # a session that cannot be walled in is refused now, not at the first request

    def close_streams(self) -> None:
        """Streams end: the server is about to stop."""
        self.closing.set()
        self.bell.ring()
        self._ending = asyncio.ensure_future(self.live.wake_all())

    async def stop(self) -> None:
        self.closing.set()
        await self.analysis.close()
        for pool in (self._api, self._owner):
            if pool is not None:
                await pool.close()

    @asynccontextmanager
    async def tenant(self, org_id: UUID) -> AsyncGenerator[Connection]:
        """A connection behind the wall: it sees this org and nothing else."""
        assert self._api is not None  # noqa: S101
        async with self._api.acquire() as connection:
            plain = cast("Connection", connection)
            await speak_for(plain, org_id)
            yield plain

    @asynccontextmanager
    async def owner(self) -> AsyncGenerator[Connection]:
        """A connection of the owner, whom no wall stops: for credentials, new work and the operator's business."""
        assert self._owner is not None  # noqa: S101
        async with self._owner.acquire() as connection:
            yield cast("Connection", connection)

    async def authenticate(self, request: Request) -> Principal | None:
        """Who asks; None without a credential. A bad credential raises, also where none is needed."""
        if not self.auth:
            _refuse_foreign_host(request)
            _refuse_other_sites(request)
            return ANYBODY
        token = bearer_token(request.headers.getlist("authorization"))
        if token is None:
            return None
        async with self.owner() as connection:
            return await self.identity.identify(connection, token)

    async def identify(self, connection: Connection, token: str) -> Principal:
        """Who a token stands for; raises CredentialError."""
        return await self.identity.identify(connection, token)

    async def clickhouse(self, org_id: UUID) -> ClickHouseTarget:
        """Where an org's Objects are: the default one's in the configured database, another's in one of its own."""
        return await (await self._databases()).ready(org_id)

    async def _databases(self) -> Tenants:
        if self._tenants is None:
            self._tenants = Tenants(await clickhouse_target(self.settings))
        return self._tenants

    async def check_workers(self, connection: Connection, org_id: UUID, worker_ids: Sequence[int]) -> None:
        """Raise unless all of these workers are the org's. Which org a worker is of never changes."""
        self.lending.want()
        unknown = [worker_id for worker_id in worker_ids if (org_id, worker_id) not in self._workers]
        if not unknown:
            return
        if not await are_of(connection, unknown, org_id):
            raise NotFoundError("There is no such worker.", remedy="Register it: POST /v1/worker/register.")
        if len(self._workers) > KNOWN_WORKERS:
            self._workers.clear()
        self._workers.update((org_id, worker_id) for worker_id in unknown)


def _refuse_foreign_host(request: Request) -> None:
    """Without authentication, a page of another site must not reach us by a name that it made point here."""
    host = request.headers.get("host", "")
    name = host[: host.index("]") + 1] if host.startswith("[") and "]" in host else host.partition(":")[0]
    if not is_loopback(name):
        raise ForbiddenError(f"Without authentication this server answers to loopback names only, not to {name!r}.")


def _refuse_other_sites(request: Request) -> None:
    """Without authentication, whatever page a browser shows could otherwise send forms here."""
    if changes_across_sites(request):
        raise ForbiddenError(
            "Without authentication this server changes nothing for pages of other sites.",
            remedy="Start it with authentication and send a key, or ask from a program or from its own pages.",
        )
