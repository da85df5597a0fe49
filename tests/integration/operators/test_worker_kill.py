"""A map completes although its worker is killed with SIGKILL."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import textwrap

import psutil
import pytest

from aaiclick.data import DataContext, create_object_from_value, open_reference
from aaiclick.operators import map  # noqa: A004
from aaiclick.orchestration import OrchContext, create_job, get_job, get_task
from tests.fork_server import FORK_SERVER, ForkedProcess

CALLBACKS = """
import os, time
import pyarrow as pa, pyarrow.compute as pc

def slow(rows: pa.Table, gate: str) -> pa.Table:
    # The second half of the chunks waits until the first worker is killed.
    while rows["x"][0].as_py() >= 300 and not os.path.exists(gate):
        time.sleep(0.01)
    return pa.table({"y": pc.multiply(rows["x"], 2)})
"""

DONE = "SELECT count(*) FROM tasks WHERE job_id = $1 AND type LIKE '%.chunk' AND status = 'COMPLETED'"


def start(directory) -> ForkedProcess:
    variables = {"WORKER_HEARTBEAT_INTERVAL": "0.5", "WORKER_TIMEOUT": "2", "AAICLICK_LOG_DIR": str(directory / "logs")}
    command = ["worker", "start", "--processes", "1", "--concurrency", "8"]
    return FORK_SERVER.start(command, {**os.environ, **variables}, directory, stderr=subprocess.DEVNULL)


def kill(worker: ForkedProcess) -> None:
    for process in [psutil.Process(worker.pid), *psutil.Process(worker.pid).children(recursive=True)]:
        process.send_signal(signal.SIGKILL)
    worker.wait()


@pytest.mark.timeout(180)
async def test_map_survives_kill_of_its_worker(aaiclick_env, aaiclick_clickhouse, tmp_path):
    (tmp_path / "users_callbacks.py").write_text(textwrap.dedent(CALLBACKS))
    gate = tmp_path / "gate"
    workers = [start(tmp_path)]
    try:
        async with DataContext(aaiclick_clickhouse), OrchContext() as context:
            source = await create_object_from_value({"x": list(range(600))})
            handle = map("users_callbacks.slow", source, chunk_rows=10, gate=str(gate))
            job = await create_job("killed", handle)
            async with context.connection() as connection:
                while await connection.fetchval(DONE, job.id) < 30:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            kill(workers[0])
            gate.touch()
            workers.append(start(tmp_path))
            while (done := await get_job(job.id)).completed_at is None:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            assert done.status == "COMPLETED", done.error
            result = await open_reference((await get_task(handle.id)).result)
            assert await result.data() == {"y": [2 * x for x in range(600)]}
            async with context.connection() as connection:
                attempts = await connection.fetchval("SELECT max(attempt) FROM tasks WHERE type LIKE '%.chunk'")
            assert attempts > 1
    finally:
        for worker in workers:
            if worker.poll() is None:
                worker.terminate()
                worker.wait()
