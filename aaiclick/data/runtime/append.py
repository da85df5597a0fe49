"""Atomic append by concurrent writers: row numbers stay dense, and the rows of an append become visible together.

ClickHouse has neither locks nor transactions, but three atomic operations: an ALTER of a table's definition, which
fails if the definition does not match; ATTACH PARTITION … FROM, which adds all rows of another table; and DROP, which
waits for readers.

1. Create a staging table. It is reference-counted like any other, and swept if its writer dies.
2. Acquire the lock: a pair of constraints that ClickHouse only stores (`ASSUME 1`). `aai_append` cannot be added twice;
   `aai_append_{staging}` names the holder. Both are dropped with the table.
3. Under the lock: count the rows, write the new ones to the staging table with the next numbers, attach them.
4. Release the lock and drop the staging table.

A holder without activity for `IDLE_SECONDS` (no query, no new part) counts as dead. Its staging table is dropped first,
so that a holder that was only slow has nothing left to attach. Then the second constraint is replaced by the new
holder's, which fails if another writer was faster.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from aaiclick.data.errors import DataError, ObjectNotFoundError, QueryError
from aaiclick.data.runtime.table_layout import DIFFERENT_STRUCTURE
from aaiclick.data.runtime.tables import ADD_SOURCE
from aaiclick.data.types import quote_name

if TYPE_CHECKING:
    from aaiclick.data.context import DataContext
    from aaiclick.data.runtime.tables import Table

IDLE_SECONDS = 30
"""How long a lock may be held without activity."""

CHECK_SECONDS = 1.0
MAX_WAIT_SECONDS = 0.25
LOCK = "aai_append"
NOT_IMPLEMENTED = 48

_QUOTED = re.compile(r"`(?:[^`\\]|\\.)*`|'(?:[^'\\]|\\.)*'", re.DOTALL)
_HOLDER = re.compile(rf"CONSTRAINT {LOCK}_(t\d+) ASSUME")
_DEFINITION = (
    "SELECT create_table_query AS text FROM system.tables WHERE database = currentDatabase() AND name = {t:String}"
)
_IDLE = (
    "SELECT toInt64(dateDiff('second', greatest("
    " (SELECT max(metadata_modification_time) FROM system.tables"
    " WHERE database = currentDatabase() AND name = {t:String}),"
    " (SELECT max(modification_time) FROM system.parts WHERE database = currentDatabase() AND table = {p:String})"
    "), now())) AS idle,"
    " (SELECT count() FROM system.processes WHERE position(query, {s:String}) > 0 AND query_id != queryID()) AS running"
)


class LockLostError(DataError):
    """Another writer took the lock, because this one seemed dead."""


class NoLockError(Exception):
    """The table's engine does not support constraints, so it cannot be locked."""


async def append_rows(context: DataContext, table: Table, fill: Callable[[str, int], Awaitable[None]]) -> int:
    """Append the rows that `fill(staging, start)` writes, numbered from `start`; returns the new length."""
    while True:
        staging, _ = await context.create_table(table.columns, table.shape, _leave_empty)
        try:
            async with append_lock(context, table.name, staging.name):
                start = await count_rows(context, table.name)
                await fill(staging.name, start)
                await _publish(context, table, staging.name)
            return start + await count_rows(context, staging.name)
        except LockLostError:
            continue
        finally:
            staging.release()


async def _leave_empty(table: str) -> None:
    """Fill nothing: a staging table starts empty."""


async def _publish(context: DataContext, table: Table, staging: str) -> None:
    """Attach all rows of the staging table."""
    try:
        await _publish_shielded(context, table, staging)
    except QueryError as error:
        if error.code != DIFFERENT_STRUCTURE:
            raise
        await context.client.layout.alter_table(staging, ADD_SOURCE, context.query_id())
        await _publish_shielded(context, table, staging)


async def _publish_shielded(context: DataContext, table: Table, staging: str) -> None:
    """Publish the rows; a cancellation waits until that has ended."""
    publish = context.client.layout.publish_rows(table.name, staging, table.columns, context.query_id())
    publishing = asyncio.ensure_future(publish)
    try:
        await asyncio.shield(publishing)
    except asyncio.CancelledError:
        await publishing
        raise


async def count_rows(context: DataContext, table: str) -> int:
    rows = await context.client.read_text(
        f"SELECT count() FROM {quote_name(table)}",  # noqa: S608
        query_id=context.query_id(),
    )
    return rows.column(0)[0].as_py()


@asynccontextmanager
async def append_lock(context: DataContext, table: str, token: str) -> AsyncGenerator[None]:
    """Hold the append lock of a table, with a staging table's name as token."""
    lock_table = await _acquire_lock(context, table, token)
    try:
        yield
    except ObjectNotFoundError:
        if await _find_holder(context, lock_table) != token:
            raise LockLostError(
                f"Another writer took the lock of {table} after {IDLE_SECONDS} seconds without activity.",
                remedy="Retry the append.",
            ) from None
        raise
    finally:
        await asyncio.shield(_release_lock(context, lock_table, token))


async def _acquire_lock(context: DataContext, table: str, token: str) -> str:
    """Wait for the lock and take it; returns the table that stores it."""
    while True:
        lock_table = await context.client.layout.primary_table(table)
        await _acquire_lock_at(context, lock_table, token)
        if await context.client.layout.primary_table(table) == lock_table:
            return lock_table
        await _release_lock(context, lock_table, token)  # the Object was replaced during the wait


async def _acquire_lock_at(context: DataContext, table: str, token: str) -> None:
    wait, checked_at = 0.005, time.monotonic()
    while not await _alter_table(
        context, table, f"ADD CONSTRAINT {LOCK} ASSUME 1, {_token_constraint('ADD', token)} ASSUME 1"
    ):
        await asyncio.sleep(wait * random.uniform(0.5, 1.5))  # noqa: S311
        wait = min(wait * 1.5, MAX_WAIT_SECONDS)
        if time.monotonic() - checked_at > CHECK_SECONDS:
            checked_at = time.monotonic()
            if await _steal_lock(context, table, token):
                return


async def _release_lock(context: DataContext, table: str, token: str) -> None:
    with suppress(ObjectNotFoundError):
        await _alter_table(context, table, f"DROP CONSTRAINT {LOCK}, {_token_constraint('DROP', token)}")


async def _steal_lock(context: DataContext, table: str, token: str) -> bool:
    """Take the lock of a dead holder; False if the holder is alive or another writer was faster."""
    holder = await _find_holder(context, table)
    if holder is None:
        return False
    parameters = {"t": table, "s": holder, "p": context.client.layout.parts_table(holder)}
    activity = await context.client.read_text(_IDLE, parameters, query_id=context.query_id())
    ((idle, running),) = [tuple(row.values()) for row in activity.to_pylist()]
    if running or idle < IDLE_SECONDS:
        return False
    await context.client.layout.drop_table(holder, context.query_id())
    return await _alter_table(
        context, table, f"{_token_constraint('DROP', holder)}, {_token_constraint('ADD', token)} ASSUME 1"
    )


async def _find_holder(context: DataContext, table: str) -> str | None:
    """Return the lock holder's token. Quoted text in the definition is user input and is ignored."""
    definition = await context.client.read_text(_DEFINITION, {"t": table}, query_id=context.query_id())
    text = _QUOTED.sub("", "".join(definition.column(0).to_pylist()))
    match = _HOLDER.search(text)
    return match.group(1) if match else None


async def _alter_table(context: DataContext, table: str, changes: str) -> bool:
    """Alter the table; False if a constraint exists already, or does not exist any more."""
    try:
        await context.client.run(f"ALTER TABLE {quote_name(table)} {changes}", query_id=context.query_id())
    except QueryError as error:
        if error.code == NOT_IMPLEMENTED:
            raise NoLockError from None
        if "constraint" in error.what:
            return False
        raise
    return True


def _token_constraint(verb: str, token: str) -> str:
    return f"{verb} CONSTRAINT {LOCK}_{token}"
