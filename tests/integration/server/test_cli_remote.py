"""Commands with AAICLICK_SERVER set print the same as with access to the database."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Annotated

import click
import pytest
from pydantic import TypeAdapter

from aaiclick.api.dead_letters import DeadLetter, DeadLetterGroup
from aaiclick.api.jobs import Job
from aaiclick.api.tasks import Task, WaitReason
from aaiclick.api.tenancy import ApiKey, Org
from aaiclick.api.workers import Queue, Worker
from aaiclick.cli import remote
from aaiclick.store.enums import DEFAULT_ORG_ID
from tests.integration.server.browser import Browser


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


SAME_OUTPUT = [
    "jobs ls", "jobs ls --status PENDING --limit 1", "jobs show JOB", "tasks ls JOB", "tasks why TASK",
    "dlq ls", "dlq ls --group", "dlq ls --type nothing", "workers ls", "logs TASK", "logs TASK --attempt 2",
]  # fmt: skip


@pytest.mark.parametrize("line", SAME_OUTPUT)
def test_remote_command_prints_the_same_as_the_local_one(command, work, line: str) -> None:
    arguments = [work.get(word, word) for word in line.split()]
    if arguments[0] != "logs":
        arguments += ["-o", "json"]
    local, remote_result = command(*arguments, role=None), command(*arguments)
    assert local.exception is None, local.exception
    assert remote_result.exception is None, remote_result.exception
    assert remote_result.stdout == local.stdout
    assert remote_result.stdout


@pytest.mark.parametrize("role", [None, "operator-writer"])
def test_log_of_one_attempt_is_followed_until_the_task_ends(command, site, monkeypatch, role) -> None:
    writer = site.as_("operator-writer")
    [task] = writer.post("/v1/tasks", json={"items": [{"type": "followed"}]}).json()["ids"]
    log = site.logs / f"{task}.log"
    steps = iter(["=== attempt 1, T ===\none\n=== att", "empt 2, T ===\ntwo\n", "three"])

    def write_next_step(_seconds: float) -> None:
        """Replaces the sleep between two reads of the log."""
        step = next(steps, None)
        if step is None:
            writer.post(f"/v1/tasks/{task}/cancel").raise_for_status()
        else:
            with log.open("a") as stream:
                stream.write(step)

    monkeypatch.setattr("aaiclick.cli.tasks.time", SimpleNamespace(sleep=write_next_step))
    followed = command("logs", task, "--follow", "--attempt", "2", role=role)
    assert followed.exception is None, followed.exception
    assert followed.stdout == "=== attempt 2, T ===\ntwo\nthree"


@pytest.mark.parametrize("role", [None, "operator-writer"])
def test_empty_log_is_reported(command, site, work, role) -> None:
    [silent] = site.as_("operator-writer").post("/v1/tasks", json={"items": [{"type": "silent"}]}).json()["ids"]
    for arguments, subject in (([silent], f"Task {silent}"), ([work["TASK"], "--attempt", "9"], "Attempt 9 of task")):
        result = command("logs", *arguments, role=role)
        assert (result.exception, result.stdout) == (None, "")
        assert result.stderr.startswith(subject)
        assert "has printed nothing, or its log is on another machine" in result.stderr


def test_remote_task_show(command, work) -> None:
    shown = {}
    for role in (None, "operator-reader"):
        shown[role] = json.loads(command("tasks", "show", work["TASK"], "-o", "json", role=role).stdout)
    local, remote_result = shown.values()
    assert local == remote_result
    assert (local["kwargs"], local["result"], local["took_seconds"]) == ({"x": 1}, None, None)
    assert [sorted(reason) for reason in local["why"]] == [["code", "text"]]


SCHEMAS = {
    "jobs ls": (Job, {"took_seconds"}), "tasks ls JOB": (Task, {"took_seconds"}),
    "tasks why TASK": (WaitReason, set()), "dlq ls": (DeadLetter, set()),
    "dlq ls --group": (DeadLetterGroup, set()), "workers ls": (Worker, set()),
    "queues ls": (Queue, {"org"}), "org ls": (Org, set()), "key ls": (ApiKey, set()),
}  # fmt: skip


@pytest.mark.parametrize("line", SCHEMAS)
def test_json_output_has_the_fields_of_the_api(command, work, line: str) -> None:
    arguments = [work.get(word, word) for word in line.split()]
    schema, extra_fields = SCHEMAS[line]
    for item in json.loads(command(*arguments, "-o", "json", role=None).stdout):
        assert set(item) <= set(schema.model_fields) | extra_fields
        for name in set(item) - extra_fields:
            field = schema.model_fields[name]
            TypeAdapter(Annotated[field.annotation, field]).validate_json(json.dumps(item[name]), strict=True)


def test_remote_commands_change_the_server(command, site, work) -> None:
    commands = [
        ["queues", "resume", "odd"], ["jobs", "pause", work["JOB"]], ["jobs", "resume", work["JOB"]],
        ["dlq", "redrive", work["DEAD"]], ["tasks", "cancel", work["DEAD"]], ["tasks", "clear", work["DEAD"]],
        ["jobs", "cancel", work["JOB"]], ["jobs", "retry", work["JOB"]], ["queues", "pause", "odd"],
    ]  # fmt: skip
    for arguments in commands:
        result = command(*arguments)
        assert result.exception is None, (arguments, result.exception)
    actions = {row["action"] for row in site.sql("SELECT action FROM audit_log")}
    assert {"queue.resume", "job.pause", "dead_letters.redrive", "task.clear", "job.cancel", "job.retry"} <= actions


def test_worker_is_drained_remotely_and_locally(command, site) -> None:
    site.sql("INSERT INTO workers (id, hostname, pid) VALUES (6, 'h', 1), (7, 'h', 1) RETURNING id")
    for worker, role in (("6", "operator-admin"), ("7", None)):
        result = command("workers", "drain", worker, role=role)
        assert result.exception is None, result.exception
        assert f"Worker {worker} is draining" in result.stderr
        listed = json.loads(command("workers", "ls", "-o", "json", role=role).stdout)
        assert {item["id"]: item["drain_requested_at"] for item in listed}[worker]
        assert command("workers", "drain", "404", role=role).exception.exit_code == 3
    assert command("workers", "drain", "6", role="admin").exception.exit_code == 4  # it may serve others
    entries = site.sql("SELECT org_id, target, actor FROM audit_log WHERE action = 'worker.drain' ORDER BY id")
    assert [(row["org_id"], row["target"]) for row in entries] == [(DEFAULT_ORG_ID, "6"), (DEFAULT_ORG_ID, "7")]
    assert entries[1]["actor"].startswith("local:")
    site.sql("DELETE FROM workers WHERE id IN (6, 7) RETURNING id")


@pytest.mark.parametrize("role", [None, "operator-writer"])
@pytest.mark.parametrize(
    ("arguments", "status"),
    [(["redrive", "--rate", "1000"], "PENDING"), (["redrive"], "PENDING"), (["discard"], "FAILED")],
)
def test_dead_letter_commands_process_all_pages(command, site, monkeypatch, role, arguments, status) -> None:
    for batch in ("aaiclick.store.engine.retry_and_redrive.BATCH_SIZE", "aaiclick.cli.dlq.BATCH_SIZE"):
        monkeypatch.setattr(batch, 2)
    items = [{"type": "handled"}] * 5
    ids = [
        int(task_id) for task_id in site.as_("operator-writer").post("/v1/tasks", json={"items": items}).json()["ids"]
    ]
    site.sql(
        "UPDATE tasks SET status = 'DEAD_LETTER', readiness = NULL, completed_at = now(), attempt = 1,"
        " failures = 1, error_fingerprint = 'H' WHERE id = ANY ($1) RETURNING id",
        ids,
    )
    one = command("dlq", arguments[0], str(ids[0]), role=role)
    assert one.stderr.startswith("1 tasks")
    rest = command("dlq", *arguments, "--type", "handled", role=role)
    assert rest.exception is None, rest.exception
    assert "4 tasks" in rest.stderr
    assert command("dlq", arguments[0], "--fingerprint", "H", role=role).stderr.startswith("0 tasks")
    assert {row["status"] for row in site.sql("SELECT status::text FROM tasks WHERE id = ANY ($1)", ids)} == {status}
    assert "Give ids, or --all" in str(command("dlq", arguments[0], role=role).exception)


@pytest.mark.parametrize("role", [None, "operator-writer"])
@pytest.mark.parametrize("action", ["redrive", "discard"])
def test_id_that_is_no_dead_letter_is_reported_and_nothing_changes(command, site, role, action: str) -> None:
    writer = site.as_("operator-writer")
    waits, dead = writer.post("/v1/tasks", json={"items": [{"type": "unlike"}] * 2}).json()["ids"]
    site.sql(
        "UPDATE tasks SET status = 'DEAD_LETTER', readiness = NULL, completed_at = now() WHERE id = $1 RETURNING id",
        int(dead),
    )
    refused = command("dlq", action, dead, waits, "7", role=role).exception
    assert refused.exit_code == 3
    assert refused.what == f"Not dead letters: {waits}, 7. Nothing was changed."
    assert writer.get(f"/v1/tasks/{dead}").json()["status"] == "DEAD_LETTER"
    assert command("dlq", action, dead, "--type", "another", role=role).stderr.startswith("0 tasks")
    assert command("dlq", action, dead, role=role).stderr.startswith("1 tasks")
    assert command("dlq", action, dead, role=role).exception.exit_code == 3


@pytest.mark.parametrize(
    "arguments", [["--type", "t"], ["--fingerprint", "F"], ["--limit", "1"]], ids=lambda arguments: arguments[0]
)
def test_dead_letter_groups_cover_all_pages(command, arguments) -> None:
    assert f"{arguments[0]} cannot be combined with --group" in str(
        command("dlq", "ls", "--group", *arguments, role=None).exception
    )


def test_commands_that_need_the_databases_are_refused_remotely(command) -> None:
    for line in ("data gc", "datasets ls --as ada"):
        assert "needs direct access to the databases" in str(command(*line.split()).exception)


def test_run_reports_that_no_worker_is_active(command, site, monkeypatch) -> None:
    messages: list[str] = []
    writer = site.as_("operator-writer")

    def record_message(message: str) -> None:
        [job] = writer.get("/v1/jobs", params={"limit": 1}).json()["items"]
        [task] = writer.get("/v1/tasks", params={"job_id": job["id"]}).json()["items"]
        why = [reason["text"] for reason in writer.get(f"/v1/tasks/{task['id']}/why").json()]
        messages.extend((message, f"{task['type']} waits: {'; '.join(why)}"))
        writer.post(f"/v1/jobs/{job['id']}/cancel").raise_for_status()

    site.sql("DELETE FROM workers WHERE id = 5 RETURNING id")
    monkeypatch.setattr(remote, "print_message", record_message)
    monkeypatch.setattr(remote, "MESSAGE_SECONDS", 0.0)
    assert command("run", "not.installed.here", "--name", "alone").return_value == 1
    assert messages[0] == messages[1]
    assert "no worker" in messages[0]


@pytest.mark.parametrize("role", [None, "operator-writer"])
def test_item_is_enqueued_with_its_options(command, site, role) -> None:
    def enqueue(*arguments: str) -> int:
        result = command("tasks", "enqueue", f"mail {role}", *arguments, "-o", "json", role=role)
        assert result.exception is None, result.output
        return int(json.loads(result.stdout)["id"])

    first = enqueue("--json", '{"to": "ada"}', "--arg", "n=5", "--queue", "slow", "--priority", "7", "--key", "k",
                    "--rate", "100/m", "--rate-key", "api", "--run-at", "2099-01-01T00:00:00Z")  # fmt: skip
    assert enqueue("--key", "k") == first
    [row] = site.sql("SELECT * FROM tasks WHERE id = $1", first)
    assert json.loads(row["kwargs"]) == {"to": "ada", "n": 5}
    assert (row["queue"], row["priority"], row["rate"], row["rate_key"]) == ("slow", 7, "100/60", "api")
    assert (row["idempotency_key"], row["available_at"].year, row["job_id"]) == ("k", 2099, None)
    second = enqueue("--debounce", "30s", "--debounce-key", "u1", "--debounce-merge", "--arg", "a=1")
    assert enqueue("--debounce", "30s", "--debounce-key", "u1", "--debounce-merge", "--arg", "b=x") == second
    [row] = site.sql("SELECT kwargs, readiness::text FROM tasks WHERE id = $1", second)
    assert (json.loads(row["kwargs"]), row["readiness"]) == ({"a": 1, "b": "x"}, "TIME")
    browser = Browser(site, "operator-reader")
    page = browser.client.get(f"/tasks/{first}").text
    assert "<dt>Rate</dt><dd>100 per 1 min" in page
    assert '<dt>Idempotency key</dt><dd class="mono wrap">k</dd>' in page
    page = browser.client.get(f"/tasks/{second}").text
    assert '<dt>Debounce key</dt><dd class="mono wrap">u1</dd>' in page
    wrong = [("--json", "5"), ("--json", "{"), ("--arg", "x"), ("--rate", "fast"), ("--run-at", "soon"),
             ("--debounce", "1s", "--key", "k")]  # fmt: skip
    for arguments in wrong:
        assert command("tasks", "enqueue", "t", *arguments, role=role).exception is not None, arguments
    site.sql("DELETE FROM tasks WHERE id = ANY ($1) RETURNING id", [first, second])


OPTIONS_JOB = """
from aaiclick.orchestration import job, task

@task
def work(number: int) -> int:
    return number

@job(concurrency=2, when_busy="keep_newest", deadline="2h", timeout_seconds=50, pin_version="v3", tags={"team": "x"})
def limited(number: int) -> None:
    work(number)
"""


def test_remote_run_sends_all_options_of_the_job(command, site, monkeypatch, tmp_path) -> None:
    (tmp_path / "options_job.py").write_text(OPTIONS_JOB)
    monkeypatch.syspath_prepend(tmp_path)
    ran = command("run", "options_job.limited", "--number", "5", "--no-wait", "-o", "json")
    assert ran.exception is None, ran.output
    job_id = int(json.loads(ran.stdout)["id"])
    [row] = site.sql("SELECT j.*, t.queue FROM jobs j JOIN tasks t ON t.job_id = j.id WHERE j.id = $1", job_id)
    assert json.loads(row["policy"]) == {
        "concurrency": 2, "when_busy": "keep_newest", "deadline_seconds": 7200.0, "pin_version": "v3",
    }  # fmt: skip
    assert (row["timeout_seconds"], row["queue"]) == (50.0, "runtime:version:v3:default")
    assert json.loads(row["trigger"]) == {
        "kind": "call", "entrypoint": "options_job.limited", "arguments": {"number": 5},
    }  # fmt: skip
    assert (row["due_at"] - row["created_at"]).total_seconds() == 7200
    assert command("jobs", "cancel", str(job_id)).exception is None


def test_interrupted_run_reports_that_the_job_continues(command, site, monkeypatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(remote, "watch_job", interrupt)
    site.sql("DELETE FROM workers WHERE id = 5 RETURNING id")
    for outcome in ("waits for a worker (aaiclick worker start)", "continues (aaiclick jobs show JOB)"):
        ran = command("run", "not.installed.here", "--name", "left")
        assert isinstance(ran.exception, click.Abort)
        job = ran.stderr.split()[1]
        assert f"Job {job} {outcome.replace('JOB', job)}. Cancel it with: aaiclick jobs cancel {job}\n" in ran.stderr
        assert command("jobs", "cancel", job).exception is None
        site.sql("INSERT INTO workers (id, hostname, pid) VALUES (6, 'h', 1) ON CONFLICT DO NOTHING RETURNING id")
    site.sql("DELETE FROM workers WHERE id = 6 RETURNING id")


def test_remote_errors_read_like_local_ones(command, work) -> None:
    assert "There is no job 1" in str(command("jobs", "show", "1").exception)
    for role in ("operator-admin", None):
        nothing = command("dag", "versions", "nope", role=role).exception
        assert "There is no DAG 'nope'" in str(nothing)
        assert nothing.exit_code == 3
    refused = command("jobs", "cancel", work["JOB"], role="operator-reader").exception
    assert "permission 'writer'" in str(refused)
    assert refused.exit_code == 4


@pytest.mark.parametrize("role", [None, "operator-admin"])
def test_tasks_are_cancelled_all_or_none(command, site, role) -> None:
    [task] = site.as_("operator-writer").post("/v1/tasks", json={"items": [{"type": "kept"}]}).json()["ids"]
    refused = command("tasks", "cancel", task, "7", role=role).exception
    assert (refused.exit_code, refused.what) == (3, "There is no task 7.")
    assert refused.remedy.startswith("'aaiclick tasks ls JOB' lists")
    assert site.sql("SELECT status::text FROM tasks WHERE id = $1", int(task))[0]["status"] == "PENDING"
    assert command("tasks", "cancel", task, task, role=role).stderr == f"Task {task} cancelled.\n"


def test_missing_key_is_reported_with_a_remedy(command, site, monkeypatch) -> None:
    monkeypatch.setitem(site.keys, "nobody", "")
    assert "AAICLICK_API_KEY" in command("jobs", "ls", role="nobody").exception.remedy
