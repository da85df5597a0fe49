"""Reactive definitions: Idle and Running by `idle_timeout`, and `max_concurrency`."""

from __future__ import annotations

import pytest

from aaiclick.catalog.errors import DagError
from aaiclick.store.catalog import dag_sources, dataset_events, event_routing
from aaiclick.store.engine import queue
from aaiclick.store.engine.invariants import check_invariants
from tests.integration.catalog.conftest import SHOP, order

STATUS = "SELECT status::text FROM job_definitions WHERE name = 'tidy'"


def with_idle(timeout: str | None) -> str:
    if timeout is None:
        return SHOP
    return SHOP.replace("  - name: tidy\n", f"  - name: tidy\n    idle_timeout: {timeout}\n")


async def wait(shop, seconds: float) -> str:
    """The status, so long after the last event and the end of the last task."""
    age = "UPDATE job_definitions SET last_event_at = now() - $1 * interval '1 second' WHERE name = 'tidy'"
    await shop.db.execute(age, seconds)
    age = (
        "UPDATE tasks SET completed_at = now() - $1 * interval '1 second' "
        "WHERE type = 'shop.tidy' AND completed_at IS NOT NULL"
    )
    await shop.db.execute(age, seconds)
    await dag_sources.mark_idle_definitions(shop.db)
    return await shop.db.fetchval(STATUS)


@pytest.mark.parametrize(
    ("idle_timeout", "still_running", "idle"),
    [(None, None, 1), ("'0'", None, 1), ("30s", 29, 31), ("5m", 299, 301), ("2h", 7199, 7201), ("1d", 86399, 86401)],
)
async def test_a_definition_is_idle_after_its_timeout(shop, idle_timeout, still_running, idle):
    await shop.deploy(with_idle(idle_timeout))
    assert await shop.db.fetchval(STATUS) == "Idle"
    await shop.run(order(1, 1, 10))
    assert await shop.db.fetchval(STATUS) == "Running"
    if still_running is not None:
        assert await wait(shop, still_running) == "Running"
    assert await wait(shop, idle) == "Idle"


async def test_definition_without_idle_timeout_stays_running(shop):
    await shop.deploy(with_idle("never"))
    await shop.run(order(1, 1, 10))
    assert await wait(shop, 10 * 86400) == "Running"


async def test_a_definition_with_unfinished_tasks_is_not_idle(shop):
    await shop.deploy(with_idle("30s"))
    await shop.run(order(1, 1, 10))
    await shop.emit("shop.raw", 1)
    await event_routing.route_events(shop.db)
    assert await wait(shop, 3600) == "Running"


async def test_idle_timeout_begins_with_the_end_of_the_last_task(shop):
    await shop.deploy(with_idle("5m"))
    await shop.run(order(1, 1, 10))
    await shop.db.execute("UPDATE job_definitions SET last_event_at = now() - interval '1 hour' WHERE name = 'tidy'")
    await dag_sources.mark_idle_definitions(shop.db)
    assert await shop.db.fetchval(STATUS) == "Running"
    assert await wait(shop, 301) == "Idle"


async def test_max_concurrency_limits_running_tasks(shop):
    limited = SHOP.replace("    outputs: [daily]\n", "    outputs: [daily]\n    scaling: {max_concurrency: 2}\n")
    await shop.deploy(limited)
    job_id = await shop.run(*(order(n, n, 10) for n in range(1, 6)))
    assert [task for task in await shop.tasks(job_id) if task[0] == "sums"]
    limits = await shop.db.fetch("SELECT DISTINCT concurrency_limit FROM tasks WHERE type = 'shop.sums'")
    assert [row["concurrency_limit"] for row in limits] == [2]
    definition = await shop.db.fetchrow(
        "SELECT d.*, 'shop.sums' AS type, 2 AS max_concurrency FROM job_definitions d WHERE name = 'sums'"
    )
    opened = await dataset_events.open_job(shop.db, definition["org_id"], "more", definition["dag_version_id"], {})
    keys = [f"2026-01-0{n}" for n in range(1, 6)]
    async with shop.db.transaction():
        await dataset_events.add_tasks(shop.db, opened, definition, [(f"again:{key}", {}, key) for key in keys])
    waiting = "SELECT readiness::text, count(*) AS n FROM tasks WHERE job_id = $1 GROUP BY 1"
    assert {row["readiness"]: row["n"] for row in await shop.db.fetch(waiting, opened)} == {"READY": 2, "HELD": 3}
    assert await shop.finish(opened) == "COMPLETED"


COALESCED = SHOP.replace("  - name: tidy\n", "  - name: tidy\n    execution_strategy: Coalesce\n")


async def test_waiting_updates_become_one_task(shop):
    await shop.deploy(COALESCED)
    await shop.run(order(1, 1, 10))
    count = "SELECT count(*) FROM tasks WHERE type = 'shop.tidy' AND attempt = 0"
    jobs = [await shop.emit("shop.raw", 3)]
    assert await event_routing.route_events(shop.db) == 3
    assert await shop.db.fetchval(count) == 1
    jobs.append(await shop.emit("shop.raw", 5))
    assert await event_routing.route_events(shop.db) == 5
    assert await shop.db.fetchval(count) == 1
    open_events = "SELECT array_agg(open_events ORDER BY id) FROM jobs WHERE id = ANY ($1::bigint[])"
    assert await shop.db.fetchval(open_events, jobs) == [0, 0]
    assert await shop.db.fetchval("SELECT status::text FROM jobs WHERE id = $1", jobs[1]) == "COMPLETED"
    assert await shop.finish(jobs[0]) == "COMPLETED"
    assert await check_invariants(shop.db) == []


async def test_update_after_the_claim_of_a_coalesced_task_gets_another(shop):
    await shop.deploy(COALESCED)
    await shop.run(order(1, 1, 10))
    worker = await queue.register_worker(shop.db, hostname="h", pid=1)
    first = await shop.emit("shop.raw", 1)
    await event_routing.route_events(shop.db)
    [claim] = await queue.claim(shop.db, worker_id=worker.id, limit=9, queues=[], lease_seconds=60)
    second = await shop.emit("shop.raw", 4)
    await event_routing.route_events(shop.db)
    assert await shop.tasks(second) == [("tidy",)]
    assert await queue.claim(shop.db, worker_id=worker.id, limit=9, queues=[], lease_seconds=60) == []
    await queue.acknowledge(shop.db, worker_id=worker.id, releases=[claim.lease])
    assert await shop.finish(first) == "COMPLETED"
    assert await shop.finish(second) == "COMPLETED"


async def test_bulk_is_refused(shop):
    with pytest.raises(DagError, match="PerUpdate"):
        await shop.deploy(SHOP.replace("execution_strategy: PerPartition", "execution_strategy: Bulk"))
