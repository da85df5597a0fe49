"""Schedules: each nominal time once, policies, changes at run time, and declarations in modules."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from datetime import UTC, date, datetime, timedelta

import pytest

from aaiclick import failpoints
from aaiclick.errors import ConflictError, EntrypointError, NotFoundError, ScheduleError, SubmitError
from aaiclick.orchestration import (
    JobStatus,
    NominalDate,
    NominalTime,
    get_job,
    job,
    run_job_test,
    schedule,
    schedule_item,
    task,
    unschedule,
)
from aaiclick.orchestration.loops import incidents, scheduler
from aaiclick.orchestration.schedule_spec import ScheduleSpec
from aaiclick.orchestration.schedules import NewSchedule, find_declared_schedules, save_schedule, sync_schedules
from aaiclick.store.engine.invariants import check_invariants
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.postgres_connections import connect

DAY = datetime(2026, 3, 1, 3, tzinfo=UTC)
received: list[object] = []


@task
def note_day(day: date) -> str:
    received.append(day)
    return day.isoformat()


@job(schedule="0 3 * * *", timezone="Europe/Berlin")
def nightly(day: NominalDate, rows: int = 5) -> None:
    received.append((day, rows))
    note_day(day)


@job(every="5m", overlap="skip")
def often(at: NominalTime) -> None:
    received.append(at)


@pytest.fixture(autouse=True)
def _empty(aaiclick_env):
    received.clear()


@pytest.fixture
async def db(aaiclick_postgres):
    connection = await connect(aaiclick_postgres)
    yield connection
    await connection.close()


async def save(db, name="daily", times="0 3 * * *", **policies):
    spec = ScheduleSpec.parse(times, None, **policies)
    row = await save_schedule(db, DEFAULT_ORG_ID, NewSchedule(name, spec, "m.f", "f"), replace=True)
    await db.execute("UPDATE schedules SET next_run_at = $2, due_at = $2 WHERE id = $1", row["id"], DAY)


async def list_nominal(db):
    rows = await db.fetch("SELECT trigger ->> 'nominal' AS nominal FROM jobs ORDER BY trigger ->> 'nominal'")
    return [datetime.fromisoformat(row["nominal"]) for row in rows]


async def end_jobs(db):
    await db.execute("UPDATE tasks SET status = 'COMPLETED', readiness = NULL, completed_at = now()")
    await db.execute("UPDATE jobs SET status = 'COMPLETED', open_tasks = 0, completed_at = now()")


def days(*numbers):
    return [DAY + timedelta(days=number) for number in numbers]


async def test_nominal_date_is_that_of_the_time_zone_and_reaches_tasks(db):
    name = await schedule(nightly, cron="30 0 * * *", timezone="Asia/Tokyo", arguments={"rows": 7})
    due = datetime(2026, 3, 1, 15, 30, tzinfo=UTC)  # half past midnight of the next day in Tokyo
    await db.execute("UPDATE schedules SET next_run_at = $1, due_at = $1", due)
    assert (await scheduler.run_once(db, now=due + timedelta(minutes=1)))["runs"] == 1
    row = await db.fetchrow("SELECT id, name, trigger FROM jobs")
    done = run_job_test(await get_job(row["id"]))
    assert done.status is JobStatus.COMPLETED
    assert received == [(date(2026, 3, 2), 7), date(2026, 3, 2)]
    trigger = json.loads(row["trigger"])
    assert (row["name"], trigger["schedule"], trigger["nominal"]) == ("nightly", name, due.isoformat())


async def test_item_is_enqueued_once_per_nominal_time(db):
    await schedule_item("mail:digest", {"list": 3}, every="10m", name="digest", missed="all")
    anchor = await db.fetchval("SELECT anchor_at FROM schedules")
    for minutes in (11, 21, 21, 25):
        await scheduler.run_once(db, now=anchor + timedelta(minutes=minutes))
    items = await db.fetch("SELECT type, kwargs, idempotency_key FROM tasks ORDER BY id")
    assert [(item["type"], json.loads(item["kwargs"])) for item in items] == [("mail:digest", {"list": 3})] * 2
    assert len({item["idempotency_key"] for item in items}) == 2
    assert await db.fetchval("SELECT next_run_at FROM schedules") == anchor + timedelta(minutes=30)


@pytest.mark.parametrize(
    ("missed", "started", "skipped"), [("skip", [], 4), ("latest", days(3), 3), ("all", days(1, 2, 3), 1)]
)
async def test_missed_runs_follow_the_policy(db, missed, started, skipped):
    await save(db, missed=missed, max_missed=3, overlap="allow")
    await scheduler.run_once(db, now=DAY + timedelta(days=3, hours=1))
    assert await list_nominal(db) == started
    row = await db.fetchrow("SELECT next_run_at, due_at, skipped FROM schedules")
    assert (row["next_run_at"], row["due_at"], row["skipped"]) == (*days(4, 4), skipped)


async def test_queued_runs_start_one_after_the_other(db):
    await save(db, missed="all", overlap="queue")
    now = DAY + timedelta(days=2, hours=1)
    assert (await scheduler.run_once(db, now=now))["runs"] == 1
    assert (await scheduler.run_once(db, now=now))["runs"] == 0
    for count in (2, 3):
        await end_jobs(db)
        now += timedelta(minutes=1)
        assert (await scheduler.run_once(db, now=now))["runs"] == 1
        assert await list_nominal(db) == days(*range(count))


async def test_waiting_schedules_do_not_delay_others(db):
    count = scheduler.BATCH_SIZE * scheduler.MAX_BATCHES + 1
    for number in range(count):
        await save(db, f"waits {number}", "* * * * *")
    for _ in range(2):
        await scheduler.run_once(db, now=DAY)
    assert await db.fetchval("SELECT count(*) FROM jobs") == count
    await save(db, "free", "2 3 * * *")
    await db.execute("UPDATE schedules SET next_run_at = $1, due_at = $1 WHERE name = 'free'", DAY.replace(minute=2))
    assert [(await scheduler.run_once(db, now=DAY.replace(minute=3)))["runs"] for _ in range(2)] == [0, 1]


async def test_run_is_skipped_while_another_runs(db):
    await save(db, overlap="skip")
    assert (await scheduler.run_once(db, now=DAY))["runs"] == 1
    assert (await scheduler.run_once(db, now=days(1)[0]))["runs"] == 0
    await end_jobs(db)
    assert (await scheduler.run_once(db, now=days(2)[0]))["runs"] == 1
    assert await list_nominal(db) == days(0, 2)
    assert await db.fetchval("SELECT skipped FROM schedules") == 1


async def test_running_job_is_cancelled_by_the_next_run(db):
    await save(db, overlap="cancel_running")
    await scheduler.run_once(db, now=DAY)
    await scheduler.run_once(db, now=days(1)[0])
    rows = await db.fetch("SELECT status::text FROM jobs ORDER BY trigger ->> 'nominal'")
    assert [row["status"] for row in rows] == ["CANCELLED", "PENDING"]
    assert not await check_invariants(db)


async def test_concurrent_schedulers_start_each_time_once(db, aaiclick_postgres):
    for number in range(30):
        await save(db, f"daily {number}", missed="all", overlap="allow")
    connections = [await connect(aaiclick_postgres) for _ in range(8)]
    now = DAY + timedelta(days=3)
    await asyncio.gather(*(scheduler.run_once(connection, now=now) for connection in connections))
    await scheduler.run_once(db, now=now)
    counts = await db.fetch("SELECT trigger ->> 'nominal' AS nominal, count(*) FROM jobs GROUP BY 1 ORDER BY 1")
    assert [(datetime.fromisoformat(row["nominal"]), row["count"]) for row in counts] == [
        (day, 30) for day in days(0, 1, 2, 3)
    ]
    for connection in connections:
        await connection.close()


@pytest.mark.parametrize("failure", ["incident", "commit"])
async def test_incident_of_a_failing_start_is_opened_after_a_failure_to_open_it(db, failure):
    await save(db, "broken")
    await save(db, "sound")
    await db.execute("UPDATE schedules SET options = '{\"nonsense\": 1}' WHERE name = 'broken'")
    if failure == "incident":
        await db.execute("ALTER TABLE incidents RENAME TO hidden_incidents")
        assert (await scheduler.run_once(db, now=DAY))["runs"] == 1
        await db.execute("ALTER TABLE hidden_incidents RENAME TO incidents")
    else:
        failpoints.arm_faults("start_schedules.before=error")
        with pytest.raises(failpoints.FaultError):
            await scheduler.run_once(db, now=DAY)
        failpoints.arm_faults("")
    await scheduler.run_once(db, now=DAY + scheduler.RETRY_INTERVAL)
    titles = await db.fetchval("SELECT array_agg(title) FROM incidents WHERE closed_at IS NULL")
    assert titles == ["The schedule broken cannot be started"]


KILLED = """
import asyncio, sys
from datetime import datetime
from aaiclick.local import postgres_endpoint
from aaiclick.orchestration.loops import scheduler
from aaiclick.store.postgres_connections import connect

async def main():
    connection = await connect(await postgres_endpoint())
    await scheduler.run_once(connection, now=datetime.fromisoformat(sys.argv[1]))

asyncio.run(main())
"""


@pytest.mark.parametrize(("failpoint", "runs"), [("start_schedules.before", 0), ("start_schedules.after", 1)])
async def test_killed_scheduler_loses_and_repeats_no_run(db, failpoint, runs):
    await save(db)
    environment = {**os.environ, "AAICLICK_FAULTS": f"{failpoint}=kill"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", KILLED, DAY.isoformat(), env=environment, cwd="."
    )
    assert await process.wait() == -signal.SIGKILL
    assert len(await list_nominal(db)) == runs
    await scheduler.run_once(db, now=DAY)
    assert await list_nominal(db) == days(0)


async def test_clock_steps_repeat_no_run(db):
    await save(db, missed="all", overlap="allow")
    for step in (2, -30, 1, 3, -1, 3):
        await scheduler.run_once(db, now=DAY + timedelta(days=step, seconds=1))
    assert await list_nominal(db) == days(0, 1, 2, 3)


async def test_failing_start_is_reported_and_does_not_block_others(db):
    await save(db, "broken")
    await save(db, "sound")
    await db.execute("UPDATE schedules SET options = '{\"nonsense\": 1}' WHERE name = 'broken'")
    assert (await scheduler.run_once(db, now=DAY))["runs"] == 1
    row = await db.fetchrow("SELECT error, due_at, next_run_at FROM schedules WHERE name = 'broken'")
    assert "nonsense" in row["error"]
    assert (row["next_run_at"], row["due_at"]) == (DAY, DAY + scheduler.RETRY_INTERVAL)
    later = datetime.now(UTC) + timedelta(hours=1)
    await incidents.run_once(db, now=later)
    open_incident = "SELECT rule, title FROM incidents WHERE closed_at IS NULL"
    assert tuple(await db.fetchrow(open_incident)) == ("start_failed", "The schedule broken cannot be started")
    await db.execute("UPDATE schedules SET options = '{}'")
    await scheduler.run_once(db, now=DAY + scheduler.RETRY_INTERVAL)
    incidents._last_checked = 0
    await incidents.run_once(db, now=later)
    assert await db.fetchrow(open_incident) is None
    assert await db.fetchval("SELECT count(*) FROM jobs") == 2
    assert await db.fetchval("SELECT count(error) FROM schedules") == 0


async def test_schedule_with_the_same_times_keeps_its_next_run(db):
    await schedule(nightly, cron="0 3 * * *", name="mine")
    await db.execute("UPDATE schedules SET next_run_at = $1, due_at = $1", DAY)
    await schedule(nightly, cron="0 3 * * *", name="mine", arguments={"rows": 9})
    assert await db.fetchval("SELECT next_run_at FROM schedules") == DAY
    await schedule(nightly, cron="0 4 * * *", name="mine")
    assert await db.fetchval("SELECT next_run_at FROM schedules") > DAY
    await unschedule("mine")
    with pytest.raises(NotFoundError, match="no schedule 'mine'"):
        await unschedule("mine")


INVALID = {
    "cron": ({"cron": "61 * * * *"}, ScheduleError, "cannot be read"),
    "never": ({"cron": "0 0 31 2 *"}, ScheduleError, "never fires|cannot be read"),
    "zone": ({"cron": "@daily", "timezone": "Mars/Phobos"}, ScheduleError, "no time zone"),
    "both": ({"cron": "@daily", "every": "5m"}, ScheduleError, "both"),
    "neither": ({}, ScheduleError, "no times"),
    "missed": ({"cron": "@daily", "missed": "one"}, ScheduleError, "missed is 'one'"),
    "overlap": ({"cron": "@daily", "overlap": "maybe"}, ScheduleError, "overlap is 'maybe'"),
    "name of 100 kB": ({"cron": "@daily", "name": "n" * 100_000}, ScheduleError, "cannot be called"),
    "name with slash": ({"cron": "@daily", "name": "a/b"}, ScheduleError, "cannot be called"),
    "argument": ({"cron": "@daily", "arguments": {"rows": "many"}}, SubmitError, "rows: Input should be"),
    "unknown argument": ({"cron": "@daily", "arguments": {"row": 1}}, SubmitError, "unexpected keyword argument 'row'"),
}


@pytest.mark.parametrize(("fields", "error", "message"), INVALID.values(), ids=INVALID)
async def test_invalid_schedule_is_refused_with_a_short_message(db, fields, error, message):
    with pytest.raises(error, match=message) as caught:
        await schedule(nightly, **fields)
    assert len(str(caught.value)) < 500
    assert await db.fetchval("SELECT count(*) FROM schedules") == 0


def test_invalid_options_of_a_job_are_refused_when_it_is_defined():
    with pytest.raises(ScheduleError, match="cannot be read"):
        job(schedule="61 * * * *")(nightly.function)
    with pytest.raises(ScheduleError, match="'timezone', but no schedule"):
        job(timezone="UTC")(nightly.function)
    with pytest.raises(SubmitError, match="no option 'cron'"):
        job(cron="@daily")(nightly.function)  # pyright: ignore[reportCallIssue]


async def test_sync_twice_changes_nothing_and_reports_missing_code(db):
    declared = find_declared_schedules(__name__)
    names = sorted(new.name for new in declared)
    assert names == [f"{__name__}.nightly", f"{__name__}.often"]
    planned = await sync_schedules(db, DEFAULT_ORG_ID, __name__, declared, dry_run=True)
    assert (list(planned.added), await db.fetchval("SELECT count(*) FROM schedules")) == (names, 0)
    assert list((await sync_schedules(db, DEFAULT_ORG_ID, __name__, declared)).added) == names
    assert list((await sync_schedules(db, DEFAULT_ORG_ID, __name__, declared)).unchanged) == names
    gone = await sync_schedules(db, DEFAULT_ORG_ID, __name__, declared[:1])
    assert list(gone.missing) == [declared[1].name]
    row = await db.fetchrow("SELECT missing_at, due_at, error FROM schedules WHERE missing_at IS NOT NULL")
    assert row["due_at"] is None
    assert row["error"] == f"{__name__} no longer declares a schedule for {declared[1].entrypoint}."
    assert list((await sync_schedules(db, DEFAULT_ORG_ID, __name__, declared)).changed) == [declared[1].name]
    assert await db.fetchval("SELECT count(due_at) FROM schedules") == 2


async def test_sync_does_not_take_over_a_schedule_made_at_run_time(db):
    await schedule(nightly, cron="@daily")
    with pytest.raises(ConflictError, match="already"):
        await sync_schedules(db, DEFAULT_ORG_ID, __name__, find_declared_schedules(__name__))
    assert await db.fetchval("SELECT count(*) FROM schedules") == 1


def test_sync_of_an_unknown_module_is_refused():
    with pytest.raises(EntrypointError, match="'no_such_module' cannot be imported"):
        find_declared_schedules("no_such_module")
