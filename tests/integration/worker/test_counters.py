"""Counters and status of workers, counters of queues, and the error of a failed job."""

import asyncio

import pytest

from aaiclick import failpoints

LOST_REPORTS = "count_outcomes.before=error,count_outcomes.after=error"


@pytest.fixture
def armed_server():
    """Arms faults in the server, which runs in this process."""
    yield failpoints.arm_faults
    failpoints.arm_faults("")


async def test_worker_is_active_with_a_task_and_idle_without(worker_env, tmp_path):
    worker = worker_env.start(WORKER_HEARTBEAT_INTERVAL="0.1")

    async def wait_for_status(status):
        async with asyncio.timeout(60):
            while [row["status"] for row in await worker_env.rows("SELECT status FROM workers")] != [status]:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    await wait_for_status("IDLE")
    task_id = await worker_env.enqueue("wait_for", f'{{"path": "{tmp_path / "go"}"}}')
    await wait_for_status("ACTIVE")
    assert (await worker_env.task(task_id))["completed_at"] is None
    (tmp_path / "go").touch()
    await worker_env.wait_until(task_id, lambda row: row["status"] == "COMPLETED")
    await wait_for_status("IDLE")
    assert worker.stop() == 0
    await wait_for_status("STOPPED")


@pytest.mark.parametrize("faults", ["", LOST_REPORTS], ids=["", "lost reports"])
async def test_worker_counts_completed_and_failed_tasks_per_queue(worker_env, armed_server, faults):
    """Exactly once, although the first report does not arrive, and the response to the second is lost."""
    armed_server(faults)
    await worker_env.enqueue_many(30, "nothing")
    await worker_env.enqueue_many(2, "fail", max_attempts=1)
    await worker_env.enqueue_many(1, "fail", max_attempts=1, queue="other")
    worker_env.drain(AAICLICK_FAULTS=faults)
    rows = await worker_env.rows("SELECT tasks_completed, tasks_failed FROM workers")
    assert [tuple(row) for row in rows] == [(30, 3)]
    rows = await worker_env.rows(
        "SELECT queue, sum(completed)::int, sum(failed)::int FROM queue_minutes GROUP BY queue"
    )
    assert sorted(map(tuple, rows)) == [("default", 30, 2), ("other", 0, 1)]


async def test_failed_job_names_the_failed_task_and_its_error(worker_env):
    from aaiclick.orchestration import OrchContext, create_job, create_task

    first = create_task("users_tasks.fail", max_attempts=1)
    first >> create_task("users_tasks.nothing")
    async with OrchContext(endpoint=worker_env.endpoint):
        job = await create_job("nightly", first)
    worker_env.drain()
    row = (await worker_env.rows("SELECT status::text, error FROM jobs WHERE id = $1", job.id))[0]
    assert row["status"] == "FAILED"
    assert row["error"] == f"users_tasks.fail (task {first.id}) failed in attempt 1: ValueError: no luck"
