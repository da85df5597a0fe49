"""Operations for commands: on the databases of this machine, or over HTTP if AAICLICK_SERVER is set."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from uuid import UUID

from aaiclick.cli.database import find_org_id, open_connection
from aaiclick.cli.postgres_host_notice import announce_postgres
from aaiclick.cli.remote import check_org, is_explicit_org, is_remote, open_client, refuse_remote, translate_remedies
from aaiclick.client.endpoint_decorators import DeclaredMethod, Endpoint, Listing
from aaiclick.client.endpoints import SyncEndpoints
from aaiclick.lazy_modules import LazyModule
from aaiclick.local import clickhouse_endpoint
from aaiclick.operations.actor import Actor, Permission, local_actor
from aaiclick.operations.operation import find_operation
from aaiclick.store.catalog.datasets import load_reader
from aaiclick.store.enums import DEFAULT_ORG_SLUG

if TYPE_CHECKING:
    from aaiclick.api.objects import FileFormat
    from aaiclick.operations.operation import DatabasesOperation, Operation
    from aaiclick.orchestration import tenant_databases
    from aaiclick.server_addresses import ClickHouseEndpoint
    from aaiclick.store.postgres_connections import Connection
else:  # the Python API of jobs: a list of datasets does not need it
    tenant_databases = LazyModule("aaiclick.orchestration.tenant_databases")

P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def open_operations(org: str | None = None, *, reads_as: str | None = None) -> Generator[SyncEndpoints]:
    """Open the operations of an organisation. The local ones have the interface of the client.

    Without `org`, the remote ones are those of the API key's organisation, and the local ones are performed in the
    default organisation and see all of them. Datasets are read with the roles of the user `reads_as` (external id).

    with open_operations() as operations:
        operations.cancel_job(job_id)
    """
    if is_remote():
        if reads_as is not None:
            refuse_remote("--as")
        with open_client() as client, translate_remedies():
            if org is not None:
                check_org(client, org)
            yield client
        return
    with asyncio.Runner() as runner:
        local = LocalOperations(runner, org, reads_as)
        try:
            with translate_remedies():
                yield local
        finally:
            runner.run(local.close())


@contextmanager
def open_org_operations(org: str) -> Generator[tuple[SyncEndpoints, str | None]]:
    """Open the operations of an organisation, and its name if the API key is that of an operator of another one."""
    with open_operations(None if is_remote() else org) as operations:
        is_own = not is_remote() or not is_explicit_org(org) or operations.get_org(org).id == operations.whoami().org_id
        yield operations, None if is_own else org


class LocalOperations(SyncEndpoints):
    """Performs operations as the local user; a test compares the signatures with those of the client."""

    def __init__(self, runner: asyncio.Runner, org: str | None, reads_as: str | None = None) -> None:
        self._runner = runner
        self._org = org
        self._reads_as = reads_as
        self._connection: Connection | None = None
        self._actor: Actor | None = None

    def perform(self, declared: Endpoint[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return self._runner.run(self._perform(declared, args, kwargs))

    def iterate(self, declared: Listing[P, T], *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        arguments: dict[str, Any] = dict(kwargs)
        while True:
            page = self._runner.run(self._perform(declared, args, arguments))
            yield from page.items
            if page.next is None:
                return
            arguments["cursor"] = page.next

    def export_object(self, table_id: str, format: FileFormat = "jsonl") -> Iterator[bytes]:  # noqa: A002
        operation: DatabasesOperation[..., AsyncGenerator[bytes]] = find_operation("objects", "export_object")
        chunks = self._runner.run(self._run(operation, (table_id, format), {}))
        try:
            while chunk := self._runner.run(_next_chunk(chunks)):
                yield chunk
        finally:
            self._runner.run(chunks.aclose())

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()

    async def _perform(self, declared: DeclaredMethod[..., T], args: tuple[object, ...], kwargs: dict[str, Any]) -> T:
        return await self._run(find_operation(declared.resource, declared.name), args, kwargs)

    async def _run(
        self,
        operation: Operation[..., T] | DatabasesOperation[..., T],
        args: tuple[object, ...],
        kwargs: dict[str, Any],
    ) -> T:
        if getattr(operation, "changes", operation.permission is not Permission.READER):
            announce_postgres()
        if self._connection is None or self._connection.is_closed():
            self._connection = await open_connection()
        if self._actor is None:
            org_id = await find_org_id(self._connection, self._org or DEFAULT_ORG_SLUG)
            reader = None if self._reads_as is None else await load_reader(self._connection, org_id, self._reads_as)
            self._actor = replace(local_actor(org_id, sees_all_orgs=self._org is None), reads_as=reader)
        databases = LocalDatabases(self._connection, self._actor.org_id)
        return await operation.perform(databases, self._actor, *args, **kwargs)


async def _next_chunk(chunks: AsyncGenerator[bytes]) -> bytes:
    return await anext(chunks, b"")


@dataclass(frozen=True, slots=True)
class LocalDatabases:
    """One PostgreSQL connection of the owner, and the ClickHouse of the settings."""

    connection: Connection
    org_id: UUID

    def connect(self, *, as_owner: bool = False) -> AbstractAsyncContextManager[Connection]:  # noqa: ARG002  (it is)
        return nullcontext(self.connection)

    async def clickhouse(self) -> ClickHouseEndpoint:
        return await tenant_databases.TenantDatabases(await clickhouse_endpoint()).ensure_database(self.org_id)
