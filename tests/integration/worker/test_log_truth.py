"""The log of an attempt has everything the attempt wrote, however it ended."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from aaiclick.orchestration.worker.logs import Excerpt
from tests.integration.worker.conftest import Bench

SPEAKERS = """
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
def speakers(bench) -> Bench:
    (bench.directory / "users_tasks.py").write_text(SPEAKERS)
    return bench


def log_of(bench: Bench, task_id: int) -> Path:
    return bench.directory / "logs" / f"{task_id}.log"


async def written(bench: Bench, task_id: int, text: str, seconds: float = 30) -> str:
    """The log as soon as it contains `text`."""
    path = log_of(bench, task_id)
    async with asyncio.timeout(seconds):
        while not path.exists() or text not in path.read_text():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return path.read_text()


def excerpt(log: str, attempt: int) -> list[str]:
    found = Excerpt(attempt)
    return (found.feed(log) + found.rest()).splitlines()[1:]


@pytest.mark.parametrize(
    ("function", "isolation"), [("wait", "none"), ("block", "none"), ("sleep", "none"), ("wait", "process")]
)
async def test_log_of_a_task_that_waits_has_its_last_line(speakers, function, isolation):
    path = speakers.directory / "ready"
    task_id = await speakers.enqueue(function, json.dumps({"path": str(path)}))
    await asyncio.to_thread(speakers.start, "--isolation", isolation)
    assert (await written(speakers, task_id, WRITTEN)).startswith("=== attempt 1, ")
    assert (await speakers.task(task_id))["log_path"] == str(log_of(speakers, task_id))


@pytest.mark.parametrize(("function", "isolation"), [("wait", "none"), ("sleep", "process")])
async def test_log_of_a_killed_process_has_its_last_line(speakers, function, isolation):
    path = speakers.directory / "ready"
    task_id = await speakers.enqueue(function, json.dumps({"path": str(path)}), retry_policy=RETRY)
    worker = await asyncio.to_thread(speakers.start, "--isolation", isolation)
    await speakers.until(task_id, lambda _: path.exists())
    for process in worker.children():
        for child in process.children(recursive=True):
            os.kill(child.pid, signal.SIGKILL)
        os.kill(process.pid, signal.SIGKILL)
    await speakers.until(task_id, lambda row: row["attempt"] > 1)
    log = await written(speakers, task_id, "=== attempt 2, ")
    assert excerpt(log, 1) == WRITTEN.splitlines()
    [attempt] = await speakers.rows("SELECT log_path FROM task_attempts WHERE task_id = $1 AND attempt = 1", task_id)
    assert attempt["log_path"] == str(log_of(speakers, task_id))


@pytest.mark.parametrize("function", ["exit_once", "kill_once", "segfault_once", "thread_once"])
async def test_log_of_a_crashed_task_has_its_last_line(speakers, function):
    arguments = json.dumps({"path": str(speakers.directory / "ready")})
    task_id = await speakers.enqueue(function, arguments, retry_policy=RETRY)
    await asyncio.to_thread(speakers.start)
    await speakers.until(task_id, lambda row: row["status"] == "COMPLETED", 60)
    log = log_of(speakers, task_id).read_text()
    assert excerpt(log, 1) == ["attempt speaks", *WRITTEN.splitlines()]
    assert excerpt(log, 2) == ["attempt speaks"]


@pytest.mark.parametrize("function", ["wait", "block", "sleep"])
async def test_log_of_a_timed_out_task_has_its_last_line(speakers, function):
    arguments = json.dumps({"path": str(speakers.directory / "ready")})
    task_id = await speakers.enqueue(function, arguments, timeout_seconds=1, max_attempts=1)
    await asyncio.to_thread(speakers.start)
    row = await speakers.until(task_id, lambda row: row["status"] == "DEAD_LETTER", 60)
    assert excerpt(log_of(speakers, task_id).read_text(), 1) == WRITTEN.splitlines()
    assert row["log_path"] == str(log_of(speakers, task_id))
