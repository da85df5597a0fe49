"""What a worker leaves in the rows that people look at: its own counters, and why a job failed."""


async def test_a_worker_counts_what_it_completed_and_what_failed_of_which_queue(bench):
    await bench.enqueue_many(30, "nothing")
    await bench.enqueue_many(2, "fail", max_attempts=1)
    await bench.enqueue_many(1, "fail", max_attempts=1, queue="other")
    bench.drain()
    rows = await bench.rows("SELECT tasks_completed, tasks_failed FROM workers")
    assert [tuple(row) for row in rows] == [(30, 3)]
    rows = await bench.rows("SELECT queue, sum(completed)::int, sum(failed)::int FROM queue_minutes GROUP BY queue")
    assert sorted(map(tuple, rows)) == [("default", 30, 2), ("other", 0, 1)]


async def test_a_failed_job_says_which_task_failed_and_why(bench):
    from aaiclick.orchestration import OrchContext, create_job, create_task

    first = create_task("users_tasks.fail", max_attempts=1)
    first >> create_task("users_tasks.nothing")
    async with OrchContext(target=bench.target):
        job = await create_job("nightly", first)
    bench.drain()
    row = (await bench.rows("SELECT status::text, error FROM jobs WHERE id = $1", job.id))[0]
    assert row["status"] == "FAILED"
    assert row["error"] == f"users_tasks.fail (task {first.id}) failed in attempt 1: ValueError: no luck"
