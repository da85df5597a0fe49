"""The cleanup: tables that nothing refers to any more are dropped.

A table's end has three steps, each of which may be the last before a crash. It is *marked* in PostgreSQL, in the
transaction that looks at its count: from then on a new reference is refused, and one that was first keeps the table.
It is *dropped* in ClickHouse, if it exists. It is *forgotten*. Whatever is found marked for too long is dropped again,
which does no harm, and forgotten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick.data.client import Client, connect
from aaiclick.data.errors import ObjectNotFoundError
from aaiclick.errors import AaiclickError
from aaiclick.orchestration.loops.loose_files import delete_loose_files
from aaiclick.orchestration.loops.periodic import Periodic
from aaiclick.orchestration.loops.sessions import live_sessions
from aaiclick.orchestration.tenants import tenant_target
from aaiclick.store import tables
from aaiclick.store.loose_files import KEPT_SECONDS
from aaiclick.targets import ClickHouseTarget, PostgresTarget

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

AT_ONCE = 8
"""Drops under way in ClickHouse."""


class PgCleanupWorker(Periodic):
    """Releases what ended jobs and dead sessions hold, then drops every table that nothing refers to, and deletes files
    of datasets that were replaced `file_seconds` ago.
    """

    def __init__(
        self,
        poll_interval: float = 10.0,
        *,
        reclaim_seconds: float = tables.RECLAIM_SECONDS,
        failed_seconds: float = tables.FAILED_SECONDS,
        file_seconds: float = KEPT_SECONDS,
        postgres: PostgresTarget | None = None,
        clickhouse: ClickHouseTarget | None = None,
    ) -> None:
        super().__init__(poll_interval, postgres=postgres, clickhouse=clickhouse)
        self._reclaim_seconds = reclaim_seconds
        self._failed_seconds = failed_seconds
        self._file_seconds = file_seconds

    async def run_once(self) -> int:
        """One pass; returns how many tables it dropped."""
        async with self._servers() as (connection, client):
            await tables.release_ended_jobs(connection, failed_seconds=self._failed_seconds)
            await release_dead_sessions(connection, client)
            total = 0
            while names := await tables.mark_dropping(connection, reclaim_seconds=self._reclaim_seconds):
                total += await drop_marked(connection, client, names)
                if self._stopping.is_set() or len(names) < tables.DROPPED_AT_ONCE:
                    break
            await delete_loose_files(connection, kept_seconds=self._file_seconds)
            return total


async def release_dead_sessions(connection: Connection, client: Client) -> None:
    """Processes outside of tasks that do not live any more refer to nothing."""
    doubtful = await tables.doubtful_sessions(connection)
    if not doubtful:
        return
    alive = await live_sessions(client, [session for session, asks in doubtful.items() if asks])
    dead = [session for session in doubtful if session not in alive]
    if dead:
        await tables.release_sessions(connection, dead)


async def drop_marked(connection: Connection, client: Client, names: Mapping[str, UUID]) -> int:
    """Drop tables that are marked, each in its org's database, and forget those that are gone; raises if some could not
    be dropped.
    """
    places = asyncio.Semaphore(AT_ONCE)

    async def drop(name: str) -> AaiclickError | None:
        database = tenant_target(client.target, names[name]).database
        async with places:
            try:
                found = (
                    client
                    if database == client.target.database
                    else await connect(client.target.with_database(database))
                )
                await found.layout.drop(name)
            except ObjectNotFoundError:  # not even the database is there
                return None
            except AaiclickError as error:
                return error
        return None

    found = dict(zip(names, await asyncio.gather(*(drop(name) for name in names)), strict=True))
    gone = [name for name, error in found.items() if error is None]
    await tables.forget_tables(connection, gone)
    for error in found.values():
        if error is not None:
            raise error
    return len(gone)
