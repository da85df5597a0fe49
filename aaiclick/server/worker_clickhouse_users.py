"""ClickHouse credentials of remote workers: one user per worker, dropped after the worker has gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick.orchestration.http_worker_clickhouse_users import PASS_SECONDS, WorkerUsers
from aaiclick.orchestration.tenant_databases import TenantDatabases
from aaiclick.server_addresses import ClickHouseEndpoint
from aaiclick.settings import Settings
from aaiclick.store.postgres_connections import CONNECTION_ERRORS

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

log = logging.getLogger("aaiclick.server")


class WorkerCredentials:
    """Issues credentials with claims, and renews and drops them in the background."""

    def __init__(
        self,
        settings: Settings,
        get_tenants: Callable[[], Awaitable[TenantDatabases]],
        connect: Callable[[], AbstractAsyncContextManager[Connection]],
    ) -> None:
        self._embedded = settings.clickhouse is None
        self._get_tenants = get_tenants
        self._connect = connect
        self._users: WorkerUsers | None = None
        self._activated = asyncio.Event()
        self._revoked: asyncio.Queue[tuple[UUID, int]] = asyncio.Queue()

    async def issue(self, org_id: UUID, worker_id: int) -> ClickHouseEndpoint:
        """The ClickHouse endpoint and user for a worker; raises where workers have no users of their own."""
        return await (await self._get_users()).get_credential(org_id, worker_id)

    def activate(self) -> None:
        """Start the background pass, since there is a worker."""
        self._activated.set()

    def revoke(self, org_id: UUID, worker_id: int) -> None:
        """Drop the user of a worker that has ended. A user that another server issued is dropped by a later pass."""
        if self._users is not None and self._users.is_known(org_id, worker_id):
            self._revoked.put_nowait((org_id, worker_id))

    async def run(self) -> None:
        """Renew and drop users until cancelled, from the first worker on."""
        if self._embedded:
            return  # the users of the embedded server are in its configuration file
        await self._activated.wait()
        while True:
            try:
                async with self._connect() as connection:
                    await (await self._get_users()).run_once(connection)
            except CONNECTION_ERRORS as error:
                log.warning(
                    "worker credentials are not renewed: a database is unreachable or refuses (%s)",
                    type(error).__name__,
                )
            with suppress(TimeoutError):
                async with asyncio.timeout(PASS_SECONDS):
                    await self._drop_revoked_users()

    async def _drop_revoked_users(self) -> None:
        while True:
            org_id, worker_id = await self._revoked.get()
            try:
                await (await self._get_users()).drop_user(org_id, worker_id)
            except CONNECTION_ERRORS as error:
                log.warning("a worker credential could not be dropped yet (%s)", type(error).__name__)

    async def _get_users(self) -> WorkerUsers:
        if self._users is None:
            self._users = WorkerUsers(await self._get_tenants())
        return self._users
