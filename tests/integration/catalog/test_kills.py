"""Workers, routers and schedulers are killed at every step: no event is lost, none is applied twice."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from aaiclick import faults
from aaiclick.orchestration import RetryPolicy, set_retry_policy
from aaiclick.orchestration.loops import scheduler
from aaiclick.store import catalog_events
from aaiclick.store.engine import connect
from tests.integration.catalog.conftest import SHOP, order

PLACES = ["publish.before", "publish.after"]
ENDED = "SELECT completed_at IS NOT NULL FROM jobs WHERE id = $1"


def start_worker(marks, **variables):
    command = [sys.executable, "-m", "aaiclick", "worker", "start", "--processes", "1", "--concurrency", "4"]
    quick = {"WORKER_TIMEOUT": "3", "WORKER_HEARTBEAT_INTERVAL": "0.5"}
    environment = os.environ | quick | {"AAICLICK_FAULT_MARKS": str(marks)} | variables
    return subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)


async def test_a_flow_ends_as_if_nobody_had_been_killed(shop, tmp_path, monkeypatch):
    """Rows are put in place, and the process is killed just before and just after that is committed."""
    marks = tmp_path / "marks"
    marks.mkdir()
    monkeypatch.setenv("AAICLICK_LOG_DIR", str(tmp_path / "logs"))
    await shop.deploy(SHOP.replace("max_attempts: 5", "max_attempts: 30"))
    for job in ("fetch", "tidy", "sums", "twice"):
        await set_retry_policy(f"shop.{job}", RetryPolicy(base_seconds=0.01, cap_seconds=0.01))
    job_id = await shop.fire({"rows": [order(1, 1, 10), order(2, 2, 20), order(3, 1, 30)]})
    armed = ",".join(f"{place}=kill" for place in PLACES)
    worker = start_worker(marks, AAICLICK_FAULTS=armed)
    try:
        await shop.until(ENDED, job_id)
    finally:
        worker.terminate()
        await asyncio.to_thread(worker.wait, 30)
    assert await shop.db.fetchval("SELECT status::text FROM jobs WHERE id = $1", job_id) == "COMPLETED"
    assert {each.name for each in marks.iterdir()} == set(PLACES)
    await as_if_nothing_had_happened(shop, job_id)


async def test_a_completion_whose_answer_is_lost_leaves_everything_behind_once(shop):
    await shop.deploy()
    faults.arm(",".join(f"{name}.{when}=error" for name in ("end", "flush") for when in ("before", "after")), None)
    try:
        job_id = await shop.run(order(1, 1, 10), order(2, 2, 20), order(3, 1, 30))
    finally:
        faults.arm("", None)
    await as_if_nothing_had_happened(shop, job_id)


async def test_a_router_that_dies_has_given_events_out_or_not(shop):
    await shop.deploy()
    for place, given_out in (("route.before", 0), ("route.after", 5)):
        job_id = await shop.emit("shop.raw", 5)
        faults.arm(f"{place}=error", None)
        with pytest.raises(faults.FaultError):
            await catalog_events.route(shop.db)
        faults.arm("", None)
        assert len(await shop.tasks(job_id)) == given_out
        await catalog_events.route(shop.db)
        assert await shop.tasks(job_id) == [("tidy",)] * 5
    await shop.check()


async def as_if_nothing_had_happened(shop, job_id):
    assert sorted(await shop.tasks(job_id)) == [
        ("fetch",), ("sums", "2026-01-01"), ("sums", "2026-01-02"), ("tidy",), ("twice",),
    ]  # fmt: skip
    assert await shop.rows("shop.raw") == [(1, "2026-01-01", 10), (2, "2026-01-02", 20), (3, "2026-01-01", 30)]
    assert await shop.rows("daily") == [("2026-01-01", 40), ("2026-01-02", 20)]
    assert await shop.rows("shop.doubled") == [(1, 20), (2, 40), (3, 60)]
    assert await shop.db.fetchval("SELECT count(*) FROM outbox WHERE status <> 'Done'") == 0
    await shop.check()


DUE = datetime(2026, 3, 1, 5, 30, tzinfo=UTC)


async def nominal_times(shop):
    rows = await shop.db.fetch("SELECT idempotency_key FROM jobs ORDER BY id")
    return [row["idempotency_key"] for row in rows]


async def set_due(shop, moment=DUE + timedelta(minutes=30)):
    await shop.db.execute("UPDATE job_definitions SET next_run_at = $1 WHERE name = 'fetch'", moment)


async def end_jobs(shop):
    await shop.db.execute("UPDATE tasks SET status = 'COMPLETED', readiness = NULL, completed_at = now()")
    await shop.db.execute("UPDATE jobs SET status = 'COMPLETED', open_tasks = 0, completed_at = now() "
                          "WHERE completed_at IS NULL")  # fmt: skip


async def test_schedulers_at_once_start_each_run_once(shop, aaiclick_postgres):
    await shop.deploy(SHOP.replace("missed: all", "missed: all, overlap: true"))
    await set_due(shop)
    others = [await connect(aaiclick_postgres) for _ in range(5)]
    later = DUE + timedelta(days=3)
    counts = await asyncio.gather(*(scheduler.run_once(each, now=later) for each in others for _ in [0]))
    assert sum(count["runs"] for count in counts) == 3
    assert await nominal_times(shop) == [f"cron:2026-03-0{day}T06:00:00+00:00" for day in (1, 2, 3)]
    for each in others:
        await each.close()


async def test_a_run_waits_for_the_one_before_and_none_is_skipped(shop):
    await shop.deploy()
    await set_due(shop)
    later = DUE + timedelta(days=3)
    assert (await scheduler.run_once(shop.db, now=later))["runs"] == 1
    assert (await scheduler.run_once(shop.db, now=later))["runs"] == 0
    for day in (2, 3):
        await end_jobs(shop)
        assert (await scheduler.run_once(shop.db, now=later))["runs"] == 1
        assert (await nominal_times(shop))[-1] == f"cron:2026-03-0{day}T06:00:00+00:00"
    await end_jobs(shop)
    assert (await scheduler.run_once(shop.db, now=later))["runs"] == 0


@pytest.mark.parametrize(("place", "there"), [("schedule.before", 0), ("schedule.after", 1)])
async def test_a_scheduler_that_dies_has_started_a_run_or_not(shop, place, there):
    await shop.deploy()
    await set_due(shop)
    faults.arm(f"{place}=error", None)
    with pytest.raises(faults.FaultError):
        await scheduler.run_once(shop.db, now=DUE + timedelta(hours=1))
    faults.arm("", None)
    assert len(await nominal_times(shop)) == there
    await scheduler.run_once(shop.db, now=DUE + timedelta(hours=1))
    assert await nominal_times(shop) == ["cron:2026-03-01T06:00:00+00:00"]


async def test_a_new_version_takes_over_the_run_that_is_due(shop):
    await shop.deploy()
    await set_due(shop)
    await shop.deploy(SHOP.replace("id > 0", "id > 1"))
    assert (await scheduler.run_once(shop.db, now=DUE + timedelta(hours=1)))["runs"] == 1
    assert await nominal_times(shop) == ["cron:2026-03-01T06:00:00+00:00"]


async def test_a_source_that_always_runs_is_started_again_when_its_run_has_ended(shop, aaiclick_postgres):
    source = 'source: {kind: cron, schedule: "0 6 * * *", missed: all}'
    await shop.deploy(SHOP.replace(source, "source: {kind: always_on}"))
    other = await connect(aaiclick_postgres)
    counts = await asyncio.gather(*(scheduler.run_once(each) for each in (shop.db, other)))
    assert sum(count["runs"] for count in counts) == 1
    later = datetime.now(UTC) + timedelta(minutes=1)
    assert (await scheduler.run_once(shop.db, now=later))["runs"] == 0
    await end_jobs(shop)
    assert (await scheduler.run_once(shop.db))["runs"] == 0
    assert (await scheduler.run_once(shop.db, now=later))["runs"] == 1
    await other.close()
