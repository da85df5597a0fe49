"""Incidents of DAGs: each cause opens one, and its end closes it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from aaiclick.orchestration.loops import incidents as loop
from aaiclick.orchestration.loops import scheduler
from aaiclick.store.catalog import dag_sources, outbox
from aaiclick.store.engine import queue
from aaiclick.store.engine.incidents import Occurrence, record_incidents
from aaiclick.store.engine.leases_and_outcomes import Failure
from aaiclick.store.enums import DEFAULT_ORG_ID
from tests.integration.catalog.conftest import SHOP, order
from tests.integration.catalog.test_data_tests import make_dag, row, update
from tests.integration.catalog.test_event_routing import (
    broken_payloads,
    emit_poison,
    fail_for_good,
    payload_of,
    route_all,
)

CRON = 'source: {kind: cron, schedule: "0 6 * * *", missed: all}'
ALWAYS_ON = SHOP.replace(CRON, "source: {kind: always_on}\n    heartbeat_timeout_seconds: 30").replace(
    "max_attempts: 5", "max_attempts: 1"
)


LATER = 1_000_000
"""Seconds after the last attempt to route an event."""


async def open_incidents(shop, seconds=0):
    """Run a pass of the leader some seconds from now; return rules and names of the open incidents."""
    loop._last_checked = 0
    await loop.run_once(shop.db, now=datetime.now(UTC) + timedelta(seconds=seconds))
    query = "SELECT rule, coalesce(task_type, job_name) FROM incidents WHERE closed_at IS NULL ORDER BY id"
    return [tuple(incident) for incident in await shop.db.fetch(query)]


async def test_blocked_test_opens_incident_that_next_update_closes(shop):
    await shop.deploy(make_dag("unique: [id]"))
    _, status = await update(shop, row(1, 5), row(1, 7))
    assert status == "FAILED"
    assert await open_incidents(shop, seconds=3600) == [("data_test_failed", "shop.fetch")]
    incident = await shop.db.fetchrow("SELECT title, cause, count, task_id FROM incidents")
    assert (incident["title"], incident["count"]) == ("A data test of shop.fetch failed in job shop.fetch", 1)
    assert "unique: id" in incident["cause"]
    assert incident["task_id"] is not None
    await update(shop, row(1, 5))
    assert await open_incidents(shop, seconds=3600) == []


async def test_dead_source_opens_incident_after_five_minutes(shop):
    """A restart of workers makes sources Dead for seconds, so an incident at once would be noise."""
    await shop.deploy(ALWAYS_ON)
    worker = await queue.register_worker(shop.db, hostname="here", pid=1)

    async def claim():
        (claimed,) = await queue.claim(shop.db, worker_id=worker.id, limit=1, queues=(), lease_seconds=60)
        await scheduler.run_once(shop.db)
        return claimed

    await scheduler.run_once(shop.db)
    claimed = await claim()
    await dag_sources.update_source_status(shop.db, now=datetime.now(UTC) + timedelta(seconds=70))
    assert await open_incidents(shop, seconds=200) == []
    assert await open_incidents(shop, seconds=400) == [("source_dead", "shop.fetch")]
    assert await open_incidents(shop, seconds=4000) == [("source_dead", "shop.fetch")]
    await dag_sources.update_source_status(shop.db)
    assert await open_incidents(shop, seconds=4000) == []
    failure = Failure(claimed.lease, "it broke", "RuntimeError:1", True, 0)
    await queue.acknowledge(shop.db, worker_id=worker.id, failures=[failure])
    assert await open_incidents(shop) == [("source_dead", "shop.fetch")]  # in the transaction of the failure
    await shop.db.execute("UPDATE job_definitions SET last_event_at = last_event_at - interval '1 hour'")
    await scheduler.run_once(shop.db)
    await claim()
    assert await open_incidents(shop, seconds=3600) == []


async def test_source_that_cannot_start_has_an_incident_until_it_does(shop):
    await shop.deploy()
    await shop.db.execute("UPDATE job_definitions SET next_run_at = now() WHERE name = 'fetch'")
    source = await shop.db.fetchval("SELECT source FROM job_definitions WHERE name = 'fetch'")
    await shop.db.execute("UPDATE job_definitions SET source = source - 'max_missed' WHERE name = 'fetch'")
    for _ in range(2):
        await scheduler.run_once(shop.db)
    assert await open_incidents(shop, seconds=3600) == [("start_failed", "shop.fetch")]
    assert await shop.db.fetchval("SELECT max(count) FROM incidents") == 1
    assert "KeyError" in await shop.db.fetchval("SELECT cause FROM incidents WHERE task_type = 'shop.fetch'")
    await shop.db.execute("UPDATE job_definitions SET source = $1 WHERE name = 'fetch'", source)
    await scheduler.run_once(shop.db, now=datetime.now(UTC) + timedelta(days=1))
    assert await open_incidents(shop, seconds=3600) == []


async def test_unroutable_event_and_alert_of_removed_definition_close(shop):
    await shop.deploy()
    await shop.run(order(1, 1, 10))
    _, event_id = await emit_poison(shop, (await broken_payloads(shop))["no uuid"])
    await fail_for_good(shop)
    alert = ("alert_raised", "shop.twice")
    fields = (DEFAULT_ORG_ID, "alert_raised", "key", "warning", "Alert", None, "shop", None, "shop.twice")
    await record_incidents(shop.db, [Occurrence(*fields)])
    assert await open_incidents(shop, seconds=LATER) == [("event_unroutable", "poison"), alert]
    good = json.dumps(await payload_of(shop))
    await shop.db.execute("UPDATE outbox SET payload = $1::jsonb WHERE id = $2", good, event_id)
    await outbox.retry_events(shop.db, [event_id])
    await route_all(shop)
    assert await open_incidents(shop, seconds=LATER) == [alert]
    await shop.deploy(SHOP[: SHOP.index("  - name: twice")] + "publish: [daily]\n")
    assert await open_incidents(shop, seconds=LATER) == []
