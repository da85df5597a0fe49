"""Publication of staged rows: moves them into place while the lease and the generation are locked."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from aaiclick.catalog.errors import DatasetError
from aaiclick.catalog.execution import dataset_tables
from aaiclick.catalog.execution.definition_context import DatasetLocation
from aaiclick.catalog.execution.parquet_storage import is_external, is_file_based, is_own_prefix
from aaiclick.data.context import get_data_context
from aaiclick.orchestration.gateway import AttemptGateway
from aaiclick.orchestration.gateway.attempt import StagedTable
from aaiclick.store.catalog import definition_runs, orphan_files
from aaiclick.store.catalog.definition_runs import PublishOutcome

if TYPE_CHECKING:
    from aaiclick.data.runtime.clickhouse_client import ClickHouseClient
    from aaiclick.store.engine.leases_and_outcomes import Lease
    from aaiclick.store.postgres_connections import Connection

BUSY_SECONDS = 0.1
"""Between attempts to publish while another attempt, which may have died, has announced a publication."""


async def publish_rows(
    gateway: AttemptGateway,
    location: DatasetLocation,
    staged: dataset_tables.StagedRows,
    ticket: int,
    slice_key: str,
    publishes: int | None = None,
) -> PublishOutcome:
    """Publish staged rows of an attempt; raises LeaseLost."""
    if is_file_based(location.table):
        _require_database(gateway, location)
    data = get_data_context()

    async def publish_directly(connection: Connection) -> PublishOutcome:
        return await publish_under_lease(
            connection, data.client, gateway.lease, location, staged, ticket, slice_key, data.query_id(), publishes
        )

    staged_table = StagedTable(location.generation, slice_key, ticket, staged.table, staged.rows, publishes)
    while True:
        outcome = await gateway.publish_table(staged_table, publish_directly)
        if outcome is not PublishOutcome.BUSY:
            return outcome
        await asyncio.sleep(BUSY_SECONDS)


async def register_file(gateway: AttemptGateway, location: DatasetLocation, name: str) -> None:
    """Record that a file is about to be written."""
    _require_database(gateway, location)
    async with gateway.connection() as connection:
        await orphan_files.register_file(connection, location.generation, name, gateway.lease)


async def list_locations(gateway: AttemptGateway, location: DatasetLocation) -> list[str]:
    """Return the locations of external files: the generation's own, and those of registered ranges."""
    _require_database(gateway, location)
    async with gateway.connection() as connection:
        return await definition_runs.load_locations(connection, location.generation)


def _require_database(gateway: AttemptGateway, location: DatasetLocation) -> None:
    if not gateway.has_database:
        raise DatasetError(
            f"The output {location.name!r} is stored in files, which only workers with database access can write.",
            remedy="Remove the runtime of its definition, or store the output in ClickHouse.",
        )


async def publish_under_lease(
    connection: Connection,
    client: ClickHouseClient,
    lease: Lease,
    location: DatasetLocation,
    staged: dataset_tables.StagedRows,
    ticket: int,
    slice_key: str,
    query_id: str = "",
    publishes: int | None = None,
) -> PublishOutcome:
    """Move staged rows into place under the lease, never over newer rows.

    With `publishes`, only if no other rows were published since the data tests have read the generation.
    """
    generation = location.generation
    announced = publishes is not None and not is_file_based(location.table)  # files become public with the commit
    if publishes is not None and announced:
        drop_table = partial(dataset_tables.drop_staged, client)
        outcome = await definition_runs.announce_publish(
            connection, lease, generation, staged.table, publishes, drop_table
        )
        if outcome is not PublishOutcome.PUBLISHED:
            return outcome
    async with definition_runs.lock_for_publish(
        connection, lease, generation, slice_key, ticket, publishes, announced=announced
    ) as outcome:
        if outcome is PublishOutcome.STALE:
            return outcome
        # A later ticket replaces; appended rows are always added, and reads take the newest row of a key.
        accepted = outcome is PublishOutcome.PUBLISHED or staged.layout.mode == "append"
        if accepted and is_external(location.table):
            files = [file.to_json() for file in staged.attached]
            await definition_runs.set_external_files(connection, location.generation, files, staged.layout.to_json())
        elif accepted and is_own_prefix(location.table):
            layout, files = staged.layout, [] if staged.file is None else [staged.file.to_json()]
            await definition_runs.set_generation_files(
                connection, location.generation, layout.mode, slice_key, staged.merged, files, layout.to_json()
            )
        elif accepted:
            await dataset_tables.publish_staged(client, location.table, staged, slice_key, query_id)
    return PublishOutcome.PUBLISHED if accepted else PublishOutcome.SUPERSEDED
