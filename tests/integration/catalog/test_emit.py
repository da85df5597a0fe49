"""`emit_event`: running sources publish rows and start their dependents."""

from __future__ import annotations

import asyncio
import json
import subprocess
from uuid import uuid4

import pytest

from aaiclick.errors import LeaseLost, RequestError
from aaiclick.orchestration import RetryPolicy, emit_event, set_retry_policy
from aaiclick.store.catalog import definition_runs
from aaiclick.store.engine import queue
from aaiclick.store.engine.leases_and_outcomes import Lease
from tests.fork_server import FORK_SERVER
from tests.integration.catalog.conftest import JOBS, SHOP, order
from tests.integration.catalog.test_crash_recovery import ENDED

EMITTING = SHOP.replace(f"{JOBS}:fetch", f"{JOBS}:emit_batches")
BATCHES = [["a", [order(1, 1, 10)]], ["b", [order(2, 2, 20)]], ["c", [order(3, 1, 30)]]]
TIDIED = (
    "SELECT count(*) FROM tasks WHERE job_id = $1 AND type = 'shop.tidy' AND status = 'COMPLETED' HAVING count(*) = $2"
)


def start_worker(gateway, **variables):
    arguments = ["worker", "start", "--processes", "1", "--concurrency", "4"]
    quick = {"WORKER_TIMEOUT": "3", "WORKER_HEARTBEAT_INTERVAL": "0.5"}
    return FORK_SERVER.start(arguments, gateway.environment | quick | variables, stderr=subprocess.DEVNULL)


async def stop(worker):
    worker.terminate()
    await asyncio.to_thread(worker.wait, 30)


async def cursors(shop, job_id, type_="shop.tidy"):
    rows = await shop.db.fetch(
        "SELECT dedupe_key FROM tasks WHERE job_id = $1 AND type = $2 ORDER BY id", job_id, type_
    )
    return [row["dedupe_key"].rpartition(":")[2] for row in rows]


async def test_dependents_start_while_source_runs(gateway, shop, tmp_path):
    await shop.deploy(EMITTING)
    job_id = await shop.fire({"batches": BATCHES, "path": str(tmp_path / "go")})
    worker = start_worker(gateway)
    try:
        await shop.until(TIDIED, job_id, 3)
        running = "SELECT status::text FROM tasks WHERE job_id = $1 AND type = 'shop.fetch'"
        assert await shop.db.fetchval(running, job_id) == "RUNNING"
        assert len(await shop.rows("shop.orders")) == 3
        (tmp_path / "go").touch()
        await shop.until(ENDED, job_id)
    finally:
        await stop(worker)
    assert await shop.db.fetchval("SELECT status::text FROM jobs WHERE id = $1", job_id) == "COMPLETED"
    assert await cursors(shop, job_id) == ["a", "b", "c"]
    assert await shop.rows("daily") == [("2026-01-01", 40), ("2026-01-02", 20)]
    await shop.check()


async def test_killed_emission_starts_each_dependent_once(gateway, shop, tmp_path):
    """One attempt is killed before the commit of its second emission, a later one after it."""
    failpoint_names = {"emit.before", "emit.after"}
    marks = tmp_path / "marks"
    marks.mkdir()
    await shop.deploy(EMITTING)
    await set_retry_policy("shop.fetch", RetryPolicy(base_seconds=0.01, cap_seconds=0.01))
    job_id = await shop.fire({"batches": BATCHES})
    armed = ",".join(f"{failpoint}=kill@2" for failpoint in sorted(failpoint_names))
    worker = start_worker(gateway, AAICLICK_FAULTS=armed, AAICLICK_FAULT_MARKS=str(marks))
    try:
        await shop.until(ENDED, job_id)
    finally:
        await stop(worker)
    assert {mark.name for mark in marks.iterdir()} == failpoint_names
    assert await shop.db.fetchval("SELECT status::text FROM jobs WHERE id = $1", job_id) == "COMPLETED"
    assert await shop.db.fetchval("SELECT max(attempt) FROM tasks WHERE type = 'shop.fetch'") > 2
    assert sorted(await cursors(shop, job_id)) == ["a", "b", "c"]
    assert await shop.rows("shop.raw") == [(1, "2026-01-01", 10), (2, "2026-01-02", 20), (3, "2026-01-01", 30)]
    assert await shop.rows("daily") == [("2026-01-01", 40), ("2026-01-02", 20)]
    await shop.check()


async def test_an_always_on_source_emits_while_it_runs(gateway, shop, tmp_path):
    arguments = json.dumps({"batches": BATCHES, "path": str(tmp_path / "go")})
    dag = EMITTING.replace('source: {kind: cron, schedule: "0 6 * * *", missed: all}', "source: {kind: always_on}")
    await shop.deploy(dag.replace('emit_batches"}', f'emit_batches", arguments: {arguments}}}', 1))
    worker = start_worker(gateway)
    try:
        await shop.until("SELECT count(*) = 3 FROM tasks WHERE type = 'shop.tidy' AND status = 'COMPLETED'")
        await shop.until("SELECT status = 'Running' FROM job_definitions WHERE name = 'fetch'")
        assert await shop.db.fetchval("SELECT count(*) FROM jobs WHERE completed_at IS NULL") == 1
        (tmp_path / "go").touch()
        await shop.until("SELECT count(*) > 0 FROM jobs WHERE completed_at IS NOT NULL")
    finally:
        await stop(worker)
    assert len(await shop.rows("shop.orders")) == 3


async def test_returned_rows_are_newer_than_emitted_ones(shop):
    """For an output with update_strategy: replace."""
    dag = EMITTING.replace("    update_strategy: append\n    unique_key: [id]\n", "")
    await shop.deploy(dag)
    job_id = await shop.fire({"batches": BATCHES, "returned": [order(9, 9, 90)]})
    assert await shop.finish(job_id) == "COMPLETED", await shop.errors()
    assert await shop.rows("shop.raw") == [(9, "2026-01-09", 90)]
    assert (await cursors(shop, job_id))[:3] == ["a", "b", "c"]
    assert (await cursors(shop, job_id))[3].startswith("ticket-")
    await shop.check()


async def test_the_same_cursor_of_a_later_run_starts_nothing(shop):
    await shop.deploy(EMITTING)
    first, second = [await shop.fire({"batches": BATCHES}) for _ in range(2)]
    assert [await shop.finish(job_id_) for job_id_ in (first, second)] == ["COMPLETED", "COMPLETED"]
    assert sorted(await cursors(shop, first) + await cursors(shop, second)) == ["a", "b", "c"]
    await shop.check()


async def test_outputs_are_reset_once_despite_killed_attempt(shop):
    dag = EMITTING.replace(
        "    update_strategy: append", "    bootstrap: {reset_outputs: true}\n    update_strategy: append"
    )
    await shop.deploy(dag.replace("max_attempts: 5", "max_attempts: 1"))
    job_id = await shop.fire({"batches": [*BATCHES, ["ticket-1", []]]})
    assert await shop.finish(job_id) == "FAILED"
    assert any("cannot be a cursor" in error for error in await shop.errors())
    assert len(await shop.rows("shop.raw")) == 3
    again = await shop.fire({"batches": [["d", [order(4, 1, 40)]]]})
    assert await shop.finish(again) == "COMPLETED"
    assert len(await shop.rows("shop.raw")) == 4


async def test_a_lost_lease_emits_nothing(shop):
    await shop.deploy(EMITTING)
    await shop.fire()
    me = await queue.register_worker(shop.db, hostname="here", pid=1)
    (claim,) = await queue.claim(shop.db, worker_id=me.id, limit=1, queues=(), lease_seconds=60)
    effects = json.dumps({"updates": [], "states": [], "lineage": {}, "definition": "", "build": None})
    await definition_runs.emit_updates(shop.db, claim.lease, effects, "1")
    for lease in (
        Lease(claim.lease.task_id, claim.lease.attempt - 1, claim.lease.token),
        Lease(claim.lease.task_id, claim.lease.attempt, uuid4()),
    ):
        with pytest.raises(LeaseLost, match="no event was emitted"):
            await definition_runs.emit_updates(shop.db, lease, effects, "1")


async def test_reactive_definitions_and_code_outside_tasks_cannot_emit(shop):
    with pytest.raises(RequestError, match="Only a source of a DAG"):
        await emit_event([{"id": 1}], cursor="1")
    dag = SHOP.replace("inputs: [orders]", "inputs: [raw]").replace(f"{JOBS}:double", f"{JOBS}:emit_from_reactive")
    await shop.deploy(dag.replace("max_attempts: 5", "max_attempts: 1").replace("orders.amount", "raw.amount"))
    job_id = await shop.fire({"rows": [order(1, 1, 1)]})
    assert await shop.finish(job_id) == "FAILED"
    assert any("Only a source of a DAG" in error for error in await shop.errors())


async def test_a_job_does_not_end_before_emitted_events_are_routed(shop):
    """The source is the last task that runs: its emitted events alone keep the job open."""
    await shop.deploy(EMITTING)
    job_id = await shop.fire({"batches": BATCHES})
    await shop.db.execute("SELECT pg_advisory_lock(hashtextextended('aaiclick router', 0))")
    running = asyncio.create_task(shop.finish(job_id))
    await shop.until("SELECT open_events = 3 AND open_tasks = 0 FROM jobs WHERE id = $1", job_id)
    assert await shop.db.fetchval("SELECT completed_at IS NULL FROM jobs WHERE id = $1", job_id)
    await shop.check()
    await shop.db.execute("SELECT pg_advisory_unlock(hashtextextended('aaiclick router', 0))")
    assert await running == "COMPLETED"
