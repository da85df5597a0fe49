"""Workers, routers and schedulers are killed at every step: no event is lost, none is applied twice."""

from __future__ import annotations

import asyncio
import os
import subprocess
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from aaiclick import faults
from aaiclick.orchestration import RetryPolicy, set_retry_policy
from aaiclick.orchestration.loops import scheduler
from aaiclick.store import catalog_sources, event_routing, queue
from aaiclick.store.engine import connect
from aaiclick.store.upkeep import reap
from aaiclick.store.words import DEFAULT_ORG_ID
from tests.hatchery import HATCHERY
from tests.integration.catalog.conftest import SHOP, order

PLACES = ["publish.before", "publish.after"]
ENDED = "SELECT completed_at IS NOT NULL FROM jobs WHERE id = $1"


def start_worker(marks, **variables):
    arguments = ["worker", "start", "--processes", "1", "--concurrency", "4"]
    quick = {"WORKER_TIMEOUT": "3", "WORKER_HEARTBEAT_INTERVAL": "0.5"}
    environment = os.environ | quick | {"AAICLICK_FAULT_MARKS": str(marks)} | variables
    return HATCHERY.start(arguments, environment, stderr=subprocess.DEVNULL)


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
            await event_routing.route(shop.db)
        faults.arm("", None)
        assert len(await shop.tasks(job_id)) == given_out
        await event_routing.route(shop.db)
        assert await shop.tasks(job_id) == [("tidy",)] * 5
    await shop.check()


async def test_a_router_that_is_cut_off_half_way_leaves_everything_to_the_next(shop, aaiclick_postgres, monkeypatch):
    """It has taken events out of the outbox and has not given out their tasks."""
    await shop.deploy()
    job_id = await shop.emit("shop.raw", 5)
    consumers = event_routing._consumers

    async def cut_off(connection, updates, payloads):
        assert [len(update["ids"]) for update in updates] == [5]
        await shop.db.execute("SELECT pg_terminate_backend($1)", connection.get_server_pid())
        return await consumers(connection, updates, payloads)

    monkeypatch.setattr(event_routing, "_consumers", cut_off)
    router = await connect(aaiclick_postgres)
    with pytest.raises((asyncpg.PostgresConnectionError, asyncpg.AdminShutdownError, asyncpg.InterfaceError)):
        await event_routing.route(router)
    router.terminate()
    monkeypatch.undo()
    assert await shop.tasks(job_id) == []
    assert await event_routing.route(shop.db) == 5
    assert await shop.tasks(job_id) == [("tidy",)] * 5
    await shop.check()


async def as_if_nothing_had_happened(shop, job_id):
    assert sorted(await shop.tasks(job_id)) == [
        ("fetch",), ("sums", "2026-01-01"), ("sums", "2026-01-02"), ("tidy",), ("twice",),
    ]  # fmt: skip
    assert await shop.rows("shop.raw") == [(1, "2026-01-01", 10), (2, "2026-01-02", 20), (3, "2026-01-01", 30)]
    assert await shop.rows("daily") == [("2026-01-01", 40), ("2026-01-02", 20)]
    assert await shop.rows("shop.doubled") == [(1, 20), (2, 40), (3, 60)]
    assert await shop.db.fetchval("SELECT count(*) FROM outbox") == 0
    await shop.check()


DUE = datetime(2026, 3, 1, 5, 30, tzinfo=UTC)


async def nominal_times(shop):
    rows = await shop.db.fetch("SELECT idempotency_key FROM jobs ORDER BY id")
    return [row["idempotency_key"] for row in rows]


async def set_due(shop, moment=DUE + timedelta(minutes=30)):
    await shop.db.execute("UPDATE job_definitions SET next_run_at = $1 WHERE name = 'fetch'", moment)


async def end_jobs(shop):
    await shop.db.execute("UPDATE tasks SET status = 'COMPLETED', readiness = NULL, lease_token = NULL, "
                          "lease_expires_at = NULL, completed_at = now()")  # fmt: skip
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


async def test_a_source_that_cannot_be_started_keeps_no_other_from_it(shop, caplog):
    await shop.deploy()
    await shop.deploy(SHOP.replace("name: shop", "name: broken", 1).replace("publish: [daily]", ""))
    await set_due(shop)
    source = "UPDATE job_definitions SET source = source - 'max_missed' WHERE dag_name = 'broken' AND name = 'fetch'"
    await shop.db.execute(source)
    later = DUE + timedelta(days=3)
    for _ in range(2):
        assert (await scheduler.run_once(shop.db, now=later))["runs"] <= 1
    assert await nominal_times(shop) == ["cron:2026-03-01T06:00:00+00:00"]
    assert caplog.text.count("The source broken.fetch cannot be started.") == 1, "said once, though it is tried again"


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


async def test_a_source_that_always_runs_says_whether_it_lives_is_dead_or_drains(shop):
    source = 'source: {kind: cron, schedule: "0 6 * * *", missed: all}'
    always = SHOP.replace(source, "source: {kind: always_on}\n    heartbeat_timeout_seconds: 30")
    first = await shop.deploy(always)
    me = await queue.register_worker(shop.db, hostname="here", pid=1)
    state = "SELECT status::text FROM job_definitions WHERE dag_version_id = $1 AND name = 'fetch'"

    async def stands(version=first, later=0):
        counts = await scheduler.run_once(shop.db, now=datetime.now(UTC) + timedelta(seconds=later))
        return await shop.db.fetchval(state, version.version_id), counts["dead"]

    async def claim():
        (found,) = await queue.claim(shop.db, worker_id=me.id, limit=1, queues=(), lease_seconds=60)
        return found

    await stands()  # starts it
    assert await stands() == ("Pending", 0)
    await claim()
    assert await stands() == ("Running", 0)
    beat = await shop.db.fetchval("SELECT last_heartbeat FROM job_definitions WHERE dag_version_id = $1 "
                                  "AND name = 'fetch'", first.version_id)  # fmt: skip
    assert abs((datetime.now(UTC) - beat).total_seconds()) < 300
    assert await stands(later=45) == ("Dead", 1)  # no heartbeat, though the lease still holds
    assert await stands(later=45) == ("Dead", 0)
    await reap(shop.db, delay_seconds=lambda *_: 0, now=datetime.now(UTC) + timedelta(seconds=61))
    assert await stands() == ("Dead", 0)  # lost once, to be tried again
    await queue.promote(shop.db, now=datetime.now(UTC) + timedelta(seconds=120))
    await claim()
    assert await stands() == ("Running", 0)
    await catalog_sources.pause_dag(shop.db, DEFAULT_ORG_ID, "shop")
    assert await stands() == ("Draining", 0)
    await catalog_sources.resume_dag(shop.db, DEFAULT_ORG_ID, "shop")
    assert await stands() == ("Running", 0)
    second = await shop.deploy(always.replace("max_attempts: 5", "max_attempts: 6"))
    assert await stands() == ("Draining", 0)
    assert await stands(second, later=60) == ("Pending", 0)  # it waits for the one before
    assert await shop.db.fetchval("SELECT count(*) FROM jobs") == 1
    await end_jobs(shop)
    assert await stands() == ("Pending", 0)
    await stands(second, later=60)
    assert await shop.db.fetchval("SELECT count(*) FROM jobs") == 2
