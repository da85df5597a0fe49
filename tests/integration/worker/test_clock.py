"""Timestamps are of PostgreSQL's clock; clocks of clients and workers may be wrong."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys

from aaiclick.chaos.servers import make_wrong_clock, set_clock

DAYS = 400
SUBMIT = """
import asyncio, datetime
from aaiclick.orchestration import OrchContext, create_job, create_task, enqueue, register_worker
async def main():
    async with OrchContext():
        tasks = create_task("users_tasks.nothing"), create_task("users_tasks.fail", max_attempts=2)
        job = await create_job("clock", tasks)
        await enqueue("users_tasks.nothing")
        await register_worker("elsewhere", 1)
        print(job.id, datetime.datetime.now().year)
asyncio.run(main())
"""
COLUMNS = """
    SELECT table_name, column_name FROM information_schema.columns
    WHERE table_schema = 'public' AND data_type = 'timestamp with time zone'
"""


async def test_wrong_process_clock_affects_no_timestamp(worker_env, aaiclick_env, tmp_path, gateway_kind):
    days = DAYS if gateway_kind == "direct" else -DAYS
    variables = make_wrong_clock(tmp_path, days * 86_400)
    ((start,),) = await worker_env.rows("SELECT now()")
    environment = {**os.environ, **variables}  # direct access to the databases with either gateway
    run = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", SUBMIT], env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    job_id, year = map(int, run.stdout.split())
    assert year != start.year
    assert worker_env.start("--drain", forked=False, **variables).wait(60) == 0
    (job,) = await worker_env.rows("SELECT * FROM jobs WHERE id = $1", job_id)
    assert job["status"] == "RUNNING"  # one of its tasks waits for a retry
    ((end,),) = await worker_env.rows("SELECT now()")
    checked = set()
    for table, column in await worker_env.rows(COLUMNS):
        for row in await worker_env.rows(f'SELECT "{column}" AS at FROM "{table}" WHERE "{column}" IS NOT NULL'):
            checked.add(f"{table}.{column}")
            assert abs((row["at"] - end).days) < DAYS / 2, f"{table}.{column}: {row['at']}"
    assert checked >= {
        "jobs.created_at", "jobs.started_at", "jobs.deadline_at", "tasks.created_at", "tasks.claimed_at",
        "tasks.started_at", "tasks.completed_at", "tasks.next_retry_at", "task_attempts.ended_at",
        "workers.started_at", "workers.last_heartbeat", "workers.stopped_at",
    }  # fmt: skip


JUMPS = """
import time, pathlib
async def watch_jumps(path, jumps):
    seen = time.time()
    for number in range(jumps):
        print("jump", number)
        (pathlib.Path(path) / f"ready {number}").touch()
        while abs(time.time() - seen) < 3600: await asyncio.sleep(0.01)
        seen = time.time()
    from aaiclick.data import create_object_from_value
    return await create_object_from_value([1, 2, 3])
"""


async def test_clock_jump_ends_no_task_and_loses_no_lease(worker_env, tmp_path):
    """Clock jumps by hours do not affect leases and time limits."""
    with (worker_env.directory / "users_tasks.py").open("a") as file:
        file.write(JUMPS)
    shifts = [5 * 3600.0, -5 * 3600.0, 0.0, 30 * 86_400.0]
    variables = make_wrong_clock(tmp_path, 0.0)
    watching = await worker_env.enqueue(
        "watch_jumps", json.dumps({"path": str(tmp_path), "jumps": len(shifts)}), timeout_seconds=600, max_attempts=1
    )
    hangs = await worker_env.enqueue("patient", '{"seconds": 600}', timeout_seconds=12, max_attempts=1)
    worker = await asyncio.to_thread(worker_env.start, forked=False, **variables)
    for number, shift in enumerate(shifts):
        async with asyncio.timeout(60):
            while not (tmp_path / f"ready {number}").exists():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        set_clock(variables, shift)
    row = await worker_env.wait_until(watching, lambda row: row["completed_at"], 60)
    assert (row["status"], row["attempt"], row["failures"]) == ("COMPLETED", 1, 0), row["error"]
    assert row["started_at"] <= row["completed_at"]
    row = await worker_env.wait_until(hangs, lambda row: row["completed_at"], 60)
    assert (row["status"], row["attempt"]) == ("DEAD_LETTER", 1)
    assert "Timed out after 12 s" in row["error"]
    assert 11.5 <= (row["completed_at"] - row["started_at"]).total_seconds() < 60
    later = await worker_env.enqueue("nothing")
    await worker_env.assert_all_completed([later])
    assert await asyncio.to_thread(worker.stop) == 0
