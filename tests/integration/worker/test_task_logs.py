"""Task logs contain all output of an attempt, however it ended."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from aaiclick.orchestration.worker.logs import LogExcerpt
from tests.integration.worker.conftest import WorkerEnvironment

PRINTING_TASKS = """
import asyncio, os, sys, time, threading

def say():
    print("first line")
    print("last line")
    print("torn", end="")
    sys.stderr.write(" end")

def ready(path):
    open(path, "a").close()

async def wait(path): say(); ready(path); await asyncio.sleep(600)
async def block(path): say(); ready(path); time.sleep(600)
def sleep(path): say(); ready(path); time.sleep(600)

def once(path):
    if os.path.exists(path): return False
    ready(path)
    return True

def exit_once(path):
    print("attempt speaks")
    if once(path): say(); os._exit(9)
async def kill_once(path):
    print("attempt speaks")
    if once(path): say(); os.kill(os.getpid(), 9)
def segfault_once(path):
    import ctypes
    print("attempt speaks")
    if once(path): say(); ctypes.string_at(0)
def thread_once(path):
    print("attempt speaks")
    if once(path):
        other = threading.Thread(target=say)
        other.start()
        other.join()
        os.kill(os.getpid(), 9)
"""
WRITTEN = "first line\nlast line\ntorn end"
RETRY = json.dumps({"base_seconds": 0.01})


@pytest.fixture
def printing_env(worker_env) -> WorkerEnvironment:
    (worker_env.directory / "users_tasks.py").write_text(PRINTING_TASKS)
    return worker_env


def log_of(worker_env: WorkerEnvironment, task_id: int) -> Path:
    return worker_env.directory / "logs" / f"{task_id}.log"


async def written(worker_env: WorkerEnvironment, task_id: int, text: str, seconds: float = 30) -> str:
    """Wait until the log contains `text`; returns it."""
    path = log_of(worker_env, task_id)
    async with asyncio.timeout(seconds):
        while not path.exists() or text not in path.read_text():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return path.read_text()


def excerpt(log: str, attempt: int) -> list[str]:
    log_excerpt = LogExcerpt(attempt)
    return (log_excerpt.feed(log) + log_excerpt.unfinished_line()).splitlines()[1:]


@pytest.mark.parametrize(
    ("function", "isolation"), [("wait", "none"), ("block", "none"), ("sleep", "none"), ("wait", "process")]
)
async def test_log_of_a_task_that_waits_has_its_last_line(printing_env, function, isolation):
    path = printing_env.directory / "ready"
    task_id = await printing_env.enqueue(function, json.dumps({"path": str(path)}))
    await asyncio.to_thread(printing_env.start, "--isolation", isolation)
    assert (await written(printing_env, task_id, WRITTEN)).startswith("=== attempt 1, ")
    assert (await printing_env.task(task_id))["log_path"] == str(log_of(printing_env, task_id))


@pytest.mark.parametrize(("function", "isolation"), [("wait", "none"), ("sleep", "process")])
async def test_log_of_a_killed_process_has_its_last_line(printing_env, function, isolation):
    path = printing_env.directory / "ready"
    task_id = await printing_env.enqueue(function, json.dumps({"path": str(path)}), retry_policy=RETRY)
    worker = await asyncio.to_thread(printing_env.start, "--isolation", isolation)
    await printing_env.wait_until(task_id, lambda _: path.exists())
    for process in worker.children():
        for child in process.children(recursive=True):
            os.kill(child.pid, signal.SIGKILL)
        os.kill(process.pid, signal.SIGKILL)
    await printing_env.wait_until(task_id, lambda row: row["attempt"] > 1)
    log = await written(printing_env, task_id, "=== attempt 2, ")
    assert excerpt(log, 1) == WRITTEN.splitlines()
    [attempt] = await printing_env.rows(
        "SELECT log_path FROM task_attempts WHERE task_id = $1 AND attempt = 1", task_id
    )
    assert attempt["log_path"] == str(log_of(printing_env, task_id))


@pytest.mark.parametrize("function", ["exit_once", "kill_once", "segfault_once", "thread_once"])
async def test_log_of_a_crashed_task_has_its_last_line(printing_env, function):
    arguments = json.dumps({"path": str(printing_env.directory / "ready")})
    task_id = await printing_env.enqueue(function, arguments, retry_policy=RETRY)
    await asyncio.to_thread(printing_env.start)
    await printing_env.wait_until(task_id, lambda row: row["status"] == "COMPLETED", 60)
    log = log_of(printing_env, task_id).read_text()
    assert excerpt(log, 1) == ["attempt speaks", *WRITTEN.splitlines()]
    assert excerpt(log, 2) == ["attempt speaks"]


@pytest.mark.parametrize("function", ["wait", "block", "sleep"])
async def test_log_of_a_timed_out_task_has_its_last_line(printing_env, function):
    arguments = json.dumps({"path": str(printing_env.directory / "ready")})
    task_id = await printing_env.enqueue(function, arguments, timeout_seconds=1, max_attempts=1)
    await asyncio.to_thread(printing_env.start)
    row = await printing_env.wait_until(task_id, lambda row: row["status"] == "DEAD_LETTER", 60)
    assert excerpt(log_of(printing_env, task_id).read_text(), 1) == WRITTEN.splitlines()
    assert row["log_path"] == str(log_of(printing_env, task_id))
