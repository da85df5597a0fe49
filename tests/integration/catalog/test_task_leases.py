"""`heartbeat_timeout_seconds` of a definition is the lease of its tasks."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from aaiclick.store.engine import queue, worker_leases
from aaiclick.store.engine.claims import heartbeat
from aaiclick.store.engine.maintenance import reap_expired_leases
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.tenancy.orgs import ClaimLimits, update_org
from tests.integration.catalog.conftest import JOBS, SHOP
from tests.integration.catalog.test_crash_recovery import ENDED, start_worker

LEASED = SHOP.replace("defaults: {max_attempts: 5}", "defaults: {max_attempts: 5, heartbeat_timeout_seconds: 7}")
SPAN = "SELECT extract(epoch FROM lease_expires_at - last_heartbeat)::float8 FROM tasks WHERE id = $1"


async def claimed(shop):
    await shop.fire()
    me = await queue.register_worker(shop.db, hostname="here", pid=1)
    (claim,) = await queue.claim(shop.db, worker_id=me.id, limit=1, queues=(), lease_seconds=600)
    return me.id, claim


@pytest.mark.parametrize("limited", [False, True])
async def test_claim_and_heartbeats_use_the_lease_of_the_definition(shop, limited):
    """Both claim statements; a limit of the organisation makes the fair one necessary."""
    await shop.deploy(LEASED)
    if limited:
        await update_org(shop.db, DEFAULT_ORG_ID, name="Default", limits=ClaimLimits(max_running=10))
    worker_id, claim = await claimed(shop)
    assert claim.lease_seconds == 7
    assert await shop.db.fetchval(SPAN, claim.lease.task_id) == 7
    await heartbeat(shop.db, worker_id=worker_id, leases=[claim.lease], lease_seconds=600)
    assert await shop.db.fetchval(SPAN, claim.lease.task_id) == 7
    await worker_leases.extend_worker_leases(shop.db, [worker_id], 600)
    assert await shop.db.fetchval(SPAN, claim.lease.task_id) == 7


async def test_routed_tasks_have_the_lease_of_their_definition(shop):
    await shop.deploy(LEASED)
    job_id = await shop.run({"id": 1, "day": "2026-01-01", "amount": 1})
    leases = await shop.db.fetch("SELECT lease_seconds FROM tasks WHERE job_id = $1", job_id)
    assert len(leases) > 3
    assert {row["lease_seconds"] for row in leases} == {7}


async def test_without_a_setting_the_worker_sets_the_lease(shop):
    await shop.deploy()
    _, claim = await claimed(shop)
    assert claim.lease_seconds is None
    assert await shop.db.fetchval(SPAN, claim.lease.task_id) == 600


async def test_worker_without_heartbeat_loses_task_after_definition_lease(shop):
    await shop.deploy(LEASED)
    _, claim = await claimed(shop)
    now = datetime.now(UTC)
    assert await reap_expired_leases(shop.db, delay_seconds=lambda *_: 0, now=now + timedelta(seconds=5)) == 0
    assert await reap_expired_leases(shop.db, delay_seconds=lambda *_: 0, now=now + timedelta(seconds=8)) == 1
    assert await shop.db.fetchval("SELECT failures FROM tasks WHERE id = $1", claim.lease.task_id) == 1


async def test_short_leases_are_renewed_when_a_third_is_used_up(shop):
    await shop.deploy(LEASED)
    worker_id, claim = await claimed(shop)
    left = "SELECT extract(epoch FROM lease_expires_at - now())::float8 FROM tasks WHERE id = $1"
    await shop.db.execute("UPDATE tasks SET lease_expires_at = now() + interval '5 s'")
    await worker_leases.renew_task_leases(shop.db, [worker_id])
    assert await shop.db.fetchval(left, claim.lease.task_id) < 5
    await shop.db.execute("UPDATE tasks SET lease_expires_at = now() + interval '4 s'")
    await worker_leases.renew_task_leases(shop.db, [worker_id + 1])
    assert await shop.db.fetchval(left, claim.lease.task_id) < 4
    await worker_leases.find_overdue_tasks(shop.db, [worker_id], 60, 600)
    assert await shop.db.fetchval(left, claim.lease.task_id) > 6


async def test_a_worker_keeps_a_lease_that_is_shorter_than_its_heartbeat_interval(shop, tmp_path, monkeypatch):
    monkeypatch.setenv("AAICLICK_LOG_DIR", str(tmp_path / "logs"))
    dag = LEASED.replace("heartbeat_timeout_seconds: 7", "heartbeat_timeout_seconds: 20")
    await shop.deploy(dag.replace(f"{JOBS}:fetch", f"{JOBS}:wait_for_file"))
    job_id = await shop.fire({"path": str(tmp_path / "go"), "rows": [{"id": 1, "day": "2026-01-01", "amount": 1}]})
    worker = start_worker(tmp_path, WORKER_TIMEOUT="900", WORKER_HEARTBEAT_INTERVAL="300")
    try:
        renewed = "SELECT lease_expires_at > claimed_at + interval '21 s' FROM tasks WHERE job_id = $1"
        await shop.until(renewed, job_id)
        (tmp_path / "go").touch()
        await shop.until(ENDED, job_id)
    finally:
        worker.terminate()
        await asyncio.to_thread(worker.wait, 30)
    assert await shop.db.fetchval("SELECT status::text FROM jobs WHERE id = $1", job_id) == "COMPLETED"
