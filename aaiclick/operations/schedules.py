"""Operations on schedules."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from aaiclick.api.dags import BackfillResponse, BackfillStep
from aaiclick.api.field_types import CreatedResponse, Page
from aaiclick.api.schedules import (
    Schedule,
    ScheduleDetail,
    ScheduleRequest,
    ScheduleRun,
    ScheduleState,
    SyncSchedulesResponse,
)
from aaiclick.catalog.backfill import list_times_between
from aaiclick.errors import ConflictError, ScheduleError
from aaiclick.operations.actor import Actor, Permission
from aaiclick.operations.operation import operation, write_audit
from aaiclick.operations.pagination import make_page, read_text_cursor
from aaiclick.operations.row_conversion import from_row
from aaiclick.orchestration.function_registry import check_registered_arguments
from aaiclick.orchestration.schedule_spec import ScheduleSpec, nominal_times_of
from aaiclick.orchestration.scheduled_runs import start_run
from aaiclick.orchestration.schedules import NewSchedule, save_schedule
from aaiclick.orchestration.schedules import sync_schedules as sync_declared_schedules
from aaiclick.store.engine import schedules as store

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.postgres_connections import Connection

SHOWN_TIMES = 5
SHOWN_RUNS = 20


@operation(Permission.READER, changes=False)
async def list_schedules(
    connection: Connection,
    actor: Actor,
    *,
    state: ScheduleState | None = None,
    cursor: str | None = None,
    limit: int = 100,
) -> Page[Schedule]:
    """List schedules by name."""
    after = read_text_cursor(cursor) or ""
    rows = await store.list_schedules(connection, actor.org_id, after=after, state=state, limit=limit + 1)
    return make_page(rows, limit, _to_schedule, lambda row: row["name"])


@operation(Permission.READER, changes=False)
async def get_schedule(connection: Connection, actor: Actor, name: str) -> ScheduleDetail:
    """Get a schedule with its next times and its last runs."""
    row = await store.get_schedule(connection, actor.org_id, name)
    runs = await store.list_schedule_runs(connection, row["id"], SHOWN_RUNS)
    next_runs: list[datetime] = []
    if row["next_run_at"] is not None:
        times = nominal_times_of(row)
        next_runs = [row["next_run_at"], *islice(times.runs_after(row["next_run_at"]), SHOWN_TIMES - 1)]
    return ScheduleDetail(
        **_to_schedule(row).model_dump(),
        kwargs=json.loads(row["kwargs"]),
        options=json.loads(row["options"]),
        next_runs=next_runs,
        runs=[_to_run(run) for run in runs],
    )


@operation(Permission.WRITER)
async def create_schedule(connection: Connection, actor: Actor, schedule: ScheduleRequest) -> Schedule:
    """Create a schedule, or replace the one of the same name if the request says so."""
    await _check_arguments(connection, actor, schedule)
    row = await save_schedule(connection, actor.org_id, make_new_schedule(schedule), replace=schedule.replace)
    times = {"cron": schedule.cron, "every": schedule.every, "timezone": schedule.timezone}
    target = {"entrypoint": schedule.entrypoint, "item_type": schedule.item_type}
    detail = {key: value for key, value in (target | times).items() if value is not None}
    await write_audit(connection, actor, "schedule.create", schedule.name, detail)
    return _to_schedule(await store.get_schedule(connection, actor.org_id, row["name"]))


@operation(Permission.WRITER)
async def delete_schedule(connection: Connection, actor: Actor, name: str) -> None:
    """Delete a schedule; its jobs continue."""
    await store.delete_schedule(connection, actor.org_id, name)
    await write_audit(connection, actor, "schedule.delete", name)


@operation(Permission.WRITER)
async def pause_schedule(connection: Connection, actor: Actor, name: str) -> None:
    """Pause a schedule: no run of it starts; running jobs continue."""
    await store.pause_schedule(connection, actor.org_id, name)
    await write_audit(connection, actor, "schedule.pause", name)


@operation(Permission.WRITER)
async def resume_schedule(connection: Connection, actor: Actor, name: str) -> None:
    """Resume a paused schedule. Runs that were missed follow its policy."""
    await store.resume_schedule(connection, actor.org_id, name)
    await write_audit(connection, actor, "schedule.resume", name)


@operation(Permission.WRITER, as_owner=True)
async def fire_schedule(connection: Connection, actor: Actor, name: str, nominal: str | None = None) -> CreatedResponse:
    """Start a run of a schedule now, also of a paused one; its other runs are not affected."""
    row = await _lock_runnable(connection, actor, name)
    moment = row["now"] if nominal is None else _parse_nominal(nominal, row)
    run_id, _ = await start_run(connection, row, moment, "fire")
    await write_audit(connection, actor, "schedule.fire", name, {"run": str(run_id), "nominal": moment.isoformat()})
    return CreatedResponse(id=run_id)


@operation(Permission.WRITER, as_owner=True)
async def backfill_schedule(
    connection: Connection, actor: Actor, name: str, first: str, last: str, *, dry_run: bool = False
) -> BackfillResponse:
    """Start the runs of past nominal times in a range that have not run; with `dry_run` only list them.

    They are started at once, whatever the overlap policy. A repeated backfill starts none twice.
    """
    row = await _lock_runnable(connection, actor, name)
    # in a thread, since rare times are looked for day by day
    times = await asyncio.to_thread(list_times_between, nominal_times_of(row), first, last, row["now"])
    existing = await store.find_runs(connection, row, [f"schedule:{row['id']}:{time.isoformat()}" for time in times])
    steps: list[BackfillStep] = []
    run_ids: list[int] = []
    for time in times:
        run = existing.get(f"schedule:{row['id']}:{time.isoformat()}")
        steps.append(
            BackfillStep(
                name=time.astimezone(nominal_times_of(row).zone).isoformat(),
                status=None if run is None else run["status"],
                job_id=None if run is None else run["id"],
            )
        )
        if run is None and not dry_run:
            run_ids.append((await start_run(connection, row, time, "backfill"))[0])
    count = sum(step.status is None for step in steps)
    if not dry_run:
        await write_audit(connection, actor, "schedule.backfill", name, {"from": first, "to": last, "runs": count})
    return BackfillResponse(job=name, count=count, before=len(steps) - count, limit=None, steps=steps, job_ids=run_ids)


@operation(Permission.WRITER)
async def sync_schedules(
    connection: Connection, actor: Actor, module: str, schedules: Sequence[ScheduleRequest], *, dry_run: bool = False
) -> SyncSchedulesResponse:
    """Make the schedules of a module those that its code declares; with `dry_run` only compare them.

    Schedules that it no longer declares are stopped and marked as missing.
    """
    declared = await asyncio.to_thread(make_declared_schedules, schedules)
    result = await sync_declared_schedules(connection, actor.org_id, module, declared, dry_run=dry_run)
    if not dry_run and (result.added or result.changed or result.missing):
        detail = {"added": len(result.added), "changed": len(result.changed), "missing": len(result.missing)}
        await write_audit(connection, actor, "schedule.sync", module, detail)
    return SyncSchedulesResponse(
        added=list(result.added),
        changed=list(result.changed),
        unchanged=list(result.unchanged),
        missing=list(result.missing),
    )


async def _lock_runnable(connection: Connection, actor: Actor, name: str) -> asyncpg.Record:
    row = await store.lock_schedule(connection, actor.org_id, name)
    if row is None:
        raise store.unknown_schedule(name)
    if row["missing_at"] is not None:
        raise ConflictError(
            f"The code of the schedule {name!r} is missing. {row['error']}",
            remedy=f"Restore it and run 'aaiclick schedules sync {row['declared_in']}', or delete the schedule.",
        )
    return row


async def _check_arguments(connection: Connection, actor: Actor, schedule: ScheduleRequest) -> None:
    """Validate the arguments of a registered function; raises SubmitError."""
    if schedule.entrypoint is not None:
        nominal = "2026-01-01" if schedule.nominal_type == "date" else "2026-01-01T00:00:00+00:00"
        sample = {} if schedule.nominal_parameter is None else {schedule.nominal_parameter: nominal}
        entrypoint = schedule.entrypoint.replace(":", ".")
        await check_registered_arguments(connection, actor.org_id, entrypoint, schedule.kwargs | sample)


def _parse_nominal(text: str, row: asyncpg.Record) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=nominal_times_of(row).zone)
        return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ScheduleError(
            f"{text!r:.60} is no time.", remedy="Write it as 2026-01-31 or 2026-01-31T06:00:00+01:00."
        ) from None


def make_declared_schedules(schedules: Sequence[ScheduleRequest]) -> list[NewSchedule]:
    """Schedules that code declares. Called in a thread, since there may be many."""
    return [make_new_schedule(schedule, is_declared=True) for schedule in schedules]


def make_new_schedule(schedule: ScheduleRequest, *, is_declared: bool = False) -> NewSchedule:
    """The schedule of a request; a declared one belongs to the module of its function."""
    spec = ScheduleSpec.parse(
        schedule.cron,
        schedule.every,
        timezone=schedule.timezone,
        missed=schedule.missed,
        max_missed=schedule.max_missed,
        overlap=schedule.overlap,
    )
    entrypoint = schedule.entrypoint and schedule.entrypoint.replace(":", ".")
    job_name = None if entrypoint is None else schedule.job_name or entrypoint.rpartition(".")[2]
    return NewSchedule(
        schedule.name,
        spec,
        entrypoint,
        job_name,
        schedule.item_type,
        schedule.kwargs,
        schedule.options.to_options(),
        schedule.nominal_parameter,
        schedule.nominal_type if schedule.nominal_parameter is not None else None,
        schedule.timeout_seconds,
        entrypoint.rpartition(".")[0] if is_declared and entrypoint is not None else None,
    )


def _to_schedule(row: asyncpg.Record) -> Schedule:
    state = "missing" if row["missing_at"] is not None else "paused" if row["paused_at"] is not None else "active"
    return from_row(Schedule, row, state=state, last_run_status=row["run_status"])


def _to_run(row: asyncpg.Record) -> ScheduleRun:
    trigger: dict[str, Any] = json.loads(row["trigger"] or "{}")
    return from_row(ScheduleRun, row, nominal_at=trigger.get("nominal"), cause=trigger.get("kind", "schedule"))
