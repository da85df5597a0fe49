"""Publication of staged rows: moves them into place while the lease and the generation are locked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aaiclick.catalog.errors import DatasetError
from aaiclick.catalog.execution import table_storage
from aaiclick.catalog.execution.definition import DatasetLocation
from aaiclick.catalog.execution.parquet_storage import is_external, is_file_based, is_own_prefix
from aaiclick.data.context import get_data_context
from aaiclick.orchestration.gateway import AttemptGateway
from aaiclick.orchestration.gateway.attempt import StagedTable
from aaiclick.store.catalog import orphan_files, runs

if TYPE_CHECKING:
    from aaiclick.data.runtime.clickhouse_client import Client
    from aaiclick.store.connections import Connection
    from aaiclick.store.engine.leases import Lease


async def publish_rows(
    gateway: AttemptGateway, location: DatasetLocation, staged: table_storage.StagedRows, ticket: int, slice_key: str
) -> bool:
    """Publish staged rows of an attempt; return False if newer rows are there. Raises LeaseLost."""
    if is_file_based(location.table):
        _require_database(gateway, location)
    data = get_data_context()

    async def publish_directly(connection: Connection) -> bool:
        return await publish_under_lease(
            connection, data.client, gateway.lease, location, staged, ticket, slice_key, data.query_id()
        )

    staged_table = StagedTable(location.generation, slice_key, ticket, staged.table, staged.rows)
    return await gateway.publish_table(staged_table, publish_directly)


async def register_file(gateway: AttemptGateway, location: DatasetLocation, name: str) -> None:
    """Record that a file is about to be written."""
    _require_database(gateway, location)
    async with gateway.connection() as connection:
        await orphan_files.register_file(connection, location.generation, name, gateway.lease)


async def list_locations(gateway: AttemptGateway, location: DatasetLocation) -> list[str]:
    """Return the locations of external files: the generation's own, and those of registered ranges."""
    _require_database(gateway, location)
    async with gateway.connection() as connection:
        return await runs.load_locations(connection, location.generation)


def _require_database(gateway: AttemptGateway, location: DatasetLocation) -> None:
    if not gateway.has_database:
        raise DatasetError(
            f"The output {location.name!r} is stored in files, which only workers with database access can write.",
            remedy="Remove the runtime of its definition, or store the output in ClickHouse.",
        )


async def publish_under_lease(
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
