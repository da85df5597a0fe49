"""Gateway between the task of a definition and the catalogue: PostgreSQL directly, or a server over HTTP.

Catalogue rows are mappings here. `publish` moves staged rows into place while the lease and the generation are locked;
for a worker without a database connection, the server does this.
"""

from __future__ import annotations

import importlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aaiclick.catalog.errors import DatasetError
from aaiclick.catalog.execution import table_storage
from aaiclick.catalog.execution.definition import (
    DatasetLocation,
    DefinitionContext,
    build_definition_context,
    definition_not_found,
    load_definition,
)
from aaiclick.catalog.execution.parquet_storage import is_external, is_file_based, is_own_prefix
from aaiclick.data.context import get_data_context
from aaiclick.endpoints import ServerEndpoint
from aaiclick.orchestration.context import get_current_context
from aaiclick.orchestration.gateway import codecs
from aaiclick.orchestration.task_context import TaskScope
from aaiclick.store.catalog import orphan_files, runs
from aaiclick.store.catalog.runs import Effects

if TYPE_CHECKING:
    from aaiclick.data.runtime.clickhouse_client import Client
    from aaiclick.store.connections import Connection
    from aaiclick.store.engine.leases import Lease


class CatalogGateway(ABC):
    """The catalogue as seen by one attempt."""

    @abstractmethod
    async def load_definition(self, definition_id: UUID) -> DefinitionContext: ...

    @abstractmethod
    async def take_ticket(self) -> int:
        """Return a new ticket. Taken before anything is read, so that a higher ticket means a later read."""

    @abstractmethod
    async def load_state(
        self, definition: DefinitionContext, definition_id: UUID, key: str
    ) -> dict[str, object] | None: ...

    @abstractmethod
    async def list_partitions(
        self, generation: UUID, keys: Sequence[str] | None = None
    ) -> dict[str, Mapping[str, Any]]: ...

    @abstractmethod
    async def input_digest(self, generation: UUID) -> str: ...

    @abstractmethod
    async def announce_file(self, location: DatasetLocation, name: str) -> None:
        """Record that a file is about to be written."""

    @abstractmethod
    async def list_locations(self, location: DatasetLocation) -> list[str]:
        """Return the locations of external files: the generation's own, and those of registered ranges."""

    @abstractmethod
    async def publish(
        self, location: DatasetLocation, staged: table_storage.StagedRows, ticket: int, slice_key: str
    ) -> bool:
        """Move staged rows into place; return False if newer rows are there. Raises LeaseLost."""

    @abstractmethod
    async def emit_updates(self, effects: Effects, cursor: str) -> None:
        """Record published updates and emit their events while the task runs. Raises LeaseLost."""


def open_catalog_gateway(scope: TaskScope) -> CatalogGateway:
    return HttpCatalogGateway(scope) if isinstance(scope.endpoint, ServerEndpoint) else PostgresCatalogGateway(scope)


class PostgresCatalogGateway(CatalogGateway):
    """Gateway over the connections of the task's context."""

    def __init__(self, scope: TaskScope) -> None:
        self._scope = scope

    async def load_definition(self, definition_id: UUID) -> DefinitionContext:
        async with get_current_context().connection() as connection:
            definition = await load_definition(connection, definition_id)
        if definition.org_id != self._scope.org_id:  # the id comes from task arguments, which are untrusted
            raise definition_not_found(definition_id)
        return definition

    async def take_ticket(self) -> int:
        async with get_current_context().connection() as connection:
            return await runs.take_ticket(connection)

    async def load_state(
        self, definition: DefinitionContext, definition_id: UUID, key: str
    ) -> dict[str, object] | None:
        async with get_current_context().connection() as connection:
            return await runs.get_state(connection, definition.org_id, definition_id, key)

    async def list_partitions(
        self, generation: UUID, keys: Sequence[str] | None = None
    ) -> dict[str, Mapping[str, Any]]:
        async with get_current_context().connection() as connection:
            rows = await runs.load_partitions(connection, generation, keys)
        return {key: dict(row) for key, row in rows.items()}

    async def input_digest(self, generation: UUID) -> str:
        async with get_current_context().connection() as connection:
            return await runs.load_input_digest(connection, generation)

    async def announce_file(self, location: DatasetLocation, name: str) -> None:
        async with get_current_context().connection() as connection:
            await orphan_files.register_file(connection, location.generation, name, self._scope.lease)

    async def list_locations(self, location: DatasetLocation) -> list[str]:
        async with get_current_context().connection() as connection:
            return await runs.load_locations(connection, location.generation)

    async def publish(
        self, location: DatasetLocation, staged: table_storage.StagedRows, ticket: int, slice_key: str
    ) -> bool:
        data = get_data_context()
        async with get_current_context().connection() as connection:
            return await publish(
                connection, data.client, self._scope.lease, location, staged, ticket, slice_key, data.query_id()
            )

    async def emit_updates(self, effects: Effects, cursor: str) -> None:
        async with get_current_context().connection() as connection:
            await runs.emit_updates(connection, self._scope.lease, effects.to_json(), cursor)


async def publish(
    connection: Connection,
    client: Client,
    lease: Lease,
    location: DatasetLocation,
    staged: table_storage.StagedRows,
    ticket: int,
    slice_key: str,
    query_id: str = "",
) -> bool:
    """Move staged rows into place under the lease, never over newer rows."""
    async with runs.lock_for_publish(connection, lease, location.generation, slice_key, ticket) as is_newest:
        # A later ticket replaces; appended rows are always added, and reads take the newest row of a key.
        accepted = is_newest or staged.layout.mode == "append"
        if accepted and is_external(location.table):
            files = [file.to_json() for file in staged.attached]
            await runs.set_external_files(connection, location.generation, files, staged.layout.to_json())
        elif accepted and is_own_prefix(location.table):
            layout, files = staged.layout, [] if staged.file is None else [staged.file.to_json()]
            await runs.set_generation_files(
                connection, location.generation, layout.mode, slice_key, staged.merged, files, layout.to_json()
            )
        elif accepted:
            await table_storage.publish_staged(client, location.table, staged, slice_key, query_id)
    return accepted


class HttpCatalogGateway(CatalogGateway):
    """Gateway over the server that the attempt was claimed from, under its lease."""

    def __init__(self, scope: TaskScope) -> None:
        http = importlib.import_module("aaiclick.orchestration.gateway.http")  # loads httpx
        self._client = http.worker_api_client(scope.endpoint)
        self._lease = codecs.encode_lease(scope.lease)

    async def load_definition(self, definition_id: UUID) -> DefinitionContext:
        answer = await self._post("definition", definition=str(definition_id))
        return build_definition_context(*runs.definition_from_json(answer))

    async def take_ticket(self) -> int:
        return int((await self._post("ticket"))["ticket"])

    async def load_state(self, definition: DefinitionContext, definition_id: UUID, key: str) -> dict[str, Any] | None:  # noqa: ARG002
        return (await self._post("state", definition=str(definition_id), key=key))["state"]

    async def list_partitions(
        self, generation: UUID, keys: Sequence[str] | None = None
    ) -> dict[str, Mapping[str, Any]]:
        key_list = None if keys is None else list(keys)
        answer = await self._post("partitions", generation=str(generation), keys=key_list)
        return {row["partition_key"]: runs.partition_from_json(row) for row in answer["partitions"]}

    async def input_digest(self, generation: UUID) -> str:
        return (await self._post("digest", generation=str(generation)))["digest"]

    async def announce_file(self, location: DatasetLocation, name: str) -> None:  # noqa: ARG002
        raise DatasetError(
            f"The output {location.name!r} is stored in files, which only workers with database access can write.",
            remedy="Remove the runtime of its definition, or store the output in ClickHouse.",
        )

    async def list_locations(self, location: DatasetLocation) -> list[str]:
        await self.announce_file(location, "")
        return []

    async def publish(
        self, location: DatasetLocation, staged: table_storage.StagedRows, ticket: int, slice_key: str
    ) -> bool:
        if is_file_based(location.table):
            await self.announce_file(location, "")
        answer = await self._post(
            "publish", generation=str(location.generation), partition=slice_key, ticket=str(ticket), table=staged.table,
            rows=staged.rows,
        )  # fmt: skip
        return bool(answer["published"])

    async def emit_updates(self, effects: Effects, cursor: str) -> None:
        await self._post("events", cursor=cursor, effects=json.loads(effects.to_json()))

    async def _post(self, endpoint: str, **body: object) -> Any:
        return await self._client.request(f"/v1/worker-api/tasks/{endpoint}", lease=self._lease, **body)
