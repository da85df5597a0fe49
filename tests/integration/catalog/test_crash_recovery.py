"""Workers, routers and schedulers are killed at every step: no event is lost or applied twice."""

from __future__ import annotations

import asyncio
import os
import subprocess
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from aaiclick import failpoints
from aaiclick.orchestration import RetryPolicy, set_retry_policy
from aaiclick.orchestration.loops import scheduler
from aaiclick.store.catalog import dag_sources, event_routing
from aaiclick.store.engine import queue
from aaiclick.store.engine.maintenance import reap_expired_leases
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.postgres_connections import connect
from tests.fork_server import FORK_SERVER
from tests.integration.catalog.conftest import SHOP, order

FAILPOINTS = ["publish.before", "publish.after"]
ENDED = "SELECT completed_at IS NOT NULL FROM jobs WHERE id = $1"


def start_worker(marks, *options, stderr=subprocess.DEVNULL, **variables):
    arguments = ["worker", "start", "--processes", "1", "--concurrency", "4", *options]
    quick = {"WORKER_TIMEOUT": "3", "WORKER_HEARTBEAT_INTERVAL": "0.5"}
    environment = os.environ | quick | {"AAICLICK_FAULT_MARKS": str(marks)} | variables
    return FORK_SERVER.start(arguments, environment, stderr=stderr)


async def test_dag_run_completes_despite_kills(shop, tmp_path, monkeypatch):
    """Rows are published, and the process is killed just before and just after the commit."""
    marks = tmp_path / "marks"
    marks.mkdir()
    monkeypatch.setenv("AAICLICK_LOG_DIR", str(tmp_path / "logs"))
    await shop.deploy(SHOP.replace("max_attempts: 5", "max_attempts: 30"))
    for job in ("fetch", "tidy", "sums", "twice"):
        await set_retry_policy(f"shop.{job}", RetryPolicy(base_seconds=0.01, cap_seconds=0.01))
    job_id = await shop.fire({"rows": [order(1, 1, 10), order(2, 2, 20), order(3, 1, 30)]})
    armed = ",".join(f"{failpoint}=kill" for failpoint in FAILPOINTS)
    worker = start_worker(marks, AAICLICK_FAULTS=armed)
    try:
        await shop.until(ENDED, job_id)
    finally:
        worker.terminate()
        await asyncio.to_thread(worker.wait, 30)
    assert await shop.db.fetchval("SELECT status::text FROM jobs WHERE id = $1", job_id) == "COMPLETED"
    assert {mark.name for mark in marks.iterdir()} == set(FAILPOINTS)
    await as_if_nothing_had_happened(shop, job_id)


async def test_repeated_completion_writes_effects_once(shop):
    await shop.deploy()
    failpoints.arm_faults(
        ",".join(f"{name}.{when}=error" for name in ("end", "flush") for when in ("before", "after")), None
    )
    try:
        job_id = await shop.run(order(1, 1, 10), order(2, 2, 20), order(3, 1, 30))
    finally:
        failpoints.arm_faults("", None)
    await as_if_nothing_had_happened(shop, job_id)


async def test_killed_router_routes_all_or_nothing(shop):
    await shop.deploy()
    for failpoint, routed in (("route.before", 0), ("route.after", 5)):
        job_id = await shop.emit("shop.raw", 5)
        failpoints.arm_faults(f"{failpoint}=error", None)
        with pytest.raises(failpoints.FaultError):
            await event_routing.route_events(shop.db)
        failpoints.arm_faults("", None)
        assert len(await shop.tasks(job_id)) == routed
        await event_routing.route_events(shop.db)
        assert await shop.tasks(job_id) == [("tidy",)] * 5
    await shop.check()


async def test_disconnected_router_leaves_events_to_next(shop, aaiclick_postgres, monkeypatch):
    """It has claimed events from the outbox and has not created their tasks."""
    await shop.deploy()
    job_id = await shop.emit("shop.raw", 5)
    consumers = event_routing._load_consumers

    async def cut_off(connection, updates, payloads):
        assert [len(update["ids"]) for update in updates] == [5]
        await shop.db.execute("SELECT pg_terminate_backend($1)", connection.get_server_pid())
        return await consumers(connection, updates, payloads)

    monkeypatch.setattr(event_routing, "_load_consumers", cut_off)
    router = await connect(aaiclick_postgres)
    with pytest.raises((asyncpg.PostgresConnectionError, asyncpg.AdminShutdownError, asyncpg.InterfaceError)):
        await event_routing.route_events(router)
    router.terminate()
    monkeypatch.undo()
    assert await shop.tasks(job_id) == []
    assert await event_routing.route_events(shop.db) == 5
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


async def test_concurrent_schedulers_start_each_run_once(shop, aaiclick_postgres):
    await shop.deploy(SHOP.replace("missed: all", "missed: all, overlap: allow"))
    await set_due(shop)
    connections = [await connect(aaiclick_postgres) for _ in range(5)]
    later = DUE + timedelta(days=3)
    counts = await asyncio.gather(
        *(scheduler.run_once(connection, now=later) for connection in connections for _ in [0])
    )
    assert sum(count["runs"] for count in counts) == 3
    assert await nominal_times(shop) == [f"cron:2026-03-0{day}T06:00:00+00:00" for day in (1, 2, 3)]
    for connection in connections:
        await connection.close()


async def test_broken_source_does_not_block_others(shop, caplog):
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


async def test_runs_wait_for_previous_and_none_is_skipped(shop):
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


@pytest.mark.parametrize(("failpoint", "there"), [("schedule.before", 0), ("schedule.after", 1)])
async def test_killed_scheduler_starts_run_or_not(shop, failpoint, there):
    await shop.deploy()
    await set_due(shop)
    failpoints.arm_faults(f"{failpoint}=error", None)
    with pytest.raises(failpoints.FaultError):
        await scheduler.run_once(shop.db, now=DUE + timedelta(hours=1))
    failpoints.arm_faults("", None)
    assert len(await nominal_times(shop)) == there
    await scheduler.run_once(shop.db, now=DUE + timedelta(hours=1))
    assert await nominal_times(shop) == ["cron:2026-03-01T06:00:00+00:00"]


async def test_new_version_takes_over_due_run(shop):
    await shop.deploy()
    await set_due(shop)
    await shop.deploy(SHOP.replace("id > 0", "id > 1"))
    assert (await scheduler.run_once(shop.db, now=DUE + timedelta(hours=1)))["runs"] == 1
    assert await nominal_times(shop) == ["cron:2026-03-01T06:00:00+00:00"]


async def test_always_on_source_is_restarted(shop, aaiclick_postgres):
    source = 'source: {kind: cron, schedule: "0 6 * * *", missed: all}'
    await shop.deploy(SHOP.replace(source, "source: {kind: always_on}"))
    other = await connect(aaiclick_postgres)
    counts = await asyncio.gather(*(scheduler.run_once(connection_) for connection_ in (shop.db, other)))
    assert sum(count["runs"] for count in counts) == 1
    later = datetime.now(UTC) + timedelta(minutes=1)
    assert (await scheduler.run_once(shop.db, now=later))["runs"] == 0
    await end_jobs(shop)
    assert (await scheduler.run_once(shop.db))["runs"] == 0
    assert (await scheduler.run_once(shop.db, now=later))["runs"] == 1
    await other.close()


async def test_always_on_source_status(shop):
    source = 'source: {kind: cron, schedule: "0 6 * * *", missed: all}'
    always = SHOP.replace(source, "source: {kind: always_on}\n    heartbeat_timeout_seconds: 30")
    first = await shop.deploy(always)
    me = await queue.register_worker(shop.db, hostname="here", pid=1)
    state = "SELECT status::text FROM job_definitions WHERE dag_version_id = $1 AND name = 'fetch'"

    async def stands(version=first, later=0):
        counts = await scheduler.run_once(shop.db, now=datetime.now(UTC) + timedelta(seconds=later))
        return await shop.db.fetchval(state, version.version_id), counts["dead"]

    async def claim():
        (claimed,) = await queue.claim(shop.db, worker_id=me.id, limit=1, queues=(), lease_seconds=60)
        return claimed

    await stands()  # starts it
    assert await stands() == ("Pending", 0)
    await claim()
    assert await stands() == ("Running", 0)
    beat = await shop.db.fetchval("SELECT last_heartbeat FROM job_definitions WHERE dag_version_id = $1 "
                                  "AND name = 'fetch'", first.version_id)  # fmt: skip
    assert abs((datetime.now(UTC) - beat).total_seconds()) < 300
    assert await stands(later=45) == ("Dead", 1)  # no heartbeat, although the lease is still valid
    assert await stands(later=45) == ("Dead", 0)
    await reap_expired_leases(shop.db, delay_seconds=lambda *_: 0, now=datetime.now(UTC) + timedelta(seconds=61))
    assert await stands() == ("Dead", 0)  # lost once, to be retried
    await queue.promote_due_tasks(shop.db, now=datetime.now(UTC) + timedelta(seconds=120))
    await claim()
    assert await stands() == ("Running", 0)
    await dag_sources.pause_dag(shop.db, DEFAULT_ORG_ID, "shop")
    assert await stands() == ("Draining", 0)
    await dag_sources.resume_dag(shop.db, DEFAULT_ORG_ID, "shop")
    assert await stands() == ("Running", 0)
    second = await shop.deploy(always.replace("max_attempts: 5", "max_attempts: 6"))
    assert await stands() == ("Draining", 0)
    assert await stands(second, later=60) == ("Pending", 0)  # it waits for the previous run
    assert await shop.db.fetchval("SELECT count(*) FROM jobs") == 1
    await end_jobs(shop)
    assert await stands() == ("Pending", 0)
    await stands(second, later=60)
    assert await shop.db.fetchval("SELECT count(*) FROM jobs") == 2
