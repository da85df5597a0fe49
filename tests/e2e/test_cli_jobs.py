"""Jobs from a terminal: run, look, read logs, retry, redrive, pause."""

import asyncio
import json
import os
import signal
import socket
import subprocess
from datetime import datetime

import pytest

from aaiclick.store.engine import connect
from aaiclick.store.workers import register_worker

TASKS = """
import asyncio
from pathlib import Path
from aaiclick.orchestration import job, task

@task
async def say(word: str) -> str:
    print("saying", word)
    return word

@task(retries=0)
def fragile(path: str) -> None:
    if not Path(path).exists():
        raise FileNotFoundError(path)

@job
def greet(words: list[str]) -> None:
    for word in words:
        say(word)

@job(name="careful")
def careful(path: str) -> None:
    fragile.task(path) >> say.task("after")
"""


@pytest.fixture
def project(aaiclick, tmp_path, aaiclick_postgres, aaiclick_clickhouse):
    (tmp_path / "project.py").write_text(TASKS)
    aaiclick.environment |= {
        "AAICLICK_DATABASE_URL": aaiclick_postgres.dsn,
        "AAICLICK_CLICKHOUSE_URL": aaiclick_clickhouse.url,
        "AAICLICK_LOG_DIR": str(tmp_path / "logs"),
    }
    return aaiclick


def records(result):
    assert result.returncode == 0, result
    return json.loads(result.stdout)


def test_run_watches_a_job_to_its_end(project):
    ran = project("run", "project.greet", "--arg", 'words=["hello", "world"]', "-o", "json")
    job = records(ran)
    assert (job["status"], job["total_tasks"], job["open_tasks"]) == ("COMPLETED", 2, 0)
    assert f"Job {job['id']} (greet) is submitted." in ran.stderr
    assert [line["id"] for line in records(project("jobs", "ls", "-o", "json"))] == [job["id"]]
    tasks = records(project("tasks", "ls", job["id"], "-o", "json"))
    assert {task["status"] for task in tasks} == {"COMPLETED"}
    assert "saying hello" in project("logs", tasks[0]["id"]).stdout
    assert "saying hello" in project("logs", "-f", tasks[0]["id"]).stdout
    shown = project("tasks", "show", tasks[0]["id"]).stdout
    assert "object_type" in shown
    assert "2/2" in project("jobs", "show", job["id"]).stdout
    shown = records(project("jobs", "show", job["id"], "-o", "json"))
    assert (shown["total_tasks"], shown["open_tasks"], shown["paused_at"]) == (2, 0, None)
    begun, ended = (datetime.fromisoformat(shown[name]) for name in ("started_at", "completed_at"))
    assert shown["took_seconds"] == (ended - begun).total_seconds()
    assert job == {name: value for name, value in shown.items() if name != "groups"} | {"results": {"say": "world"}}
    [group] = shown["groups"]
    assert (group["name"], group["total"], group["completed"], group["rows"]) == (None, 2, 2, None)


def test_run_does_not_count_on_a_worker_that_died_says_why_it_waits_and_stops_when_told(project, aaiclick_postgres):
    gone = subprocess.Popen(["true"])
    gone.wait()

    async def ghost():
        connection = await connect(aaiclick_postgres)
        await register_worker(connection, hostname=socket.gethostname(), pid=gone.pid)
        await connection.close()

    asyncio.run(ghost())
    project("queues", "pause", "default")
    with project.start("run", "project.greet", "--arg", 'words=["x"]') as running:
        assert any("waits: queue 'default' is paused" in line for line in running.stderr)
        running.send_signal(signal.SIGTERM)
        assert running.wait() == 128 + signal.SIGTERM
    assert [worker["pid"] for worker in records(project("workers", "ls", "-o", "json"))] == [gone.pid]
    project("queues", "resume", "default")
    ran = project("run", "project.greet", "--arg", 'words=["x"]', "-o", "json")
    assert records(ran)["status"] == "COMPLETED"


def interrupted(project, after):
    """The id of a job whose run is interrupted after it said something, and what it says then."""
    with project.start("run", "project.greet", "--arg", 'words=["x"]') as running:
        submitted = next(line for line in running.stderr if "is submitted." in line)
        assert after in submitted or any(after in line for line in running.stderr)
        running.send_signal(signal.SIGINT)
        said = running.stderr.read()
        assert running.wait() == 130
    assert "Interrupted." in said
    return submitted.split()[1], said


def test_who_interrupts_a_run_is_told_what_becomes_of_the_job(project, aaiclick_postgres):
    async def somebody():
        connection = await connect(aaiclick_postgres)
        await register_worker(connection, hostname=socket.gethostname(), pid=os.getpid())
        await connection.close()

    project("queues", "pause", "default")
    job, said = interrupted(project, after="waits: queue 'default' is paused")  # by now it has a worker of its own
    assert f"Job {job} waits for a worker: aaiclick worker start, or end it: aaiclick jobs cancel {job}\n" in said
    asyncio.run(somebody())
    job, said = interrupted(project, after="is submitted.")
    assert f"Job {job} goes on: aaiclick jobs show {job}, or end it: aaiclick jobs cancel {job}\n" in said
    assert {each["status"] for each in records(project("jobs", "ls", "-o", "json"))} == {"PENDING"}


def test_a_failing_job_is_mended_and_retried(project, tmp_path):
    ran = project("run", "project.careful", "--arg", f"path={tmp_path / 'there'}", "-o", "json")
    assert ran.returncode == 1
    job = json.loads(ran.stdout)
    assert job["status"] == "FAILED"
    (dead,) = records(project("dlq", "ls", "-o", "json"))
    assert "FileNotFoundError" in dead["error"]
    (kind,) = records(project("dlq", "ls", "--group", "-o", "json"))
    assert kind["count"] == 1
    (tmp_path / "there").touch()
    assert "2 tasks" in project("jobs", "retry", job["id"]).stderr
    project("worker", "start", "--drain", "--processes", "1")
    job = records(project("jobs", "show", job["id"], "-o", "json"))
    assert job["status"] == "COMPLETED"


def test_dead_letters_are_redriven(project, tmp_path):
    project("run", "project.careful", "--arg", f"path={tmp_path / 'there'}")
    assert project("dlq", "redrive").returncode == 2
    (tmp_path / "there").touch()
    assert "tasks start over" in project("dlq", "redrive", "--all").stderr
    project("worker", "start", "--drain", "--processes", "1")
    assert records(project("dlq", "ls", "-o", "json")) == []
    assert {job["status"] for job in records(project("jobs", "ls", "-o", "json"))} == {"COMPLETED"}


def test_what_waits_says_why(project):
    project("queues", "pause", "default")
    job = json.loads(project("run", "project.greet", "--arg", 'words=["x"]', "--no-wait", "-o", "json").stdout)
    (task,) = records(project("tasks", "ls", job["id"], "-o", "json"))
    assert "paused" in project("tasks", "why", task["id"]).stdout
    (queue,) = records(project("queues", "ls", "-o", "json"))
    assert queue["ready"] == 1
    assert queue["paused_at"]
    project("queues", "resume", "default")
    assert f"Job {job['id']} is cancelled." in project("jobs", "cancel", job["id"]).stderr
    assert records(project("jobs", "show", job["id"], "-o", "json"))["status"] == "CANCELLED"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["jobs", "show", "1"], 3, "There is no job 1."),
        (["jobs", "retry", "1"], 3, "There is no job 1."),
        (["tasks", "show", "1"], 3, "There is no task 1."),
        (["tasks", "ls", "1"], 3, "There is no job 1."),
        (["tasks", "cancel", "1"], 3, "There is no task 1."),
        (["logs", "1"], 3, "There is no task 1."),
        (["jobs", "show", "x"], 2, "is not a valid integer"),
        (["jobs", "ls", "--status", "WRONG"], 2, "is not one of"),
        (["run", "no_such_module.job"], 2, "cannot be imported"),
        (["run", "project.no_such_job"], 2, "cannot be imported"),
        (["run", "project.greet", "--arg", "words"], 2, "write NAME=VALUE"),
        (["run", "project.greet", "--arg", "wrods=[]"], 2, "It is greet(words: list[str])"),
        (["run", "project"], 2, "Say which function of it"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_bad_input_is_explained(project, no_traceback, arguments, code, said):
    no_traceback(project(*arguments), code, said)
