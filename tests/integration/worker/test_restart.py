"""PostgreSQL is killed under a working worker: it waits, goes on by itself, and nothing is lost or done over.

If it never comes back, the worker says so, and can be stopped all the same.
"""

import asyncio
import json
import os
import signal
import textwrap

import pytest

from aaiclick.local.home import Home
from aaiclick.store.migrate import ensure_current
from tests.integration.local.conftest import Stack
from tests.integration.worker.conftest import TASKS, Bench


@pytest.fixture
def own_stack(tmp_path):
    """A stack of this test's own, to be killed."""
    stack = Stack(Home(tmp_path / "home"))
    yield stack
    stack.stop()


@pytest.fixture
def bench_on(own_stack, tmp_path):
    (tmp_path / "users_tasks.py").write_text(textwrap.dedent(TASKS))
    environment = dict(os.environ) | {
        "AAICLICK_HOME": str(own_stack.home.path),
        "AAICLICK_LOG_DIR": str(tmp_path / "logs"),
    }
    asyncio.run(ensure_current(own_stack.lease.postgres()))
    bench = Bench(own_stack.lease.postgres(), tmp_path, environment)
    yield bench
    for worker in bench.workers:
        worker.stop()
        worker.process.stderr.close()


async def test_postgres_killed_twice_under_load(own_stack, bench_on):
    path = bench_on.directory / "ran"
    ids = await bench_on.enqueue_many(300, "gather", json.dumps({"path": str(path), "seconds": 0.05}))
    worker = bench_on.start("--concurrency", "8", WORKER_TIMEOUT="10", WORKER_HEARTBEAT_INTERVAL="2")
    for fence in (ids[40], ids[160]):
        await bench_on.until(fence, lambda row: row["status"] == "COMPLETED", 60)
        pid = own_stack.status()["servers"]["postgres"]["pid"]
        os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(100):
            while (own_stack.status()["servers"]["postgres"]["pid"] or pid) == pid:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        while own_stack.status()["servers"]["postgres"]["state"] != "running":  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    await bench_on.all_completed(ids, 90)
    assert path.read_text().count("ran") >= 300

    own_stack.stop()
    said = ""
    while "Waiting for it" not in said:
        said = await asyncio.to_thread(worker.process.stderr.readline)
        assert said, "it ended"
    assert worker.stop() != 0
    assert "could not say so: PostgreSQL is away" in worker.process.stderr.read()
