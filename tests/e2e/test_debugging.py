"""Debuggers driven through a pseudo-terminal: `run --debug`, `run_job_test` under pytest, `tasks debug --pdb`."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time

import pytest

from tests.fork_server import FORK_SERVER

CODE = """
import asyncio
from aaiclick.orchestration import job, run_job_test, task

@task(retries=0)
def load() -> list[int]:
    return [1, 2, 3]

@task(retries=0)
def add(rows: list[int], stops: bool) -> int:
    total = sum(rows)
    if stops:
        breakpoint()
    return total

@task(retries=0)
def divide(rows: list[int]) -> float:
    empty = 0
    return sum(rows) / empty

@job
def stopping() -> None:
    add(load(), True)

@job
def broken() -> None:
    divide(load())

def test_stopping() -> None:
    done = run_job_test(asyncio.run(stopping()))
    assert done.status == "COMPLETED", done.error
"""
SECONDS = 60.0


class Terminal:
    """A program with a pseudo-terminal as its standard streams."""

    def __init__(self, start):
        self._end, child_end = pty.openpty()
        with os.fdopen(child_end, "r+b", buffering=0) as stream:
            self._process = start(stream)
        self.text = ""

    @classmethod
    def of_command(cls, project, *arguments):
        return cls(
            lambda stream: FORK_SERVER.start(list(arguments), project.environment, project.cwd, stream, stream, stream)
        )

    def expect(self, text):
        """Read until a text appears."""
        deadline = time.monotonic() + SECONDS
        while text not in self.text:
            assert time.monotonic() < deadline, self.text
            if select.select([self._end], [], [], 1)[0]:
                try:
                    self.text += os.read(self._end, 65536).decode(errors="replace")
                except OSError as error:  # the program has ended
                    raise AssertionError(self.text) from error

    def send(self, line):
        self.text = ""
        os.write(self._end, f"{line}\n".encode())

    def wait(self):
        code = self._process.wait(SECONDS)
        os.close(self._end)
        return code


@pytest.fixture
def project(aaiclick, tmp_path, aaiclick_postgres, aaiclick_clickhouse):
    (tmp_path / "test_project.py").write_text(CODE)
    aaiclick.environment |= {
        "AAICLICK_DATABASE_URL": aaiclick_postgres.dsn,
        "AAICLICK_CLICKHOUSE_URL": aaiclick_clickhouse.url,
        "AAICLICK_LOG_DIR": str(tmp_path / "logs"),
        "TERM": "dumb",
    }
    return aaiclick


def test_breakpoint_stops_a_debugged_run(project):
    terminal = Terminal.of_command(project, "run", "test_project.stopping", "--debug")
    terminal.expect("(Pdb) ")
    terminal.send("p 10 * total")
    terminal.expect("60")
    terminal.send("c")
    terminal.expect("add: 6")
    assert terminal.wait() == 0


def test_breakpoint_stops_a_test_of_a_job(project):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_project.py"]
    terminal = Terminal(
        lambda stream: subprocess.Popen(
            command, env=project.environment, cwd=project.cwd, stdin=stream, stdout=stream, stderr=stream
        )
    )
    terminal.expect("(Pdb) ")
    terminal.send("p 10 * total")
    terminal.expect("60")
    terminal.send("c")
    terminal.expect("1 passed")
    assert terminal.wait() == 0


def test_failed_task_is_repeated_in_the_debugger(project):
    ran = project("run", "test_project.broken", "-o", "json")
    job_id = json.loads(ran.stdout)["id"]
    failed = next(row for row in json.loads(project("tasks", "ls", job_id, "-o", "json").stdout) if row["error"])
    before = project("tasks", "show", failed["id"], "-o", "json").stdout
    assert f"aaiclick tasks debug {failed['id']} --pdb" in ran.stderr
    terminal = Terminal.of_command(project, "tasks", "debug", failed["id"], "--pdb")
    terminal.expect("(Pdb) ")
    terminal.send("p rows, empty")
    terminal.expect("([1, 2, 3], 0)")
    terminal.send("q")
    terminal.expect("ZeroDivisionError")
    assert terminal.wait() == 1
    assert project("tasks", "show", failed["id"], "-o", "json").stdout == before


def test_repeated_task_prints_its_result(project):
    ran = project("run", "test_project.load", "-o", "json")
    (row,) = json.loads(project("tasks", "ls", json.loads(ran.stdout)["id"], "-o", "json").stdout)
    shown = project("tasks", "debug", row["id"])
    assert (shown.returncode, shown.stdout) == (0, "Result: [1, 2, 3]\n")
