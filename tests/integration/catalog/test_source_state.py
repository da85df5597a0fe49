"""The status of a source follows its tasks, in the transactions that change them."""

from __future__ import annotations

import asyncio
import json

import pytest
from click.testing import CliRunner

from aaiclick.cli.main import cli
from aaiclick.orchestration.loops import scheduler
from aaiclick.store.catalog import dag_sources
from aaiclick.store.engine import queue
from aaiclick.store.engine.cancel import cancel_job
from aaiclick.store.engine.leases_and_outcomes import Failure
from aaiclick.store.engine.maintenance import reap_expired_leases
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.postgres_connections import connect
from tests.integration.catalog.conftest import SHOP

CRON = 'source: {kind: cron, schedule: "0 6 * * *", missed: all}'
KINDS = {
    "cron": CRON,
    "manual": "source: {kind: manual}",
    "webhook": "source: {kind: webhook, secret: s}\n    secrets: {s: shop-signing}",
    "always_on": "source: {kind: always_on}",
}


def dag_of(source_kind):
    return SHOP.replace(CRON, KINDS[source_kind])


async def state(shop, version=None):
    question = (
        "SELECT status::text FROM job_definitions WHERE name = 'fetch' AND ($1::uuid IS NULL OR dag_version_id = $1)"
    )
    return await shop.db.fetchval(question, version and version.version_id)


async def claim(shop, connection=None):
    me = await queue.register_worker(shop.db, hostname="here", pid=1)
    (claimed,) = await queue.claim(connection or shop.db, worker_id=me.id, limit=1, queues=(), lease_seconds=60)
    return claimed.lease


async def fail(shop, lease, *, permanent=False):
    failure = Failure(lease, error="no luck", fingerprint="no luck", permanent=permanent)
    await queue.acknowledge(shop.db, worker_id=0, failures=[failure])


@pytest.mark.parametrize("source_kind", KINDS)
async def test_a_source_is_running_only_while_a_worker_runs_it(shop, source_kind):
    await shop.grant("shop-signing", "sesame")
    await shop.deploy(dag_of(source_kind))
    assert await state(shop) == "Pending"
    job_id = await shop.fire()
    assert await state(shop) == "Pending", "no worker has claimed it"
    await shop.db.execute("UPDATE job_definitions SET last_heartbeat = NULL")
    assert await shop.finish(job_id) == "COMPLETED"
    assert await state(shop) == "Pending"
    assert await shop.db.fetchval("SELECT last_heartbeat IS NOT NULL FROM job_definitions WHERE name = 'fetch'")
    await shop.fire()
    await claim(shop)
    assert await state(shop) == "Running"


@pytest.mark.parametrize(
    ("source_kind", "after_failure"),
    [(source_kind, "Dead" if source_kind == "always_on" else "Pending") for source_kind in KINDS],
)
async def test_a_source_is_dead_while_a_failed_attempt_waits_for_the_next(shop, source_kind, after_failure):
    await shop.grant("shop-signing", "sesame")
    await shop.deploy(dag_of(source_kind))
    await shop.fire()
    await fail(shop, await claim(shop))
    assert await state(shop) == "Dead"
    await queue.promote_due_tasks(shop.db, now=await shop.db.fetchval("SELECT now() + interval '1 hour'"))
    lease = await claim(shop)
    assert await state(shop) == "Running"
    await fail(shop, lease, permanent=True)
    assert await state(shop) == after_failure, "a source that always runs is started again; the others wait"


async def test_source_with_lost_worker_is_dead(shop):
    await shop.deploy()
    await shop.fire()
    await claim(shop)
    later = await shop.db.fetchval("SELECT now() + interval '61 s'")
    assert (await scheduler.run_once(shop.db, now=later))["dead"] == 1
    assert await state(shop) == "Dead"
    assert await reap_expired_leases(shop.db, delay_seconds=lambda *_: 0, now=later) == 1
    assert await state(shop) == "Dead"


async def test_released_and_cancelled_runs_leave_the_source_pending(shop):
    await shop.deploy()
    job_id = await shop.fire()
    lease = await claim(shop)
    await queue.acknowledge(shop.db, worker_id=0, releases=[lease])
    assert await state(shop) == "Pending"
    lease = await claim(shop)
    assert await state(shop) == "Running"
    await cancel_job(shop.db, job_id)
    await fail(shop, lease, permanent=True)
    assert await state(shop) == "Pending"


async def test_pause_resume_and_deploy_drain_in_their_own_transactions(shop):
    first = await shop.deploy()
    await shop.fire()
    lease = await claim(shop)
    await dag_sources.pause_dag(shop.db, DEFAULT_ORG_ID, "shop")
    assert await state(shop, first) == "Draining"
    await dag_sources.resume_dag(shop.db, DEFAULT_ORG_ID, "shop")
    assert await state(shop, first) == "Running"
    second = await shop.deploy(SHOP.replace("max_attempts: 5", "max_attempts: 6"))
    assert (await state(shop, first), await state(shop, second)) == ("Draining", "Pending")
    await fail(shop, lease, permanent=True)
    assert await state(shop, first) == "Pending"


async def test_a_source_runs_until_the_last_of_its_runs_has_ended(shop):
    await shop.deploy(SHOP.replace("missed: all", "missed: all, overlap: allow"))
    await shop.fire()
    await shop.fire()
    first, second = await claim(shop), await claim(shop)
    await fail(shop, second, permanent=True)
    assert await state(shop) == "Running"
    await scheduler.run_once(shop.db)
    assert await state(shop) == "Running"
    await fail(shop, first, permanent=True)
    assert await state(shop) == "Pending"


async def test_claim_does_not_wait_for_definition_lock(shop, aaiclick_postgres):
    await shop.deploy()
    await shop.fire()
    other = await connect(aaiclick_postgres)
    async with other.transaction():
        await other.execute("SELECT FROM job_definitions FOR UPDATE")
        await asyncio.wait_for(claim(shop), 10)
        assert await state(shop) == "Pending", "passed over"
    await other.close()
    await scheduler.run_once(shop.db)
    assert await state(shop) == "Running", "the scheduler catches up"


async def test_reactive_definitions_are_idle_or_running(shop):
    await shop.deploy()
    idle = "SELECT DISTINCT status::text FROM job_definitions WHERE activation = 'reactive'"
    assert await shop.db.fetchval(idle) == "Idle"
    await shop.run({"id": 1, "day": "2026-01-01", "amount": 1})
    assert await shop.db.fetchval(idle) == "Running"
    await scheduler.run_once(shop.db)
    assert await shop.db.fetchval(idle) == "Idle"


async def test_command_shows_the_state_of_definitions(shop, aaiclick_env):
    await shop.deploy()
    await shop.fire()
    await claim(shop)

    def show():
        return CliRunner().invoke(cli, ["dag", "show", "shop", "-o", "json"], standalone_mode=False)

    rows = {row["name"]: row for row in json.loads((await asyncio.to_thread(show)).stdout)}
    assert {name: row["status"] for name, row in rows.items()} == {
        "fetch": "Running", "tidy": "Idle", "sums": "Idle", "twice": "Idle",
    }  # fmt: skip
    assert rows["fetch"]["source"] == "cron"
