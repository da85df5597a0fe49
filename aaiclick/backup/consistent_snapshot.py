"""The moment of a backup: locks that hold writes back, and a snapshot of PostgreSQL."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import asyncpg

from aaiclick.errors import ConflictError
from aaiclick.server_addresses import PostgresEndpoint
from aaiclick.store.postgres_connections import connect
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

LOCK_SECONDS = 0.5
"""Less than PostgreSQL's deadlock_timeout: the backup gives way, never a task."""

RETRY_SECONDS = 0.5
GIVE_UP_SECONDS = 120.0
IDLE_SECONDS = 86_400.0
"""The snapshot is open until pg_dump has ended."""


@dataclass
class ConsistentSnapshot:
    """An exported snapshot, and the locks of its moment."""

    snapshot: str
    locks: AsyncExitStack
    locked_at: float
    locked_seconds: float = 0.0

    async def release_locks(self) -> None:
        """Let writes go on; the snapshot stays."""
        await self.locks.aclose()
        self.locked_seconds = time.monotonic() - self.locked_at


@asynccontextmanager
async def open_snapshot(endpoint: PostgresEndpoint) -> AsyncGenerator[ConsistentSnapshot]:
    """Hold writes back and export a snapshot; at the end of the block both are released."""
    locking = await connect(endpoint, silent_seconds=IDLE_SECONDS)
    reading = await connect(endpoint, silent_seconds=IDLE_SECONDS)
    try:
        async with AsyncExitStack() as locks:
            await _lock(locking, locks, endpoint)
            locked_at = time.monotonic()
            async with reading.transaction(isolation="repeatable_read", readonly=True):
                yield ConsistentSnapshot(await reading.fetchval(statement("export_snapshot")), locks, locked_at)
    finally:
        await reading.close()
        await locking.close()


async def _lock(connection: Connection, locks: AsyncExitStack, endpoint: PostgresEndpoint) -> None:
    """Lock the tables, with repeated short attempts: writers never wait behind a waiting backup for long."""
    deadline = time.monotonic() + GIVE_UP_SECONDS
    await connection.execute("SELECT set_config('lock_timeout', $1, false)", f"{LOCK_SECONDS * 1000:.0f}ms")
    while True:
        async with AsyncExitStack() as attempt:
            await attempt.enter_async_context(connection.transaction())
            try:
                await connection.execute(statement("lock_for_backup"))
                locks.push_async_exit(attempt.pop_all())
                return
            except asyncpg.LockNotAvailableError:
                if time.monotonic() > deadline:
                    raise ConflictError(
                        f"The tables of {endpoint} were in use for {GIVE_UP_SECONDS:.0f} s.",
                        remedy="Find the longest transaction and end it: SELECT pid, xact_start, query FROM "
                        "pg_stat_activity ORDER BY xact_start. Then run 'aaiclick backup' again.",
                    ) from None
        await asyncio.sleep(RETRY_SECONDS)
