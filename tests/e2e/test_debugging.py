"""Debuggers driven through a pseudo-terminal: `run --debug`, `run_job_test` under pytest, `tasks debug --pdb`."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

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

@job
async def loading(count: int = 1) -> None:
    await asyncio.sleep(0)
    for _ in range(count):
        load()

@task(retries=0)
async def change_things(change: str) -> None:
    from aaiclick.data import create_object_from_value
    from aaiclick.orchestration import emit_event, enqueue

    if change == "submit":
        await loading()
    elif change == "enqueue":
        await enqueue("item")
    elif change == "emit":
        await emit_event([1], cursor=1)
    else:
        await create_object_from_value([1], name="kept", replace=True)

@job
def changing() -> None:
    for change in ("submit", "enqueue", "emit", "name"):
        change_things(change)

def test_stopping() -> None:
    done = run_job_test(asyncio.run(stopping()))
    assert done.status == "COMPLETED", done.error

def test_broken() -> None:
    assert run_job_test(asyncio.run(broken())).status == "COMPLETED"

if __name__ == "__main__":
    import test_project
    test_project.test_stopping()
    print("1 passed")
"""
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_project.py", "-k")
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


def start_python(project, *arguments):
    command = [sys.executable, *arguments]
    return Terminal(
        lambda stream: subprocess.Popen(
            command, env=project.environment, cwd=project.cwd, stdin=stream, stdout=stream, stderr=stream
        )
    )


@pytest.mark.parametrize(
    "arguments",
    [(*PYTEST, "stopping"), (*PYTEST, "stopping", "-s"), ("test_project.py",)],
    ids=["pytest", "pytest -s", "script"],
)
def test_breakpoint_stops_run_job_test(project, arguments):
    terminal = start_python(project, *arguments)
    terminal.expect("(Pdb) ")
    terminal.send("p 10 * total")
    terminal.expect("60")
    terminal.send("c")
    terminal.expect("1 passed")
    assert terminal.wait() == 0


def test_pytest_with_pdb_stops_inside_the_failed_task(project):
    terminal = start_python(project, *PYTEST, "broken", "--pdb")
    terminal.expect("(Pdb) ")
    terminal.send("p rows, empty")
    terminal.expect("([1, 2, 3], 0)")
    terminal.send("q")
    terminal.expect("(Pdb) ")  # of pytest itself, at the assertion
    terminal.send("q")
    terminal.expect("1 failed")
    assert terminal.wait() != 0


def test_breakpoint_stops_a_repeated_task(project):
    ran = project("run", "test_project.add", "--arg", "rows=[1,2,3]", "--arg", "stops=false", "-o", "json")
    (row,) = json.loads(project("tasks", "ls", json.loads(ran.stdout)["id"], "-o", "json").stdout)
    code = (Path(project.cwd) / "test_project.py").read_text()
    (Path(project.cwd) / "test_project.py").write_text(code.replace("if stops:", "if True:"))
    terminal = Terminal.of_command(project, "tasks", "debug", row["id"])
    terminal.expect("(Pdb) ")
    terminal.send("p 10 * total")
    terminal.expect("60")
    terminal.send("c")
    terminal.expect("Result: 6")
    assert terminal.wait() == 0


def test_repeated_task_changes_nothing(project):
    ran = project("run", "test_project.changing", "--no-wait", "-o", "json")
    rows = json.loads(project("tasks", "ls", json.loads(ran.stdout)["id"], "-o", "json").stdout)
    refused = {"submit the job", "enqueue an item", "emit an event", "change the named Object"}
    for row in rows:
        shown = project("tasks", "debug", row["id"])
        assert shown.returncode != 0
        refused = {text for text in refused if text not in shown.stderr}
    assert not refused


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


def test_repeated_task_of_an_async_job_prints_its_result(project):
    ran = project("run", "test_project.loading", "-o", "json")
    assert json.loads(ran.stdout)["results"] == [{"name": "load", "value": [1, 2, 3]}], ran.stderr
    (row,) = json.loads(project("tasks", "ls", json.loads(ran.stdout)["id"], "-o", "json").stdout)
    shown = project("tasks", "debug", row["id"])
    assert (shown.returncode, shown.stdout) == (0, "Result: [1, 2, 3]\n")


def test_all_results_of_a_job_are_printed(project):
    ran = project("run", "test_project.loading", "--count", "25", "-o", "json")
    assert [result["value"] for result in json.loads(ran.stdout)["results"]] == [[1, 2, 3]] * 25, ran.stderr
    printed = project("run", "test_project.loading", "--count", "25").stdout
    assert printed.count("load: [1, 2, 3]") == 20
    assert "… and 5 more results" in printed
