"""`worker start --reload`, `aaiclick dev`, and the warnings of a worker with old code."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest

CODE = """
import asyncio
import os
import time
from pathlib import Path
from aaiclick.orchestration import job, task

VERSION = {version}
HERE = Path(__file__).parent

def note(line: str) -> None:
    with (HERE / "lines.txt").open("a") as file:
        file.write(f"{{line}}\\n")

@task(retries=0)
async def tick(number: int) -> int:
    note(f"{{VERSION}} {{time.time()}}")
    if not (HERE / "fast").exists():
        await asyncio.sleep(0.05)
    return VERSION

@task(retries=0)
async def linger() -> int:
    note("lingers")
    while not (HERE / "go").exists():
        await asyncio.sleep(0.01)
    note(f"lingered {{VERSION}}")
    return VERSION

@task
def greet(name: str) -> str:
    print(f"hello {{name}} from version {{VERSION}}")
    return name

@job
def ticks(count: int) -> None:
    linger()
    for number in range(count):
        tick(number)
"""
TICKS = 400
WORKER = ("worker", "start", "--processes", "1")
SECONDS = 60.0


@pytest.fixture
def project(aaiclick, tmp_path, aaiclick_postgres, aaiclick_clickhouse):
    aaiclick.environment |= {
        "AAICLICK_DATABASE_URL": aaiclick_postgres.dsn,
        "AAICLICK_CLICKHOUSE_URL": aaiclick_clickhouse.url,
        "AAICLICK_LOG_DIR": str(tmp_path / "logs"),
        "AAICLICK_SERVER_PORT": "0",
    }
    write_code(tmp_path, 1)
    return aaiclick


def write_code(directory, version):
    (directory / "project.py").write_text(CODE.format(version=version))
    return time.time()


def wait_until(check, *details):
    deadline = time.monotonic() + SECONDS
    while not (value := check()):
        assert time.monotonic() < deadline, details
        time.sleep(0.01)
    return value


@contextlib.contextmanager
def started(project, tmp_path, *arguments):
    """A command in a process of its own; yields it and its output file."""
    output = tmp_path / "output.txt"
    with (
        output.open("w") as file,
        subprocess.Popen(
            [sys.executable, "-m", "aaiclick", *arguments],
            env=project.environment, cwd=project.cwd, stdout=file, stderr=file,
        ) as process,
    ):  # fmt: skip
        try:
            yield process, output
        finally:
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGTERM)
            process.wait(SECONDS)


def read_lines(tmp_path):
    path = tmp_path / "lines.txt"
    return path.read_text().splitlines() if path.exists() else []


def first_tick(tmp_path, version):
    """Time of the first tick of a version."""
    lines = [line.split() for line in read_lines(tmp_path) if line.startswith(f"{version} ") and line.count(" ") == 1]
    return float(lines[0][1]) if lines else None


def test_reload_loses_no_attempt_and_runs_new_code(project, tmp_path):
    with started(project, tmp_path, *WORKER, "--reload", "--concurrency", "4") as (_, out):
        ran = project("run", "project.ticks", "--arg", f"count={TICKS}", "--no-wait", "-o", "json")
        job_id = json.loads(ran.stdout)["id"]
        wait_until(lambda: first_tick(tmp_path, 1) and "lingers" in read_lines(tmp_path))
        seconds = []
        for version in (2, 3):
            changed = write_code(tmp_path, version)
            seconds.append(wait_until(lambda number=version: first_tick(tmp_path, number), out.read_text()) - changed)
        (tmp_path / "fast").touch()
        (tmp_path / "go").touch()
        wait_until(lambda: json.loads(project("jobs", "show", job_id, "-o", "json").stdout)["completed_at"])
        tasks = json.loads(project("tasks", "ls", job_id, "--limit", "1000", "-o", "json").stdout)
    assert {task["status"] for task in tasks} == {"COMPLETED"}
    assert len(read_lines(tmp_path)) == TICKS + 2, "each task ran once"
    assert "lingered 1" in read_lines(tmp_path), "it finished with the old code"
    assert "Reloading: project.py changed." in out.read_text()
    busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    assert min(seconds) < busy, seconds  # a second, on a machine with a free core


def test_worker_with_broken_code_waits_for_the_next_change(project, tmp_path):
    (tmp_path / "project.py").write_text("def broken(:\n")
    with started(project, tmp_path, *WORKER, "--reload", "--import", "project") as (_, out):
        wait_until(lambda: "waits for the next change" in out.read_text(), out)
        write_code(tmp_path, 1)
        ran = project("run", "project.greet", "--arg", "name=Ada")
    assert (ran.returncode, "greet: 'Ada'" in ran.stdout) == (0, True), ran


def test_worker_without_reload_reports_old_code(project, tmp_path):
    with started(project, tmp_path, *WORKER) as (_, out):
        wait_until(lambda: json.loads(project("workers", "ls", "-o", "json").stdout))
        first = project("run", "project.greet", "--arg", "name=Ada")
        assert "Warning" not in first.stderr
        write_code(tmp_path, 22)
        wait_until(lambda: "project.py changed after this worker loaded the code" in out.read_text(), out)
        second = project("run", "project.greet", "--arg", "name=Ada")
    assert "was started with another version of project; it may run that code" in second.stderr
    assert "start it with --reload" in second.stderr


def test_dev_runs_the_stack_and_a_worker_and_prints_logs(project, tmp_path):
    with started(project, tmp_path, "dev") as (process, out):
        wait_until(lambda: "Worker started" in out.read_text(), out)
        ran = project("run", "project.greet", "--arg", "name=Ada")
        assert ran.returncode == 0, ran
        wait_until(lambda: "greet | hello Ada from version 1" in out.read_text(), out)
        write_code(tmp_path, 22)
        wait_until(lambda: "worker | Reloading: project.py changed." in out.read_text(), out)
        project("run", "project.greet", "--arg", "name=Ada")
        wait_until(lambda: "greet | hello Ada from version 22" in out.read_text(), out)
        assert "Web UI and HTTP API at http://" in out.read_text()
        workers = {worker["pid"] for worker in json.loads(project("workers", "ls", "-o", "json").stdout)}
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 0, out.read_text()
    assert "Stopped." in out.read_text()
    for pid in workers:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert json.loads(project("workers", "ls", "-o", "json").stdout) == []
