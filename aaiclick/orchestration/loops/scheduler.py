"""The scheduler: cron sources whose time has come are started, sources that always run are started again when a run of
theirs has ended in whatever way, and definitions with nothing to do become idle.

A run is known by its nominal time, and is started in the transaction that moves the schedule on: whoever is killed
before that commits has started nothing, and nobody starts it twice. A source whose run before has not ended stays due,
unless its runs may overlap; what it missed meanwhile is handled by its policy.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import asyncpg

from aaiclick import faults
from aaiclick.orchestration.schedule import due, may_start, parse_schedule
from aaiclick.store import catalog_events, catalog_sources

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

MOMENT = timedelta(microseconds=1)
Start = Callable[["Connection", asyncpg.Record], Awaitable[int]]

_logger = logging.getLogger(__name__)
_said: dict[UUID, str] = {}
"""What was wrong with a definition when it was last said."""


async def run_once(connection: Connection, *, now: datetime | None = None) -> dict[str, int]:
    """One pass: `runs` that were started, sources that were found `dead`, definitions that became `idle`."""
    runs = 0
    dead = await catalog_sources.watch_sources(connection, now=now)
    async with faults.transaction(connection, "schedule"):
        for definition in await catalog_sources.due_definitions(connection, now=now):
            runs += await _alone(connection, definition, _start)
        for definition in await catalog_sources.resting_sources(connection, now=now):
            runs += await _alone(connection, definition, _start_again)
    return {"runs": runs, "dead": dead, "idle": await catalog_sources.make_idle(connection)}


async def _alone(connection: Connection, definition: asyncpg.Record, start: Start) -> int:
    """One that cannot be started keeps no other from it; it stays due."""
    try:
        async with connection.transaction():
            runs = await start(connection, definition)
    except asyncpg.LockNotAvailableError:
        return 0
    except Exception as error:
        if connection.is_closed() or isinstance(error, OSError):
            raise
        said = f"{type(error).__name__}: {error}"
        if _said.get(definition["id"]) != said:
            _said[definition["id"]] = said
            _logger.exception("The source %s.%s cannot be started.", definition["dag_name"], definition["name"])
        return 0
    _said.pop(definition["id"], None)
    return runs


async def _start_again(connection: Connection, definition: asyncpg.Record) -> int:
    await catalog_events.fire(connection, definition, {"kind": "always_on"})
    return 1


async def _start(connection: Connection, definition: asyncpg.Record) -> int:
    source = json.loads(definition["source"])
    schedule = parse_schedule(source["schedule"], source["timezone"])
    # Everything before the next run was handled; the next run itself was not.
    found = due(
        schedule, definition["next_run_at"] - MOMENT, definition["now"], missed=source["missed"],
        max_missed=source["max_missed"],
    )  # fmt: skip
    if found.runs and not may_start(definition["running"], overlap=source["overlap"]):
        return 0
    starting = found.runs if source["overlap"] else found.runs[:1]
    for nominal in starting:
        moment = nominal.isoformat()
        await catalog_events.fire(
            connection, definition, {"kind": "cron", "nominal": moment}, idempotency_key=f"cron:{moment}"
        )
    left = found.runs[len(starting) :]
    await catalog_sources.schedule(connection, definition["id"], left[0] if left else found.next_run, bool(starting))
    return len(starting)
