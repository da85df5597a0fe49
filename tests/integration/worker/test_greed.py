"""Tasks that want too much: they end as they should, and those beside them do not notice."""

import json
import textwrap

from tests.integration.transports import AFTER_THE_CLAIM, directly

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


@directly(AFTER_THE_CLAIM)
async def test_a_task_that_eats_memory_pays_alone(bench):
    (bench.directory / "users_tasks.py").write_text(textwrap.dedent(GREEDY))
    culprit = await bench.enqueue("eat", max_attempts=1, priority=1)
    others = await bench.enqueue_many(20, "patient", '{"seconds": 0.3}', max_attempts=1)
    worker = bench.start("--memory-mb", "1000")
    row = await bench.until(culprit, lambda row: row["status"] == "DEAD_LETTER", 60)
    assert row["failures"] == 1
    assert "MemoryError" in row["error"]
    await bench.all_completed(others)
    assert worker.stop() == 0


@directly(AFTER_THE_CLAIM)
async def test_a_gigabyte_of_output_costs_ten_megabytes_of_disk_and_no_memory(bench):
    (bench.directory / "users_tasks.py").write_text(textwrap.dedent(GREEDY))
    ids = [
        await bench.enqueue("shout", json.dumps({"megabytes": 1000}), max_attempts=1),
        await bench.enqueue("shout_at_once", json.dumps({"megabytes": 300}), max_attempts=1, priority=1),
    ]
    others = await bench.enqueue_many(20, "patient", '{"seconds": 0.01}', max_attempts=1)
    bench.drain("--concurrency", "1")
    for task_id in ids:
        row = await bench.task(task_id)
        assert (row["status"], row["error"]) == ("COMPLETED", None)
        log = bench.directory / "logs" / f"{task_id}.log"
        assert log.stat().st_size < 11_000_000
        assert "bytes past the limit" in log.read_text()[-200:]
    done = await bench.rows("SELECT status::text FROM tasks WHERE id = ANY ($1)", others)
    assert {row["status"] for row in done} == {"COMPLETED"}
