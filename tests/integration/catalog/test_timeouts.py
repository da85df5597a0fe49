"""Timeouts of tasks and jobs of definitions."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from aaiclick.orchestration.loops import job_timeouts
from aaiclick.settings import get_settings
from aaiclick.store.engine import queue
from tests.integration.catalog.conftest import JOBS, SHOP
from tests.integration.catalog.test_crash_recovery import ENDED
from tests.integration.catalog.test_emit import start_worker, stop

CRON = 'source: {kind: cron, schedule: "0 6 * * *", missed: all}'
ALWAYS_ON = SHOP.replace(CRON, "source: {kind: always_on}")


def waiting(dag, path):
    """Return the DAG with a source that waits for a file, and a single attempt for each task."""
    dag = dag.replace(f'{JOBS}:fetch"', f'{JOBS}:emit_batches", arguments: {json.dumps({"path": str(path)})}')
    return dag.replace("max_attempts: 5", "max_attempts: 1")


async def test_an_always_on_source_outlives_the_default_task_timeout(gateway, shop, tmp_path):
    await shop.deploy(waiting(ALWAYS_ON, tmp_path / "go"))
    worker = start_worker(gateway, WORKER_TASK_TIMEOUT="1", WORKER_STOP_TIMEOUT="1")
    try:
        await shop.until("SELECT count(*) > 0 FROM tasks WHERE started_at < now() - interval '4 seconds'")
        (tmp_path / "go").touch()
        await shop.until("SELECT count(*) > 0 FROM tasks WHERE completed_at IS NOT NULL")
    finally:
        await stop(worker)
    task = await shop.db.fetchrow("SELECT id, status::text, attempt FROM tasks ORDER BY id LIMIT 1")
    assert (task["status"], task["attempt"]) == ("COMPLETED", 1)
    assert await shop.db.fetch("SELECT outcome FROM task_attempts WHERE task_id = $1", task["id"]) == []


async def test_other_sources_end_after_the_default_task_timeout(gateway, shop, tmp_path):
    await shop.deploy(waiting(SHOP, tmp_path / "go"))
    job_id = await shop.fire()
    worker = start_worker(gateway, WORKER_TASK_TIMEOUT="1")
    try:
        await shop.until(ENDED, job_id)
    finally:
        await stop(worker)
    assert await shop.db.fetchval("SELECT error FROM tasks") == "Timed out after 1 s."


@pytest.mark.parametrize("dag", [SHOP, ALWAYS_ON])
async def test_the_timeout_of_a_definition_reaches_its_tasks(shop, dag):
    await shop.deploy(dag.replace("    outputs: [raw]\n", "    timeout_seconds: 7\n    outputs: [raw]\n"))
    job_id = await shop.fire()
    assert await shop.db.fetchval("SELECT timeout_seconds FROM tasks WHERE job_id = $1", job_id) == 7


async def test_jobs_of_sources_have_the_default_timeout(shop, monkeypatch):
    monkeypatch.setenv("JOB_DEFAULT_TIMEOUT", "60")
    get_settings.cache_clear()
    await shop.deploy()
    job_id = await shop.fire()
    me = await queue.register_worker(shop.db, hostname="here", pid=1)
    await queue.claim(shop.db, worker_id=me.id, limit=1, queues=(), lease_seconds=600)
    job = await shop.db.fetchrow(
        "SELECT timeout_seconds, deadline_at - started_at AS left FROM jobs WHERE id = $1", job_id
    )
    assert (job["timeout_seconds"], job["left"]) == (60, timedelta(seconds=60))
    assert (await job_timeouts.run_once(shop.db))["jobs"] == 0
    await job_timeouts.run_once(shop.db, now=datetime.now(UTC) + timedelta(seconds=61))
    error = await shop.db.fetchval("SELECT error FROM jobs WHERE id = $1", job_id)
    assert "60" in error


@pytest.mark.parametrize(
    ("dag", "seconds"),
    [
        (SHOP.replace("    outputs: [raw]\n", "    timeout_seconds: 100000\n    outputs: [raw]\n"), 100_000),
        (ALWAYS_ON, None),
    ],
)
async def test_the_timeout_of_a_job_is_not_shorter_than_that_of_its_source(shop, dag, seconds):
    await shop.deploy(dag)
    job_id = await shop.fire()
    assert await shop.db.fetchval("SELECT timeout_seconds FROM jobs WHERE id = $1", job_id) == seconds
