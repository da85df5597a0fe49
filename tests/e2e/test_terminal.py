"""The command line in a terminal and in pipes: short ids, logs of a job, reasons, widths, completion."""

import json
import os
import pty
import re
import subprocess
import sys

import pytest

CODE = """
from aaiclick.orchestration import job, task

@task(retries=0)
def say(word: str) -> str:
    print(f"saying {word}")
    return word

@task(retries=0)
def fail(word: str) -> None:
    raise ValueError("long " * 100 + "end")

@job
def greet() -> None:
    say("hello")
    say("world")

@job
def reversed_order() -> None:
    last = say.task("last")
    say.task("first") >> last

@job
def broken() -> None:
    fail(say("first"))

@task
def count() -> list[int]:
    return list(range(3000))

@job
def fill() -> None:
    count()
"""


@pytest.fixture
def project(aaiclick, tmp_path, aaiclick_postgres, aaiclick_clickhouse):
    (tmp_path / "project.py").write_text(CODE)
    aaiclick.environment |= {
        "AAICLICK_DATABASE_URL": aaiclick_postgres.dsn,
        "AAICLICK_CLICKHOUSE_URL": aaiclick_clickhouse.url,
        "AAICLICK_LOG_DIR": str(tmp_path / "logs"),
    }
    return aaiclick


def run_in_terminal(project, *arguments, columns=80, terminal="dumb"):
    """Output of a command on a pseudo-terminal."""
    end, child_end = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "aaiclick", *arguments], stdout=child_end, stderr=child_end, cwd=project.cwd,
        env=project.environment | {"COLUMNS": str(columns), "TERM": terminal, "NO_COLOR": "1"},
    )  # fmt: skip
    os.close(child_end)
    data = b""
    while True:
        try:
            part = os.read(end, 65536)
        except OSError:  # the program has ended
            break
        if not part:
            break
        data += part
    process.wait()
    os.close(end)
    return data.decode().replace("\r\n", "\n")


def test_logs_of_a_job_and_shortened_ids(project):
    job = json.loads(project("run", "project.greet", "-o", "json").stdout)
    printed = project("logs", job["id"]).stdout
    assert "saying hello" in printed
    assert "saying world" in printed
    assert printed.count("== project.say, task ") == 2
    assert project("logs", "-f", job["id"]).stdout == printed
    assert json.loads(project("jobs", "show", job["id"][:12], "-o", "json").stdout)["id"] == job["id"]
    tasks = json.loads(project("tasks", "ls", job["id"][:12], "-o", "json").stdout)
    prefix = tasks[0]["id"][:8]
    ambiguous = project("tasks", "show", prefix)
    assert ambiguous.returncode == 2
    assert f"Several tasks have ids that begin with {prefix}: " in ambiguous.stderr
    assert project("jobs", "show", "9").returncode == 3
    missing = project("logs", "9")
    assert (missing.returncode, "There is no task 9." in missing.stderr) == (3, True), missing


def test_reasons_are_listed_and_not_cut(project):
    failed = json.loads(project("run", "project.broken", "-o", "json").stdout)
    project("queues", "pause", "default")
    waiting = json.loads(project("run", "project.greet", "--no-wait", "-o", "json").stdout)
    blocked_first = json.loads(project("run", "project.reversed_order", "--no-wait", "-o", "json").stdout)
    listed = project("jobs", "ls").stdout.splitlines()
    assert listed[0].split("\t")[-1] == "why"
    rows = {line.split("\t")[0]: line for line in listed[1:]}
    assert rows[failed["id"]].endswith("long end")
    assert "queue 'default' is paused" in rows[waiting["id"]]
    assert "queue 'default' is paused" in rows[blocked_first["id"]]  # not: waits for another task
    shown = run_in_terminal(project, "jobs", "ls")
    assert max(map(len, shown.splitlines())) <= 80, shown
    assert failed["id"] in shown
    assert waiting["id"] in shown
    assert "  why: queue 'default' is paused" in shown


def test_progress_bars_show_rate_and_remaining_time(project):
    shown = run_in_terminal(project, "run", "project.greet", columns=100, terminal="xterm")
    assert "\x1b[2K" in shown  # the bar is drawn over
    bars = [line for line in re.split(r"\n|\r|\x1b\[2K", shown) if line.startswith("tasks ")]
    assert re.fullmatch(r"tasks ━+ 2/2 [\d,.]+/s \d:\d\d:\d\d left 00:00", bars[-1]), shown
    job = json.loads(project("run", "project.fill", "-o", "json").stdout)
    objects = json.loads(project("data", "ls", "--job", job["id"], "-o", "json").stdout)
    for name, line in (
        ("rows.csv", r"rows\.csv rows ━+ 3000/3000 .*left 00:00"),
        ("rows.parquet", r"rows\.parquet [\d.]+ [kK]B .*"),
    ):
        exported = run_in_terminal(project, "data", "export", objects[0]["table_id"], name, columns=100)
        assert re.search(line, exported), exported
        assert f"3000 rows written to {name}." in exported


def test_completion_lists_commands_and_options(project):
    script = project("completion", "bash").stdout
    assert "_AAICLICK_COMPLETE=bash_complete" in script
    variables = {"_AAICLICK_COMPLETE": "bash_complete", "COMP_CWORD": "1"}
    assert "plain,dag\n" in project(COMP_WORDS="aaiclick da", **variables).stdout
    variables["COMP_CWORD"] = "2"
    assert project(COMP_WORDS="aaiclick jobs sh", **variables).stdout == "plain,show\n"
