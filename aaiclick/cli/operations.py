"""Operations for commands: on the databases of this machine, or over HTTP if AAICLICK_SERVER is set."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from aaiclick.cli.database import find_org_id, open_connection
from aaiclick.cli.remote import check_org, is_remote, open_client, translate_remedies
from aaiclick.local import clickhouse_endpoint
from aaiclick.operations import jobs as jobs
from aaiclick.operations import queues as queues
from aaiclick.operations.actor import Actor, local_actor
from aaiclick.operations.operation import OPERATIONS, DatabasesOperation, Operation
from aaiclick.orchestration.tenant_databases import TenantDatabases
from aaiclick.store.enums import DEFAULT_ORG_SLUG

if TYPE_CHECKING:
    from aaiclick.client import Client
    from aaiclick.endpoints import ClickHouseEndpoint
    from aaiclick.store.connections import Connection


@contextmanager
def open_operations(org: str = DEFAULT_ORG_SLUG) -> Generator[Client]:
    """Open the operations of an organisation. The local ones have the interface of the client.

    with open_operations() as operations:
        operations.cancel_job(job_id)
    """
    if is_remote():
        with open_client() as client, translate_remedies():
            check_org(client, org)
            yield client
        return
    with asyncio.Runner() as runner:
        local = LocalOperations(runner, org)
        try:
            yield cast("Client", local)
        finally:
            runner.run(local.close())


class LocalOperations:
    """Performs operations as the local user; a test compares the signatures with those of the client."""

    def __init__(self, runner: asyncio.Runner, org: str) -> None:
        self._runner = runner
        self._org = org
        self._databases: LocalDatabases | None = None
        self._actor: Actor | None = None

    def __getattr__(self, name: str) -> Callable[..., Any]:
        try:
            operation = OPERATIONS[name]
        except KeyError:
            raise AttributeError(f"There is no operation {name!r}.") from None
        return lambda *args, **kwargs: self._runner.run(self._perform(operation, args, kwargs))  # pyright: ignore[reportUnknownLambdaType]

    async def close(self) -> None:
        if self._databases is not None:
            await self._databases.connection.close()

    async def _perform(
        self,
        operation: Operation[..., object] | DatabasesOperation[..., object],
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> Any:
        if self._databases is None or self._actor is None:
            connection = await open_connection()
            self._actor = local_actor(await find_org_id(connection, self._org))
            self._databases = LocalDatabases(connection, self._actor.org_id)
        result: Awaitable[object] = operation.perform(self._databases, self._actor, *args, **kwargs)
        return await result


@dataclass(frozen=True, slots=True)
class LocalDatabases:
    """One PostgreSQL connection of the owner, and the ClickHouse of the settings."""

    connection: Connection
    org_id: UUID

    def connect(self, *, as_owner: bool = False) -> AbstractAsyncContextManager[Connection]:  # noqa: ARG002  (it is)
        return nullcontext(self.connection)

    async def clickhouse(self) -> ClickHouseEndpoint:
        return await TenantDatabases(await clickhouse_endpoint()).ensure_database(self.org_id)
