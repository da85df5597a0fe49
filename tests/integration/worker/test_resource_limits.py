"""Tasks with excessive memory or output do not affect others."""

import json
import textwrap

from tests.integration.gateways import AFTER_CLAIM, postgres_only

GREEDY = """
import asyncio, os, resource, sys

async def patient(seconds): await asyncio.sleep(seconds)
def eat():
    eaten = []
    while True: eaten.append(bytearray(32_000_000))
def shout(megabytes):
    def used(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    line = "x" * 999 + "\\n"
    before = used()
    for _ in range(megabytes * 1000): sys.stdout.write(line)
    if used() > before + 30_000: raise RuntimeError(f"{used() - before} kB more")
def shout_at_once(megabytes):
    text = "x" * (megabytes * 1_000_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(text)
    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    if more > 50_000: raise RuntimeError(f"{more} kB more")
"""


@postgres_only(AFTER_CLAIM)
async def test_task_out_of_memory_is_charged_alone(worker_env):
    (worker_env.directory / "users_tasks.py").write_text(textwrap.dedent(GREEDY))
    culprit = await worker_env.enqueue("eat", max_attempts=1, repeatable=True, priority=1)
    other_ids = await worker_env.enqueue_many(20, "patient", '{"seconds": 0.3}', max_attempts=1, repeatable=True)
    worker = worker_env.start("--memory-mb", "1000")
    row = await worker_env.wait_until(culprit, lambda row: row["status"] == "DEAD_LETTER", 60)
    assert row["failures"] == 1
    assert "MemoryError" in row["error"]
    await worker_env.assert_all_completed(other_ids)
    assert worker.stop() == 0


@postgres_only(AFTER_CLAIM)
async def test_a_gigabyte_of_output_uses_little_disk_and_memory(worker_env):
    (worker_env.directory / "users_tasks.py").write_text(textwrap.dedent(GREEDY))
    ids = [
        await worker_env.enqueue("shout", json.dumps({"megabytes": 1000}), max_attempts=1, repeatable=True),
        await worker_env.enqueue(
            "shout_at_once", json.dumps({"megabytes": 300}), max_attempts=1, repeatable=True, priority=1
        ),
    ]
    other_ids = await worker_env.enqueue_many(20, "patient", '{"seconds": 0.01}', max_attempts=1, repeatable=True)
    worker_env.drain("--concurrency", "1")
    for task_id in ids:
        row = await worker_env.task(task_id)
        assert (row["status"], row["error"]) == ("COMPLETED", None)
        log = worker_env.directory / "logs" / f"{task_id}.log"
        assert log.stat().st_size < 11_000_000
        assert "bytes past the limit" in log.read_text()[-200:]
    done = await worker_env.rows("SELECT status::text FROM tasks WHERE id = ANY ($1)", other_ids)
    assert {row["status"] for row in done} == {"COMPLETED"}
