"""PostgreSQL is killed under load: the worker reconnects, and no task is lost or repeated.

If PostgreSQL does not come back, the worker reports it and can be stopped.
"""

import asyncio
import json
import os
import signal
import textwrap

import pytest

from aaiclick.local.home import Home
from aaiclick.store.migrate import upgrade_if_needed
from tests.integration.local.conftest import Stack
from tests.integration.worker.conftest import TASKS, WorkerEnvironment


@pytest.fixture
def own_stack(tmp_path):
    """A separate stack that the test kills."""
    stack = Stack(Home(tmp_path / "home"))
    yield stack
    stack.stop()


@pytest.fixture
def worker_env_on_stack(own_stack, tmp_path):
    (tmp_path / "users_tasks.py").write_text(textwrap.dedent(TASKS))
    environment = dict(os.environ) | {
        "AAICLICK_HOME": str(own_stack.home.path),
        "AAICLICK_LOG_DIR": str(tmp_path / "logs"),
    }
    asyncio.run(upgrade_if_needed(own_stack.connection.postgres_endpoint()))
    worker_env = WorkerEnvironment(own_stack.connection.postgres_endpoint(), tmp_path, environment)
    yield worker_env
    for worker in worker_env.workers:
        worker.stop()
        worker.process.stderr.close()


async def test_postgres_killed_twice_under_load(own_stack, worker_env_on_stack):
    path = worker_env_on_stack.directory / "ran"
    ids = await worker_env_on_stack.enqueue_many(300, "gather", json.dumps({"path": str(path), "seconds": 0.05}))
    worker = worker_env_on_stack.start("--concurrency", "8", WORKER_TIMEOUT="10", WORKER_HEARTBEAT_INTERVAL="2")
    for fence in (ids[40], ids[160]):
        await worker_env_on_stack.wait_until(fence, lambda row: row["status"] == "COMPLETED", 60)
        pid = own_stack.status()["servers"]["postgres"]["pid"]
        os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(100):
            while (own_stack.status()["servers"]["postgres"]["pid"] or pid) == pid:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        while own_stack.status()["servers"]["postgres"]["state"] != "running":  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    await worker_env_on_stack.assert_all_completed(ids, 90)
    assert path.read_text().count("ran") >= 300

    own_stack.stop()
    line = ""
    while "Reconnecting" not in line:
        line = await asyncio.to_thread(worker.process.stderr.readline)
        assert line, "the worker ended"
    assert worker.stop() != 0
    assert "without releasing its tasks: PostgreSQL is unreachable" in worker.process.stderr.read()
