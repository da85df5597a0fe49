"""Appending to a table that others append to as well: numbers stay dense, and rows come all at once or not at all.

ClickHouse has neither locks nor transactions, but three things that are atomic: an ALTER of a table's definition, which
fails if the definition is not as it should be; ATTACH PARTITION … FROM, which gives a table all rows of another; and
DROP, which waits for those who read.

1. The rows will go to a staging table first, a table like any other: counted, and swept if nobody comes back for it.
2. The lock is a pair of constraints that ClickHouse only writes down (`ASSUME 1`). `aai_append` cannot be added twice;
   `aai_append_{staging}` says whose it is. They live and die with the table.
3. Under the lock: count the rows, write the new ones to the staging table with the numbers from there on, attach.
4. Give the lock back; the staging table goes.

A holder that shows no sign of life for `IDLE_SECONDS` (no query, no new part) is taken to be dead. Its staging table is
dropped first: whatever it does when it turns out to be only slow, it has nothing to attach any more. Then the second
constraint is exchanged for our own, which fails if somebody else was quicker.
"""

# pyarrow and clickhouse-connect ship no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from aaiclick.data.errors import DataError, ObjectNotFoundError, QueryError
from aaiclick.data.layout import OTHER_STRUCTURE
from aaiclick.data.tables import ADD_SOURCE
from aaiclick.data.types import quote_name

if TYPE_CHECKING:
    from aaiclick.data.context import DataContext
    from aaiclick.data.tables import Table

IDLE_SECONDS = 30
"""How long a lock may be held without a sign of life."""

LOOK_SECONDS = 1.0
LONGEST_WAIT = 0.25
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
    """Somebody took us for dead, and took the lock."""


class NoLockError(Exception):
    """The engine of this table has no locks."""


async def append(context: DataContext, table: Table, fill: Callable[[str, int], Awaitable[None]]) -> int:
    """Append the rows that `fill(staging, start)` writes, numbered from `start`; returns the new length."""
    while True:
        staging, _ = await context.create_table(table.columns, table.shape, _nothing)
        try:
            async with locked(context, table.name, staging.name):
                start = await count(context, table.name)
                await fill(staging.name, start)
                await _publish(context, table, staging.name)
            return start + await count(context, staging.name)
        except LockLostError:
            continue
        finally:
            staging.release()


async def _nothing(table: str) -> None:
    """A staging table begins empty."""


async def _publish(context: DataContext, table: Table, staging: str) -> None:
    """Attach everything that is staged."""
    try:
        await _finish(context, table, staging)
    except QueryError as error:
        if error.code != OTHER_STRUCTURE:
            raise
        await context.client.layout.define(staging, ADD_SOURCE, context.query_id())
        await _finish(context, table, staging)


async def _finish(context: DataContext, table: Table, staging: str) -> None:
    """Once begun it is finished: a cancellation waits for what came of it."""
    publish = context.client.layout.publish(table.name, staging, table.columns, context.query_id())
    work = asyncio.ensure_future(publish)
    try:
        await asyncio.shield(work)
    except asyncio.CancelledError:
        await work
        raise


async def count(context: DataContext, table: str) -> int:
    rows: Any = await context.client.read_text(
        f"SELECT count() FROM {quote_name(table)}",  # noqa: S608
        query_id=context.query_id(),
    )
    return rows.column(0)[0].as_py()


@asynccontextmanager
async def locked(context: DataContext, table: str, token: str) -> AsyncGenerator[None]:
    """Hold the lock of a table in the name of a staging table."""
    place = await _acquire(context, table, token)
    try:
        yield
    except ObjectNotFoundError:
        if await _holder(context, place) != token:
            raise LockLostError(
                f"Another writer took over {table} after {IDLE_SECONDS} seconds of silence.", remedy="Do it again."
            ) from None
        raise
    finally:
        await asyncio.shield(_release(context, place, token))


async def _acquire(context: DataContext, table: str, token: str) -> str:
    """Take the lock, whoever has it now; returns the table that it is kept in."""
    while True:
        place = await context.client.layout.place_of(table)
        await _acquire_at(context, place, token)
        if await context.client.layout.place_of(table) == place:
            return place
        await _release(context, place, token)  # the Object was replaced while we waited


async def _acquire_at(context: DataContext, table: str, token: str) -> None:
    wait, looked = 0.005, time.monotonic()
    while not await _alter(context, table, f"ADD CONSTRAINT {LOCK} ASSUME 1, {_mine('ADD', token)} ASSUME 1"):
        await asyncio.sleep(wait * random.uniform(0.5, 1.5))  # noqa: S311
        wait = min(wait * 1.5, LONGEST_WAIT)
        if time.monotonic() - looked > LOOK_SECONDS:
            looked = time.monotonic()
            if await _steal(context, table, token):
                return


async def _release(context: DataContext, table: str, token: str) -> None:
    with suppress(ObjectNotFoundError):
        await _alter(context, table, f"DROP CONSTRAINT {LOCK}, {_mine('DROP', token)}")


async def _steal(context: DataContext, table: str, token: str) -> bool:
    """Take the lock of a holder that is dead; false if it lives, or somebody else took it."""
    holder = await _holder(context, table)
    if holder is None:
        return False
    names = {"t": table, "s": holder, "p": context.client.layout.parts_of(holder)}
    seen: Any = await context.client.read_text(_IDLE, names, query_id=context.query_id())
    ((idle, running),) = [tuple(row.values()) for row in seen.to_pylist()]
    if running or idle < IDLE_SECONDS:
        return False
    await context.client.layout.drop(holder, context.query_id())
    return await _alter(context, table, f"{_mine('DROP', holder)}, {_mine('ADD', token)} ASSUME 1")


async def _holder(context: DataContext, table: str) -> str | None:
    """Whose lock it is. What users named stands in quotes in the definition, and is left out."""
    found: Any = await context.client.read_text(_DEFINITION, {"t": table}, query_id=context.query_id())
    text = _QUOTED.sub("", "".join(found.column(0).to_pylist()))
    match = _HOLDER.search(text)
    return match.group(1) if match else None


async def _alter(context: DataContext, table: str, changes: str) -> bool:
    """Change the definition; false if it is not as the change expects."""
    try:
        await context.client.run(f"ALTER TABLE {quote_name(table)} {changes}", query_id=context.query_id())
    except QueryError as error:
        if error.code == NOT_IMPLEMENTED:
            raise NoLockError from None
        if "constraint" in error.what:  # it is there already, or there no longer
            return False
        raise
    return True


def _mine(verb: str, token: str) -> str:
    return f"{verb} CONSTRAINT {LOCK}_{token}"
