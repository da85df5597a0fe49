"""Every required metric follows what it measures, in real jobs."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client.parser import text_string_to_metric_families

from aaiclick.orchestration import (
    JobStatus,
    create_job,
    create_task,
    deregister_worker,
    enqueue,
    register_worker,
    retry_failed_tasks,
    run_job_test,
)
from aaiclick.server.metrics import render_metrics
from aaiclick.settings import get_settings
from aaiclick.store.metrics import load_metrics
from aaiclick.store.postgres_connections import connect

PAUSE_SECONDS = 0.05
TOTALS = ("jobs_created", "jobs_completed", "jobs_failed", "tasks_created", "tasks_completed", "tasks_failed")


async def work() -> None:
    await asyncio.sleep(PAUSE_SECONDS)


def fail() -> None:
    raise ValueError("broken")


@pytest.fixture
async def scrape(aaiclick_env, aaiclick_postgres, tmp_path, monkeypatch):
    """The metrics by name and labels."""
    monkeypatch.setenv("AAICLICK_LOG_DIR", str(tmp_path))
    get_settings.cache_clear()
    connection = await connect(aaiclick_postgres)

    async def read() -> dict[tuple[str, ...], float]:
        text = render_metrics(await load_metrics(connection, worker_timeout_seconds=90)).decode()
        return {
            (sample.name, *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    yield read
    await connection.close()
    get_settings.cache_clear()


def totals(values: dict[tuple[str, ...], float]) -> list[float]:
    return [values[f"{name}_total",] for name in TOTALS]


async def test_ended_jobs_and_tasks_are_counted(scrape) -> None:
    assert totals(await scrape()) == [0, 0, 0, 0, 0, 0]
    good = await create_job("good", [create_task(work), create_task(work)])
    assert totals(await scrape()) == [1, 0, 0, 2, 0, 0]
    assert run_job_test(good).status is JobStatus.COMPLETED
    assert totals(await scrape()) == [1, 1, 0, 2, 2, 0]
    bad = await create_job("bad", create_task(fail, max_attempts=1))
    assert run_job_test(bad).status is JobStatus.FAILED
    assert totals(await scrape()) == [2, 1, 1, 3, 2, 1]
    await retry_failed_tasks(bad.id)
    assert totals(await scrape()) == [2, 1, 1, 3, 2, 1]  # counters never decrease
    run_job_test(bad)
    assert totals(await scrape()) == [2, 1, 2, 3, 2, 2]


async def test_durations_are_those_of_completed_jobs_and_tasks(scrape) -> None:
    run_job_test(await create_job("two", [create_task(work), create_task(work)]))
    values = await scrape()
    assert values["task_duration_seconds_count",] == 2
    assert values["job_duration_seconds_count",] == 1
    assert 2 * PAUSE_SECONDS <= values["task_duration_seconds_sum",] < 20
    assert PAUSE_SECONDS <= values["job_duration_seconds_sum",] < 20
    short = next(value for name, value in values.items() if name[0] == "task_duration_seconds_bucket")
    assert short == 0  # no task was as fast as the first bucket
    assert values["task_duration_seconds_bucket", "+Inf"] == 2


async def test_queue_depth_rises_and_falls(scrape) -> None:
    await enqueue("never", queue="deep")
    await enqueue("never", queue="deep")
    assert (await scrape())["task_queue_depth", "deep"] == 2
    job = await create_job("here", create_task(work))
    assert (await scrape())["task_queue_depth", "default"] == 1
    run_job_test(job)
    assert (await scrape())["task_queue_depth", "default"] == 0


async def test_active_workers_are_counted(scrape) -> None:
    assert (await scrape())["workers_active",] == 0
    worker = await register_worker("host", 1)
    values = await scrape()
    assert values["workers_active",] == 1
    assert 0 <= values["worker_heartbeat_age", str(worker.id)] < 60
    await deregister_worker(worker.id)
    values = await scrape()
    assert values["workers_active",] == 0
    assert ("worker_heartbeat_age", str(worker.id)) not in values


async def test_execution_time_is_counted_by_worker(scrape, aaiclick_postgres) -> None:
    run_job_test(await create_job("two", [create_task(work), create_task(work)]))
    connection = await connect(aaiclick_postgres)
    (worker_id,) = await connection.fetchrow("SELECT DISTINCT worker_id FROM tasks")
    await connection.execute("UPDATE workers SET status = 'ACTIVE', stopped_at = NULL, last_heartbeat = now()")
    await connection.close()
    values = await scrape()
    assert values["worker_task_execution_time_count", str(worker_id)] == 2
    assert 2 * PAUSE_SECONDS <= values["worker_task_execution_time_sum", str(worker_id)] < 20
