"""Scheduler: starts due runs of schedules and of cron sources, and restarts always-on sources after each run.

A run is identified by its nominal time and started in the transaction that advances its schedule: a crash before the
commit starts nothing, and no run starts twice. `aaiclick.cron` decides by the policies for missed and
overlapping runs, for schedules and for cron sources alike.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import asyncpg

from aaiclick import failpoints
from aaiclick.cron import (
    MissedPolicy,
    NominalTimes,
    OverlapPolicy,
    StartDecision,
    decide_start,
    find_due_runs,
    parse_schedule,
)
from aaiclick.orchestration.schedule_spec import nominal_times_of
from aaiclick.orchestration.scheduled_runs import start_run
from aaiclick.store.catalog import dag_sources, dataset_events
from aaiclick.store.engine import cancel, schedules
from aaiclick.store.engine.incidents import record_failed_start

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

SMALLEST_STEP = timedelta(microseconds=1)
BATCH_SIZE = 200
MAX_BATCHES = 5
"""Batches of schedules per pass: other loops of the leader wait for it."""

MIN_WAIT, MAX_WAIT = timedelta(seconds=1), timedelta(seconds=15)
"""Time between two looks at a run that waits for the end of another: an eighth of its delay, within these bounds."""

RETRY_INTERVAL = timedelta(seconds=30)
"""Time between two attempts to start a run."""

MAX_CANCELLED = 100
ERROR_CHARACTERS = 1_000
Start = Callable[["Connection", asyncpg.Record], Awaitable[int]]

_logger = logging.getLogger(__name__)
_last_errors: dict[object, str] = {}
"""Last error with an incident of each definition and schedule: a repeated error is logged once."""


@dataclass
class _Starts:
    """Starts in one transaction; `remember` keeps their errors after its commit."""

    errors: dict[object, str] = field(default_factory=dict[object, str])
    unreported: set[object] = field(default_factory=set[object])
    """Those without an incident: the next pass tries to open it again."""
    succeeded: set[object] = field(default_factory=set[object])

    def remember(self) -> None:
        for row_id in self.succeeded:
            _last_errors.pop(row_id, None)
        _last_errors.update({row_id: error for row_id, error in self.errors.items() if row_id not in self.unreported})


async def run_once(connection: Connection, *, now: datetime | None = None) -> dict[str, int]:
    """Run one pass; counts started `runs`, `dead` sources, and definitions that became `idle`."""
    dead = await dag_sources.update_source_status(connection, now=now)
    runs, starts = 0, _Starts()
    async with failpoints.transaction(connection, "schedule"):
        for definition in await dag_sources.lock_due_definitions(connection, now=now):
            runs += await _start_isolated(connection, definition, _start_due_source, starts) or 0
        for definition in await dag_sources.lock_idle_sources(connection, now=now):
            runs += await _start_isolated(connection, definition, _restart_source, starts) or 0
    starts.remember()
    runs += await start_due_schedules(connection, now=now)
    return {"runs": runs, "dead": dead, "idle": await dag_sources.mark_idle_definitions(connection)}


async def start_due_schedules(connection: Connection, *, now: datetime | None = None) -> int:
    """Start due runs of schedules, batch by batch; returns how many."""
    runs = 0
    for _ in range(MAX_BATCHES):
        starts = _Starts()
        async with failpoints.transaction(connection, "start_schedules"):
            due = await schedules.lock_due_schedules(connection, limit=BATCH_SIZE, now=now)
            for schedule in due:
                started = await _start_isolated(connection, schedule, _start_due_schedule, starts)
                if started is None:
                    error = starts.errors[schedule["id"]][:ERROR_CHARACTERS]
                    await schedules.postpone_schedule(
                        connection, schedule["id"], schedule["now"] + RETRY_INTERVAL, error
                    )
                runs += started or 0
        starts.remember()
        if len(due) < BATCH_SIZE:
            break
    return runs


async def _start_isolated(connection: Connection, row: asyncpg.Record, start: Start, starts: _Starts) -> int | None:
    """Start runs in a savepoint: a failure does not affect others, and the runs stay due. None after a failure."""
    try:
        async with connection.transaction():
            runs = await start(connection, row)
    except asyncpg.LockNotAvailableError:
        return 0
    except Exception as error:
        if connection.is_closed() or isinstance(error, OSError):
            raise
        message = starts.errors[row["id"]] = f"{type(error).__name__}: {error}"
        if _last_errors.get(row["id"]) != message:
            dag = row.get("dag_name")
            name = f"schedule {row['name']}" if dag is None else f"source {dag}.{row['name']}"
            _logger.exception("The %s cannot be started.", name)
            try:
                await _open_incident(connection, row, message)
            except Exception as incident_error:
                if connection.is_closed() or isinstance(incident_error, OSError):
                    raise
                starts.unreported.add(row["id"])
                _logger.exception("The incident of the %s cannot be opened.", name)
        return None
    starts.succeeded.add(row["id"])
    return runs


async def _open_incident(connection: Connection, row: asyncpg.Record, message: str) -> None:
    """Open the incident of a new error in a savepoint of the pass."""
    async with connection.transaction():
        if row.get("dag_name") is None:
            await record_failed_start(connection, row["org_id"], row["name"], message, schedule_id=row["id"])
        else:
            name = f"{row['dag_name']}.{row['name']}"
            await record_failed_start(connection, row["org_id"], name, message, dag_name=row["dag_name"])


def _decide(
    row: asyncpg.Record, times: NominalTimes, missed: MissedPolicy, max_missed: int, overlap: OverlapPolicy
) -> StartDecision:
    # Everything before the next run was handled; the next run itself was not.
    last_handled = row["next_run_at"] - SMALLEST_STEP
    due_runs = find_due_runs(times, last_handled, row["now"], missed=missed, max_missed=max_missed)
    return decide_start(due_runs, overlap, row["running"])


async def _start_due_schedule(connection: Connection, schedule: asyncpg.Record) -> int:
    times, now = nominal_times_of(schedule), schedule["now"]
    decision = _decide(schedule, times, schedule["missed"], schedule["max_missed"], schedule["overlap"])
    if decision.waits:
        due_at = now + min(max((now - schedule["next_run_at"]) / 8, MIN_WAIT), MAX_WAIT)
        await schedules.advance_schedule(connection, schedule["id"], schedule["next_run_at"], due_at=due_at)
        return 0
    if decision.cancels:
        for job_id in await schedules.list_unfinished_runs(connection, schedule["id"], MAX_CANCELLED):
            await cancel.cancel_job(connection, job_id)
    run_id: int | None = None
    for nominal in decision.starting:
        run_id, _ = await start_run(connection, schedule, nominal)
    await schedules.advance_schedule(
        connection, schedule["id"], decision.next_run, due_at=decision.next_run, run_id=run_id,
        nominal=decision.starting[-1] if decision.starting else None, skipped=decision.skipped,
    )  # fmt: skip
    return len(decision.starting)


async def _start_due_source(connection: Connection, definition: asyncpg.Record) -> int:
    source = json.loads(definition["source"])
    times = parse_schedule(source["schedule"], source["timezone"])
    decision = _decide(definition, times, source["missed"], source["max_missed"], source["overlap"])
    if decision.waits:
        return 0
    if decision.cancels:
        for job_id in await dag_sources.list_unfinished_runs(connection, definition, MAX_CANCELLED):
            await cancel.cancel_job(connection, job_id)
    for nominal in decision.starting:
        moment = nominal.isoformat()
        await dataset_events.start_source_job(
            connection, definition, {"kind": "cron", "nominal": moment}, idempotency_key=f"cron:{moment}"
        )
    await dag_sources.set_next_run(connection, definition["id"], decision.next_run, bool(decision.starting))
    return len(decision.starting)


async def _restart_source(connection: Connection, definition: asyncpg.Record) -> int:
    await dataset_events.start_source_job(connection, definition, {"kind": "always_on"})
    return 1
