"""Cleanup loop: drops tables without references.

A table is dropped in three steps, and a crash may follow each. It is *marked* in PostgreSQL, in the transaction that
reads its count: new references are refused from then on. It is *dropped* in ClickHouse, if it exists. Its row in
PostgreSQL is *deleted*. Tables that stay marked for too long go through the last two steps again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick.data.errors import ObjectNotFoundError
from aaiclick.data.runtime.clickhouse_client import ClickHouseClient, connect
from aaiclick.errors import AaiclickError
from aaiclick.orchestration.loops.data_session_expiry import live_sessions
from aaiclick.orchestration.loops.orphan_files import delete_orphan_files
from aaiclick.orchestration.loops.periodic import PeriodicLoop
from aaiclick.orchestration.tenant_databases import tenant_endpoint
from aaiclick.server_addresses import ClickHouseEndpoint, PostgresEndpoint
from aaiclick.store.catalog.orphan_files import RETENTION_SECONDS
from aaiclick.store.tables import table_references

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

MAX_CONCURRENT_DROPS = 8
"""Concurrent drops in ClickHouse."""


class PgCleanupWorker(PeriodicLoop):
    """Drops tables without references and deletes replaced files of datasets.

    First releases references of ended jobs and dead sessions. Files are deleted `file_seconds` after they were
    replaced.
    """

    def __init__(
        self,
        poll_interval: float = 10.0,
        *,
        reclaim_seconds: float = table_references.RECLAIM_SECONDS,
        failed_seconds: float = table_references.FAILED_JOB_RETENTION_SECONDS,
        file_seconds: float = RETENTION_SECONDS,
        postgres: PostgresEndpoint | None = None,
        clickhouse: ClickHouseEndpoint | None = None,
    ) -> None:
        super().__init__(poll_interval, postgres=postgres, clickhouse=clickhouse)
        self._reclaim_seconds = reclaim_seconds
        self._failed_seconds = failed_seconds
        self._file_seconds = file_seconds

    async def run_once(self) -> int:
        """One pass; returns how many tables it dropped."""
        async with self._servers() as (connection, client):
            await table_references.release_ended_jobs(connection, failed_seconds=self._failed_seconds)
            await release_dead_sessions(connection, client)
            total = 0
            while names := await table_references.mark_tables_dropping(
                connection, reclaim_seconds=self._reclaim_seconds
            ):
                total += await drop_marked(connection, client, names)
                if self._stopping.is_set() or len(names) < table_references.DROP_BATCH_SIZE:
                    break
            await delete_orphan_files(connection, retention_seconds=self._file_seconds)
            return total


async def release_dead_sessions(connection: Connection, client: ClickHouseClient) -> None:
    """Release the references of sessions (processes outside of tasks) that have ended."""
    uncertain = await table_references.list_stale_sessions(connection)
    if not uncertain:
        return
    alive = await live_sessions(client, [session for session, asks in uncertain.items() if asks])
    dead = [session for session in uncertain if session not in alive]
    if dead:
        await table_references.release_sessions(connection, dead)


async def drop_marked(connection: Connection, client: ClickHouseClient, names: Mapping[str, UUID]) -> int:
    """Drop marked tables in the databases of their organisations and delete their rows.

    Raises if a table could not be dropped.
    """
    semaphore = asyncio.Semaphore(MAX_CONCURRENT_DROPS)

    async def drop(name: str) -> AaiclickError | None:
        database = tenant_endpoint(client.endpoint, names[name]).database
        async with semaphore:
            try:
                org_client = (
                    client
                    if database == client.endpoint.database
                    else await connect(client.endpoint.with_database(database))
                )
                await org_client.layout.drop_table(name)
            except ObjectNotFoundError:  # the database does not exist
                return None
            except AaiclickError as error:
                return error
        return None

    errors = dict(zip(names, await asyncio.gather(*(drop(name) for name in names)), strict=True))
    dropped = [name for name, error in errors.items() if error is None]
    await table_references.delete_tables(connection, dropped)
    for error in errors.values():
        if error is not None:
            raise error
    return len(dropped)
