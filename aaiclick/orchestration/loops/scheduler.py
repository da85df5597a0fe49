"""Scheduler: starts due cron sources, restarts always-on sources after each run, and sets definitions to idle.

A run is identified by its nominal time and started in the transaction that advances the schedule: a crash before the
commit starts nothing, and no run starts twice. A source stays due while its previous run has not ended, unless its runs
may overlap; missed runs are handled by its policy.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import asyncpg

from aaiclick import failpoints
from aaiclick.cron import find_due_runs, may_start, parse_schedule
from aaiclick.store.catalog import events, sources

if TYPE_CHECKING:
    from aaiclick.store.connections import Connection

SMALLEST_STEP = timedelta(microseconds=1)
Start = Callable[["Connection", asyncpg.Record], Awaitable[int]]

_logger = logging.getLogger(__name__)
_last_errors: dict[UUID, str] = {}
"""Last logged error of each definition: a repeated error is logged once."""


async def run_once(connection: Connection, *, now: datetime | None = None) -> dict[str, int]:
    """Run one pass; counts started `runs`, `dead` sources, and definitions that became `idle`."""
    runs = 0
    dead = await sources.update_source_status(connection, now=now)
    async with failpoints.transaction(connection, "schedule"):
        for definition in await sources.lock_due_definitions(connection, now=now):
            runs += await _start_isolated(connection, definition, _start_due_runs)
        for definition in await sources.lock_idle_sources(connection, now=now):
            runs += await _start_isolated(connection, definition, _restart_source)
    return {"runs": runs, "dead": dead, "idle": await sources.mark_idle_definitions(connection)}


async def _start_isolated(connection: Connection, definition: asyncpg.Record, start: Start) -> int:
    """Start a definition in a savepoint: a failure does not affect others, and the definition stays due."""
    try:
        async with connection.transaction():
            runs = await start(connection, definition)
    except asyncpg.LockNotAvailableError:
        return 0
    except Exception as error:
        if connection.is_closed() or isinstance(error, OSError):
            raise
        message = f"{type(error).__name__}: {error}"
        if _last_errors.get(definition["id"]) != message:
            _last_errors[definition["id"]] = message
            _logger.exception("The source %s.%s cannot be started.", definition["dag_name"], definition["name"])
        return 0
    _last_errors.pop(definition["id"], None)
    return runs


async def _restart_source(connection: Connection, definition: asyncpg.Record) -> int:
    await events.start_source_job(connection, definition, {"kind": "always_on"})
    return 1


async def _start_due_runs(connection: Connection, definition: asyncpg.Record) -> int:
    source = json.loads(definition["source"])
    schedule = parse_schedule(source["schedule"], source["timezone"])
    # Everything before the next run was handled; the next run itself was not.
    due_runs = find_due_runs(
        schedule, definition["next_run_at"] - SMALLEST_STEP, definition["now"], missed=source["missed"],
        max_missed=source["max_missed"],
    )  # fmt: skip
    if due_runs.runs and not may_start(definition["running"], overlap=source["overlap"]):
        return 0
    starting = due_runs.runs if source["overlap"] else due_runs.runs[:1]
    for nominal in starting:
        moment = nominal.isoformat()
        await events.start_source_job(
            connection, definition, {"kind": "cron", "nominal": moment}, idempotency_key=f"cron:{moment}"
        )
    left = due_runs.runs[len(starting) :]
    await sources.set_next_run(connection, definition["id"], left[0] if left else due_runs.next_run, bool(starting))
    return len(starting)
