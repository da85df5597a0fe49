"""Job commands: run, show, logs, retry, redrive, pause."""

import asyncio
import json
import os
import signal
import socket
import subprocess
from datetime import datetime

import pytest

from aaiclick.store.engine.workers import register_worker
from aaiclick.store.postgres_connections import connect

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


def test_run_waits_for_the_job(project):
    ran = project("run", "project.greet", "--arg", 'words=["hello", "world"]', "-o", "json")
    job = records(ran)
    assert (job["status"], job["total_tasks"], job["open_tasks"]) == ("COMPLETED", 2, 0)
    assert f"Job {job['id']} (greet) submitted." in ran.stderr
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
    results = [{"name": "say", "value": "hello"}, {"name": "say", "value": "world"}]
    assert job == {name: value for name, value in shown.items() if name not in ("groups", "children")} | {
        "results": results
    }
    [group] = shown["groups"]
    assert (group["group"], group["total"], group["completed"], group["rows"]) == ("", 2, 2, None)


def test_run_ignores_dead_workers_and_explains_waiting(project, aaiclick_postgres):
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


def run_interrupted(project, after):
    """Interrupt `aaiclick run` after a message; return the job's id and the remaining standard error."""
    with project.start("run", "project.greet", "--arg", 'words=["x"]') as running:
        submitted = next(line for line in running.stderr if "submitted." in line)
        assert after in submitted or any(after in line for line in running.stderr)
        running.send_signal(signal.SIGINT)
        stderr = running.stderr.read()
        assert running.wait() == 130
    assert "Interrupted." in stderr
    return submitted.split()[1], stderr


def test_interrupted_run_reports_that_the_job_continues(project, aaiclick_postgres):
    async def add_worker():
        connection = await connect(aaiclick_postgres)
        await register_worker(connection, hostname=socket.gethostname(), pid=os.getpid())
        await connection.close()

    project("queues", "pause", "default")
    job, stderr = run_interrupted(
        project, after="waits: queue 'default' is paused"
    )  # by now the command runs its own worker
    assert (
        f"Job {job} waits for a worker (aaiclick worker start). Cancel it with: aaiclick jobs cancel {job}\n" in stderr
    )
    asyncio.run(add_worker())
    job, stderr = run_interrupted(project, after="submitted.")
    assert f"Job {job} continues (aaiclick jobs show {job}). Cancel it with: aaiclick jobs cancel {job}\n" in stderr
    assert {job_record["status"] for job_record in records(project("jobs", "ls", "-o", "json"))} == {"PENDING"}


def test_failed_job_is_retried(project, tmp_path):
    ran = project("run", "project.careful", "--arg", f"path={tmp_path / 'there'}", "-o", "json")
    assert ran.returncode == 1
    job = json.loads(ran.stdout)
    assert job["status"] == "FAILED"
    (dead,) = records(project("dlq", "ls", "-o", "json"))
    assert "FileNotFoundError" in dead["error"]
    (error_group,) = records(project("dlq", "ls", "--group", "-o", "json"))
    assert error_group["count"] == 1
    (tmp_path / "there").touch()
    assert "2 tasks" in project("jobs", "retry", job["id"]).stderr
    project("worker", "start", "--drain", "--processes", "1")
    job = records(project("jobs", "show", job["id"], "-o", "json"))
    assert job["status"] == "COMPLETED"
    assert project("logs", dead["id"]).stdout.endswith("=== attempt 2 has printed nothing ===\n")


def test_id_of_another_item_is_explained(project):
    submitted = project("run", "project.greet", "--arg", 'words=["x"]', "--no-wait", "-o", "json")
    assert "It waits for a worker. Start one in this directory: aaiclick worker start" in submitted.stderr
    job = records(submitted)
    (task,) = records(project("tasks", "ls", job["id"], "-o", "json"))
    for command in ("show", "cancel", "retry"):
        shown = project("jobs", command, task["id"]).stderr
        assert f"{task['id']} is a task of job {job['id']}: aaiclick tasks show" in shown
    for command in ("show", "why", "cancel"):
        assert f"{job['id']} is a job: aaiclick jobs show" in project("tasks", command, job["id"]).stderr
    assert project("jobs", "show", "381405937744023552").stderr.endswith("'aaiclick jobs ls' lists jobs.\n")


def test_file_with_the_name_of_a_standard_module_is_reported(project, tmp_path, no_traceback):
    (tmp_path / "random.py").write_text(TASKS)
    no_traceback(project("run", "random.greet"), 2, "Rename the file, for example to my_random.py.")


def test_dead_letters_are_redriven(project, tmp_path):
    project("run", "project.careful", "--arg", f"path={tmp_path / 'there'}")
    assert project("dlq", "redrive").returncode == 2
    (tmp_path / "there").touch()
    assert "tasks redriven" in project("dlq", "redrive", "--all").stderr
    project("worker", "start", "--drain", "--processes", "1")
    assert records(project("dlq", "ls", "-o", "json")) == []
    assert {job["status"] for job in records(project("jobs", "ls", "-o", "json"))} == {"COMPLETED"}


def test_waiting_task_is_explained(project):
    project("queues", "pause", "default")
    job = json.loads(project("run", "project.greet", "--arg", 'words=["x"]', "--no-wait", "-o", "json").stdout)
    (task,) = records(project("tasks", "ls", job["id"], "-o", "json"))
    assert "paused" in project("tasks", "why", task["id"]).stdout
    (queue,) = records(project("queues", "ls", "-o", "json"))
    assert queue["ready"] == 1
    assert queue["paused_at"]
    project("queues", "resume", "default")
    assert f"Job {job['id']} cancelled." in project("jobs", "cancel", job["id"]).stderr
    assert records(project("jobs", "show", job["id"], "-o", "json"))["status"] == "CANCELLED"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["jobs", "show", "1"], 3, "There is no job 1."),
        (["jobs", "retry", "1"], 3, "There is no job 1."),
        (["tasks", "show", "1"], 3, "There is no task 1."),
        (["tasks", "ls", "1"], 3, "There is no job 1."),
        (["tasks", "cancel", "1"], 3, "There is no task 1."),
        (["logs", "1"], 3, "There is no task 1."),
        (["jobs", "show", "x"], 2, "is not a valid id: ids are numbers."),
        (["jobs", "ls", "--status", "WRONG"], 2, "is not one of"),
        (["run", "no_such_module.job"], 2, "cannot be imported"),
        (["run", "project.no_such_job"], 2, "Its jobs and tasks: say, fragile, greet, careful"),
        (["run", "project.greet", "--arg", "words"], 2, "write NAME=VALUE"),
        (["run", "project.greet", "--arg", "wrods=[]"], 2, "Its signature is greet(words: list[str])"),
        (["run", "project"], 2, "Add the function"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_invalid_input_is_reported(project, no_traceback, arguments, code, message):
    no_traceback(project(*arguments), code, message)
