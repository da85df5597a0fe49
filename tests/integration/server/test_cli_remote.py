"""The commands with AAICLICK_SERVER set: what they print is what they print beside the database."""

from __future__ import annotations

import json
from types import SimpleNamespace

import click
import pytest
from pydantic import TypeAdapter

from aaiclick.cli import remote
from aaiclick.server import shapes
from aaiclick.store.words import DEFAULT_ORG_ID


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


@pytest.mark.parametrize("role", [None, "operator-writer"])
def test_one_attempt_is_followed_to_the_end_of_its_task(command, site, monkeypatch, role) -> None:
    writer = site.as_("operator-writer")
    [task] = writer.post("/v1/tasks", json={"items": [{"type": "followed"}]}).json()["ids"]
    log = site.logs / f"{task}.log"
    steps = iter(["=== attempt 1, T ===\none\n=== att", "empt 2, T ===\ntwo\n", "three"])

    def go_on(_seconds: float) -> None:
        """What happens while nothing is read."""
        step = next(steps, None)
        if step is None:
            writer.post(f"/v1/tasks/{task}/cancel").raise_for_status()
        else:
            with log.open("a") as stream:
                stream.write(step)

    monkeypatch.setattr("aaiclick.cli.tasks.time", SimpleNamespace(sleep=go_on))
    followed = command("logs", task, "--follow", "--attempt", "2", role=role)
    assert followed.exception is None, followed.exception
    assert followed.stdout == "=== attempt 2, T ===\ntwo\nthree"


@pytest.mark.parametrize("role", [None, "operator-writer"])
def test_what_has_said_nothing_is_said_to_have(command, site, work, role) -> None:
    [silent] = site.as_("operator-writer").post("/v1/tasks", json={"items": [{"type": "silent"}]}).json()["ids"]
    for words, whose in (([silent], f"Task {silent}"), ([work["TASK"], "--attempt", "9"], "Attempt 9 of task")):
        heard = command("logs", *words, role=role)
        assert (heard.exception, heard.stdout) == (None, "")
        assert heard.stderr.startswith(whose)
        assert "has said nothing" in heard.stderr


def test_a_task_is_shown_from_afar(command, work) -> None:
    shown = {}
    for role in (None, "operator-reader"):
        shown[role] = json.loads(command("tasks", "show", work["TASK"], "-o", "json", role=role).stdout)
    near, far = shown.values()
    assert near == far
    assert (near["kwargs"], near["result"], near["took_seconds"]) == ({"x": 1}, None, None)
    assert [sorted(reason) for reason in near["why"]] == [["code", "words"]]


NAMED = {
    "jobs ls": (shapes.Job, {"took_seconds"}), "tasks ls JOB": (shapes.Task, {"took_seconds"}),
    "tasks why TASK": (shapes.Reason, set()), "dlq ls": (shapes.DeadLetter, set()),
    "dlq ls --group": (shapes.DeadLetterGroup, set()), "workers ls": (shapes.Worker, set()),
    "queues ls": (shapes.Queue, {"org"}), "org ls": (shapes.Org, set()), "key ls": (shapes.KeyOut, set()),
}  # fmt: skip


@pytest.mark.parametrize("line", NAMED)
def test_json_has_the_values_and_names_of_the_api(command, work, line: str) -> None:
    words = [work.get(word, word) for word in line.split()]
    shape, more = NAMED[line]
    for each in json.loads(command(*words, "-o", "json", role=None).stdout):
        assert set(each) <= set(shape.model_fields) | more
        for name in set(each) - more:
            TypeAdapter(shape.model_fields[name].annotation).validate_json(json.dumps(each[name]), strict=True)


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


def test_a_worker_is_sent_home_from_afar_as_beside_the_databases(command, site) -> None:
    site.sql("INSERT INTO workers (id, hostname, pid) VALUES (6, 'h', 1), (7, 'h', 1) RETURNING id")
    for worker, role in (("6", "operator-admin"), ("7", None)):
        result = command("workers", "drain", worker, role=role)
        assert result.exception is None, result.exception
        assert f"Worker {worker} finishes what it runs" in result.stderr
        listed = json.loads(command("workers", "ls", "-o", "json", role=role).stdout)
        assert {each["id"]: each["drain_requested_at"] for each in listed}[worker]
        assert command("workers", "drain", "404", role=role).exception.exit_code == 3
    assert command("workers", "drain", "6", role="admin").exception.exit_code == 4  # it may serve others
    deeds = site.sql("SELECT org_id, target, actor FROM audit_log WHERE action = 'worker.drain' ORDER BY id")
    assert [(row["org_id"], row["target"]) for row in deeds] == [(DEFAULT_ORG_ID, "6"), (DEFAULT_ORG_ID, "7")]
    assert deeds[1]["actor"].startswith("local:")
    site.sql("DELETE FROM workers WHERE id IN (6, 7) RETURNING id")


@pytest.mark.parametrize("role", [None, "operator-writer"])
@pytest.mark.parametrize(
    ("words", "status"), [(["redrive", "--rate", "1000"], "PENDING"), (["redrive"], "PENDING"), (["discard"], "FAILED")]
)
def test_dead_letters_are_handled_until_none_is_left(command, site, monkeypatch, role, words, status) -> None:
    for batch in ("aaiclick.store.revival.AT_ONCE", "aaiclick.cli.dlq.AT_ONCE"):
        monkeypatch.setattr(batch, 2)
    items = [{"type": "handled"}] * 5
    ids = [int(each) for each in site.as_("operator-writer").post("/v1/tasks", json={"items": items}).json()["ids"]]
    site.sql(
        "UPDATE tasks SET status = 'DEAD_LETTER', readiness = NULL, completed_at = now(), attempt = 1,"
        " failures = 1, error_fingerprint = 'H' WHERE id = ANY ($1) RETURNING id",
        ids,
    )
    one = command("dlq", words[0], str(ids[0]), role=role)
    assert one.stderr.startswith("1 tasks")
    rest = command("dlq", *words, "--type", "handled", role=role)
    assert rest.exception is None, rest.exception
    assert "4 tasks" in rest.stderr
    assert ("There may be more" in rest.stderr) == (role is not None and "--rate" in words)
    assert command("dlq", words[0], "--fingerprint", "H", role=role).stderr.startswith("0 tasks")
    assert {row["status"] for row in site.sql("SELECT status::text FROM tasks WHERE id = ANY ($1)", ids)} == {status}
    assert "Name ids, or give --all" in str(command("dlq", words[0], role=role).exception)


@pytest.mark.parametrize("role", [None, "operator-writer"])
@pytest.mark.parametrize("deed", ["redrive", "discard"])
def test_what_is_no_dead_letter_is_named_and_nothing_is_changed(command, site, role, deed: str) -> None:
    writer = site.as_("operator-writer")
    waits, dead = writer.post("/v1/tasks", json={"items": [{"type": "unlike"}] * 2}).json()["ids"]
    site.sql(
        "UPDATE tasks SET status = 'DEAD_LETTER', readiness = NULL, completed_at = now() WHERE id = $1 RETURNING id",
        int(dead),
    )
    refused = command("dlq", deed, dead, waits, "7", role=role).exception
    assert refused.exit_code == 3
    assert refused.what == f"Not among the dead letters: {waits}, 7. Nothing was changed."
    assert writer.get(f"/v1/tasks/{dead}").json()["status"] == "DEAD_LETTER"
    assert command("dlq", deed, dead, "--type", "another", role=role).stderr.startswith("0 tasks")
    assert command("dlq", deed, dead, role=role).stderr.startswith("1 tasks")
    assert command("dlq", deed, dead, role=role).exception.exit_code == 3


@pytest.mark.parametrize(
    "words", [["--type", "t"], ["--fingerprint", "F"], ["--limit", "1"]], ids=lambda words: words[0]
)
def test_groups_of_dead_letters_are_of_all(command, words) -> None:
    assert f"{words[0]} chooses dead letters" in str(command("dlq", "ls", "--group", *words, role=None).exception)


def test_what_needs_the_databases_says_so(command) -> None:
    for line in ("data gc", "data ls --state live", "datasets ls --as ada"):
        assert "needs the databases themselves" in str(command(*line.split()).exception)


def test_who_waits_for_a_worker_is_told_so(command, site, monkeypatch) -> None:
    heard: list[str] = []
    writer = site.as_("operator-writer")

    def hear(words: str) -> None:
        [job] = writer.get("/v1/jobs", params={"limit": 1}).json()["items"]
        [task] = writer.get("/v1/tasks", params={"job_id": job["id"]}).json()["items"]
        why = [each["words"] for each in writer.get(f"/v1/tasks/{task['id']}/why").json()]
        heard.extend((words, f"{task['type']} waits: {'; '.join(why)}"))
        writer.post(f"/v1/jobs/{job['id']}/cancel").raise_for_status()

    site.sql("DELETE FROM workers WHERE id = 5 RETURNING id")
    monkeypatch.setattr(remote, "note", hear)
    monkeypatch.setattr(remote, "LINE_SECONDS", 0.0)
    assert command("run", "not.installed.here", "--name", "alone").return_value == 1
    assert heard[0] == heard[1]
    assert "no worker" in heard[0]


def test_who_interrupts_a_run_is_told_what_becomes_of_the_job(command, site, monkeypatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(remote, "watch", interrupt)
    site.sql("DELETE FROM workers WHERE id = 5 RETURNING id")
    for fate in ("waits for a worker: aaiclick worker start", "goes on: aaiclick jobs show JOB"):
        ran = command("run", "not.installed.here", "--name", "left")
        assert isinstance(ran.exception, click.Abort)
        job = ran.stderr.split()[1]
        assert f"Job {job} {fate.replace('JOB', job)}, or end it: aaiclick jobs cancel {job}\n" in ran.stderr
        assert command("jobs", "cancel", job).exception is None
        site.sql("INSERT INTO workers (id, hostname, pid) VALUES (6, 'h', 1) ON CONFLICT DO NOTHING RETURNING id")
    site.sql("DELETE FROM workers WHERE id = 6 RETURNING id")


def test_refusals_read_like_those_of_a_database(command, work) -> None:
    assert "There is no job 1" in str(command("jobs", "show", "1").exception)
    for role in ("operator-admin", None):
        nothing = command("dag", "versions", "nope", role=role).exception
        assert "There is no DAG 'nope'" in str(nothing)
        assert nothing.exit_code == 3
    refused = command("jobs", "cancel", work["JOB"], role="operator-reader").exception
    assert "permission 'writer'" in str(refused)
    assert refused.exit_code == 4


@pytest.mark.parametrize("role", [None, "operator-admin"])
def test_tasks_are_cancelled_all_of_them_or_none(command, site, role) -> None:
    [task] = site.as_("operator-writer").post("/v1/tasks", json={"items": [{"type": "kept"}]}).json()["ids"]
    refused = command("tasks", "cancel", task, "7", role=role).exception
    assert (refused.exit_code, refused.what) == (3, "There is no task 7.")
    assert refused.remedy.startswith("'aaiclick tasks ls JOB' lists")
    assert site.sql("SELECT status::text FROM tasks WHERE id = $1", int(task))[0]["status"] == "PENDING"
    assert command("tasks", "cancel", task, task, role=role).stderr == f"Task {task} is cancelled.\n"


def test_who_gives_no_key_is_told_how_to(command, site, monkeypatch) -> None:
    monkeypatch.setitem(site.keys, "nobody", "")
    assert "AAICLICK_API_KEY" in command("jobs", "ls", role="nobody").exception.remedy
