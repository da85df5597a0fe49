"""The commands with AAICLICK_SERVER set: what they print is what they print beside the database."""

from __future__ import annotations

import json
import os

import pytest
from click.testing import CliRunner

from aaiclick.cli.main import cli
from aaiclick.settings import get_settings


@pytest.fixture
def command(site, monkeypatch):
    """Runs a command remotely as a role, or locally beside the database."""

    def run(*arguments: str, role: str | None = "operator-admin"):
        for name in list(os.environ):
            if name.startswith("AAICLICK_") and name != "AAICLICK_TEST_HOME":
                monkeypatch.delenv(name)
        if role is None:
            monkeypatch.setenv("AAICLICK_DATABASE_URL", site.target.dsn)
            monkeypatch.setenv("AAICLICK_LOG_DIR", str(site.logs))
        else:
            monkeypatch.setenv("AAICLICK_SERVER", site.server.url)
            monkeypatch.setenv("AAICLICK_API_KEY", site.keys[role])
        get_settings.cache_clear()
        return CliRunner().invoke(cli, list(arguments), standalone_mode=False)

    yield run
    get_settings.cache_clear()


@pytest.fixture(scope="module")
def work(site):
    """A job with a log, a dead letter and a paused queue in the operator's organisation."""
    writer = site.as_("operator-writer")
    job = writer.post("/v1/jobs", json={"name": "j", "entrypoint": "m.f", "kwargs": {"x": 1}}).json()["id"]
    task = writer.get("/v1/tasks", params={"job_id": job}).json()["items"][0]["id"]
    (site.logs / f"{task}.log").write_text("=== attempt 1, T ===\none\n=== attempt 2, T ===\ntwo\n")
    [dead] = writer.post("/v1/tasks", json={"items": [{"type": "d"}]}).json()["ids"]
    site.sql(
        "UPDATE tasks SET status = 'DEAD_LETTER', readiness = NULL, completed_at = now(), attempt = 4, failures = 4,"
        " error = 'it broke', error_fingerprint = 'E:1' WHERE id = $1 RETURNING id",
        int(dead),
    )
    writer.post("/v1/queues/odd/pause")
    site.sql("INSERT INTO workers (id, hostname, pid) VALUES (5, 'h', 1) RETURNING id")
    return {"JOB": job, "TASK": task, "DEAD": dead}


SAME = [
    "jobs ls", "jobs ls --status PENDING --limit 1", "jobs show JOB", "tasks ls JOB", "tasks why TASK",
    "dlq ls", "dlq ls --group", "dlq ls --type nothing", "workers ls", "logs TASK", "logs TASK --attempt 2",
]  # fmt: skip


@pytest.mark.parametrize("line", SAME)
def test_a_command_prints_the_same_from_afar(command, work, line: str) -> None:
    arguments = [work.get(word, word) for word in line.split()]
    if arguments[0] != "logs":
        arguments += ["-o", "json"]
    near, far = command(*arguments, role=None), command(*arguments)
    assert near.exception is None, near.exception
    assert far.exception is None, far.exception
    assert far.stdout == near.stdout
    assert far.stdout


def test_a_task_is_shown_from_afar(command, work) -> None:
    shown = {}
    for role in (None, "operator-reader"):
        [shown[role]] = json.loads(command("tasks", "show", work["TASK"], "-o", "json", role=role).stdout)
    near, far = shown.values()
    assert json.loads(near.pop("kwargs")) == json.loads(far.pop("kwargs")) == {"x": 1}
    assert near == far


def test_queues_are_shown_from_afar(command, work) -> None:
    [odd] = [each for each in json.loads(command("queues", "ls", "-o", "json").stdout) if each["queue"] == "odd"]
    assert odd["paused_at"]


def test_deeds_are_done_from_afar(command, site, work) -> None:
    done = [
        ["queues", "resume", "odd"], ["jobs", "pause", work["JOB"]], ["jobs", "resume", work["JOB"]],
        ["dlq", "redrive", work["DEAD"]], ["tasks", "cancel", work["DEAD"]], ["tasks", "clear", work["DEAD"]],
        ["jobs", "cancel", work["JOB"]], ["jobs", "retry", work["JOB"]], ["queues", "pause", "odd"],
    ]  # fmt: skip
    for arguments in done:
        result = command(*arguments)
        assert result.exception is None, (arguments, result.exception)
    actions = {row["action"] for row in site.sql("SELECT action FROM audit_log")}
    assert {"queue.resume", "job.pause", "dead_letters.redrive", "task.clear", "job.cancel", "job.retry"} <= actions


def test_what_needs_the_databases_says_so(command) -> None:
    result = command("key", "ls")
    assert "works on the databases themselves" in str(result.exception)


def test_refusals_read_like_those_of_a_database(command, work) -> None:
    assert "There is no job 1" in str(command("jobs", "show", "1").exception)
    refused = command("jobs", "cancel", work["JOB"], role="operator-reader").exception
    assert "permission 'writer'" in str(refused)
    assert refused.exit_code == 4
