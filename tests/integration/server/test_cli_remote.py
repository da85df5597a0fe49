"""The commands with AAICLICK_SERVER set: what they print is what they print beside the database."""

from __future__ import annotations

import asyncio
import json
import math
import os
import shlex
import signal
import subprocess
import sys
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner, Result

from aaiclick.cli import remote
from aaiclick.cli.main import cli
from aaiclick.client import AsyncClient
from aaiclick.data import DataContext, create_object_from_value, export
from aaiclick.data.client import connect
from aaiclick.data.errors import DataError
from aaiclick.data.formats import FORMATS
from aaiclick.errors import UnreachableError
from aaiclick.settings import get_settings
from aaiclick.store.words import DEFAULT_ORG_ID
from aaiclick.targets import parse_clickhouse_url
from tests.hatchery import HATCHERY


@pytest.fixture
def command(site, monkeypatch):
    """Runs a command remotely as a role, or locally beside the database."""

    def run(*arguments: str, role: str | None = "operator-admin"):
        for name in list(os.environ):
            if name.startswith("AAICLICK_") and name != "AAICLICK_TEST_HOME":
                monkeypatch.delenv(name)
        if role is None:
            monkeypatch.setenv("AAICLICK_DATABASE_URL", site.target.dsn)
            monkeypatch.setenv("AAICLICK_CLICKHOUSE_URL", site.environment["AAICLICK_CLICKHOUSE_URL"])
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


def test_a_worker_is_sent_home_from_afar_as_beside_the_databases(command, site) -> None:
    site.sql("INSERT INTO workers (id, hostname, pid) VALUES (6, 'h', 1), (7, 'h', 1) RETURNING id")
    for worker, role in (("6", "operator-admin"), ("7", None)):
        result = command("workers", "drain", worker, role=role)
        assert result.exception is None, result.exception
        assert f"Worker {worker} finishes what it runs" in result.stderr
        listed = json.loads(command("workers", "ls", "-o", "json", role=role).stdout)
        assert {each["id"]: each["drains"] for each in listed}[worker] == "yes"
        assert command("workers", "drain", "404", role=role).exception.exit_code == 3
    assert command("workers", "drain", "6", role="admin").exception.exit_code == 4  # it may serve others
    deeds = site.sql("SELECT org_id, target, actor FROM audit_log WHERE action = 'worker.drain' ORDER BY id")
    assert [(row["org_id"], row["target"]) for row in deeds] == [(DEFAULT_ORG_ID, "6"), (DEFAULT_ORG_ID, "7")]
    assert deeds[1]["actor"].startswith("local:")
    site.sql("DELETE FROM workers WHERE id IN (6, 7) RETURNING id")


@pytest.mark.parametrize("role", ["operator-admin", None])
def test_queues_and_organisations_are_given_limits_and_lose_them(command, site, role: str | None) -> None:
    """What is left out is lifted; the name of an organisation stays."""

    def told(*line: str):
        result = command(*line, role=role)
        assert result.exception is None, (line, result.exception)
        return json.loads(result.stdout) if "json" in line else result.stderr

    slug = f"limited-{role or 'near'}"
    told("org", "create", slug, "--name", "Limited", "--max-running", "9", "--rate", "5", "--burst", "50")
    changed = told("org", "set", slug, "--weight", "4", "--rate", "2", "-o", "json")
    assert [changed[each] for each in ("name", "weight", "max_running", "rate", "burst")] == ["Limited", 4, None, 2, 2]
    assert told("org", "set", slug, "--name", "Free", "-o", "json")["name"] == "Free"
    assert "max_running 3" in told("queues", "set", "narrow", "--weight", "2", "--max-running", "3", "--rate", "0.5")
    assert _narrow(site) == (2, 3, 0.5, 1)
    told("queues", "set", "narrow")
    assert _narrow(site) == (1, None, None, None)
    assert command("org", "set", "nowhere", role=role).exception.exit_code == 3
    assert "--burst goes with --rate" in str(command("queues", "set", "narrow", "--burst", "2", role=role).exception)
    done = {row["action"] for row in site.sql("SELECT action FROM audit_log WHERE actor LIKE $1", "local:%")}
    assert role is not None or {"org.change", "queue.limit"} <= done
    assert command("queues", "set", "narrow", role="operator-reader").exception.exit_code == 4


def _narrow(site) -> tuple:
    [row] = site.sql("SELECT weight, max_running, rate_per_second, rate_burst FROM queues WHERE name = 'narrow'")
    return tuple(row)


@pytest.mark.parametrize("role", ["admin", None])
def test_queues_and_types_of_the_organisation_that_is_named(command, site, role: str | None) -> None:
    org, name = site.sql("SELECT slug FROM orgs WHERE id = $1", site.org)[0]["slug"], f"of-{role or 'near'}"

    def told(*line: str, by: str | None = role):
        result = command(*line, "--org", org, role=by)
        assert result.exception is None, (line, result.exception)
        return json.loads(result.stdout) if "json" in line else None

    def paused(kind: str) -> list[bool]:
        listed = told(f"{kind}s", "ls", "-o", "json")
        assert {each["org"] for each in listed} <= {org}
        return [each["paused_at"] is not None for each in listed if each[kind] == name]

    before = len(site.sql("SELECT 1 FROM audit_log"))
    told("types", "retry", name, "--base-seconds", "7")
    told("queues", "set", name, "--weight", "2")
    for kind in ("queue", "type"):
        told(f"{kind}s", "pause", name)
        assert paused(kind) == [True]
        told(f"{kind}s", "resume", name)
        assert paused(kind) == [False]
    deeds = site.sql("SELECT org_id, action, target FROM audit_log ORDER BY id OFFSET $1", before)
    assert {(row["org_id"], row["target"]) for row in deeds} == {(site.org, name)}
    assert [row["action"] for row in deeds] == [
        "type.retry", "queue.limit", "queue.pause", "queue.resume", "type.pause", "type.resume",
    ]  # fmt: skip
    for line in ("queues ls", "queues pause x", "types ls", "types pause x"):
        refused = command(*line.split(), "--org", "nowhere", role=role).exception
        assert refused.exit_code == 3, line
    assert "not a key of" in str(command("types", "ls", "--org", org).exception)
    assert command("queues", "ls", "--org", "default", role="admin").exception.exit_code == 3  # for all it may know
    everything = {each["org"] for each in json.loads(command("types", "ls", "-o", "json", role=None).stdout)}
    assert org in everything


def test_what_is_done_beside_the_databases_is_recorded_as_over_http(command, site) -> None:
    """The same deeds of the same targets, with the same details, by another actor."""

    def done(role: str | None) -> list[tuple]:
        before = len(site.sql("SELECT 1 FROM audit_log"))
        job = site.as_("operator-writer").post("/v1/jobs", json={"name": "j", "entrypoint": "m.f"}).json()["id"]
        slug = f"recorded-{role or 'near'}"
        assert command("org", "create", slug, role=role).exception is None
        user = json.loads(command("user", "create", slug, "--role", "writer", "-o", "json", role=role).stdout)["id"]
        lines = [f"org pause {slug}", f"org resume {slug}", f"user rm {user}"]
        for line in (*lines, *(f"jobs {deed} {job}" for deed in ("pause", "resume", "cancel", "retry", "release"))):
            assert command(*line.split(), role=role).exception is None, line
        [made] = site.sql("SELECT id::text FROM orgs WHERE slug = $1", slug)
        words = {job: "JOB", user: "USER", made["id"]: "ORG"}
        deeds = site.sql(
            "SELECT org_id, actor, action, target, detail::text FROM audit_log ORDER BY id OFFSET $1", before
        )
        ours = [row for row in deeds if row["action"] != "job.create"]
        assert {row["actor"].startswith("local:") for row in ours} == {role is None}
        return [
            (row["org_id"], row["action"], words[row["target"]], row["detail"].replace(slug, "SLUG")) for row in ours
        ]

    near, far = done(None), done("operator-admin")
    assert near == far
    assert len(near) == 10
    for deed in ("cancel", "release", "pause", "resume", "retry"):
        assert command("jobs", deed, "404", role=None).exception.exit_code == 3, deed


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


STOCK = """
name: stock
jobs:
  - {name: count, activation: source, operator: python, source: {kind: manual}, outputs: [counted],
     config: {function: "shop:count"}}
publish: [{output: counted, name: stock}]
"""


@pytest.fixture(scope="module")
def stock(site) -> str:
    """A dataset, and a role 'clerks' beside it."""
    admin = site.as_("operator-admin")
    assert admin.post("/v1/dags/deploy", json={"text": STOCK}).json()["serves"]
    admin.post("/v1/roles", json={"slug": "clerks", "name": "Clerks"}).raise_for_status()
    return "stock"


def _readers(site) -> list[str]:
    [row] = site.sql("SELECT read_roles FROM datasets WHERE name = 'stock'")
    return row["read_roles"]


@pytest.mark.parametrize("role", ["operator-admin", None])
def test_a_dataset_is_not_given_to_a_role_that_is_not_there(command, site, stock, role: str | None) -> None:
    """A misspelt one would shut out everybody."""
    assert command("datasets", "readers", stock, "clerks", role=role).exception is None
    for roles, words in ((["clerks", "clreks"], "no role 'clreks'."), (["b", "A b"], "no role 'A b' and no role 'b'.")):
        refused = command("datasets", "readers", stock, *roles, role=role).exception
        assert (refused.exit_code, refused.what) == (3, f"There is {words}")
    assert _readers(site) == ["clerks"]
    assert command("datasets", "readers", "nosuch", "clerks", role=role).exception.exit_code == 3


@pytest.mark.parametrize("role", ["operator-admin", None])
def test_a_query_of_a_dataset_that_is_not_there_ends_like_a_look_at_it(command, role: str | None) -> None:
    for words in (["show", "nosuch"], ["query", "SELECT * FROM nosuch"]):
        refused = command("datasets", *words, role=role).exception
        assert (refused.exit_code, refused.what) == (3, "There is no dataset 'nosuch'.")
    assert command("datasets", "query", "DROP TABLE nosuch", role=role).exception.exit_code == 2


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


CODE = """
from aaiclick.orchestration import job, task

@task
def one(n: int) -> int: return n + 1

@task(retries=0)
def broken(): raise ValueError("no luck")

@job
def both(n: int):
    return one(one(n))

@job
def pair(n: int):
    one(n), one(n + 1)

def fetch(event): return [{"id": n, "amount": 10 * n} for n in range(6)]
"""
DAG = """
name: far
jobs:
  - {name: fetch, activation: source, operator: python, source: {kind: manual}, outputs: [raw],
     config: {function: "far_tasks:fetch"}}
  - {name: nightly, activation: source, operator: python, outputs: [night], source: {kind: cron, schedule: "0 6 * * *"},
     config: {function: "far_tasks:fetch"}}
  - {name: sums, activation: reactive, operator: sql, outputs: [total],
     config: {query: "SELECT sum(amount) AS total FROM raw"}}
publish: [{output: total, name: far_total}]
"""


@pytest.fixture
def place(site, tmp_path, monkeypatch):
    """A directory with code in it, where a worker runs that knows the server and no database."""
    (tmp_path / "far_tasks.py").write_text(CODE)
    (tmp_path / "far.yaml").write_text(DAG)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    start = ["worker", "start", "--processes", "1", "--grace-seconds", "0.5"]
    bare = {name: value for name, value in site.environment.items() if not name.startswith("AAICLICK_")}
    afar = {"AAICLICK_SERVER": site.server.url, "AAICLICK_API_KEY": site.keys["operator-worker"]}
    afar["AAICLICK_LOG_DIR"] = str(tmp_path / "logs")
    worker = HATCHERY.start(start, bare | afar, tmp_path, stderr=subprocess.DEVNULL)
    yield tmp_path
    worker.send_signal(signal.SIGTERM)
    worker.wait(60)


@contextmanager
def place_unknown():
    """As where the code is not: it is sent by its name."""
    path, code = list(sys.path), sys.modules.pop("far_tasks", None)
    sys.modules["far_tasks"] = None  # an ImportError for whoever asks
    try:
        yield
    finally:
        sys.path[:] = path
        del sys.modules["far_tasks"]
        if code is not None:
            sys.modules["far_tasks"] = code


def test_jobs_dags_and_datasets_from_submission_to_rows(command, place) -> None:
    def far(line: str, role: str | None = "operator-admin"):
        result = command(*shlex.split(line), "-o", "json", role=role)
        assert result.exception is None, (line, result.exception, result.output)
        return json.loads(result.stdout)

    ran = far("run far_tasks.both --arg n=1")
    assert (ran["status"], ran["total_tasks"], ran["results"]) == ("COMPLETED", 2, {"one": 3})
    shown = far(f"jobs show {ran['id']}")
    assert ran == {name: value for name, value in shown.items() if name != "groups"} | {"results": {"one": 3}}
    assert command("run", "far_tasks.broken", "--name", "b").return_value == 1
    before = len(far("jobs ls"))
    with place_unknown():
        by_name = far("run far_tasks.both --arg n=2")
        assert (by_name["status"], by_name["total_tasks"], by_name["results"]) == ("COMPLETED", 3, {"both": 4})
        pair = far("run far_tasks.pair --arg n=2")
        assert (pair["status"], pair["total_tasks"]) == ("COMPLETED", 3)
    assert len(far("jobs ls")) == before + 2
    elsewhere = far("run not.installed.here --no-wait")
    assert elsewhere["name"] == "here"
    assert command("jobs", "cancel", elsewhere["id"]).exception is None
    assert command("jobs", "release", ran["id"]).exception is None

    changes = far("dag diff far.yaml")
    assert {each["change"] for each in changes} >= {"added", "new"}
    first = far("dag deploy far.yaml")
    assert (first["changes"], first["dag"], first["serves"], first["changed"]) == (changes, "far", True, True)
    assert far("dag diff far.yaml") == []
    assert far("dag deploy far.yaml", role=None) == far("dag deploy far.yaml") | {"changed": False}
    ran = far("dag run far --job fetch")
    assert [each["status"] for each in (ran, *ran["tasks"])] == ["COMPLETED"] * 3
    assert ran["id"] == far("jobs ls --limit 1")[0]["id"]
    near = far("dag run far --job fetch", role=None)
    assert [list(each) for each in (near, *near["tasks"])] == [list(each) for each in (ran, *ran["tasks"])]
    assert far("datasets query 'SELECT total FROM far_total'") == [{"total": 150}]
    for line in ("dag versions", "dag versions far", "datasets ls", "datasets show far_total",
                 "datasets lineage far_total", "datasets lineage far_total --columns"):  # fmt: skip
        assert far(line) == far(line, role=None)
        assert far(line)
    words = "dag backfill far --job nightly --from 2026-03-01 --to 2026-03-02"
    assert far(f"{words} --dry-run", role=None) == far(f"{words} --dry-run")
    assert len(far(words)["job_ids"]) == 2
    filled = far(words)
    assert (filled["count"], filled["before"], filled["job_ids"]) == (0, 2, [])
    assert all(each["job_id"] and each["status"] for each in filled["steps"])
    assert "before it begins" in str(command(*words.split(), "--to", "2026-02-01").exception)
    refused = command(*words.split(), role="operator-reader").exception
    assert "permission 'writer'" in str(refused)
    again = far("datasets rematerialize far_total")
    assert again["status"] == "COMPLETED"
    (place / "far.yaml").write_text(DAG.replace("sum(amount)", "sum(amount) + 1"))
    second = far("dag deploy far.yaml")
    assert (second["serves"], second["built"], bool(second["job_id"])) == (True, ["total"], True)
    assert far("datasets query 'SELECT total FROM far_total'") == [{"total": 151}]
    assert far("dag rollback far")["hash"] == first["hash"]
    for line in ("dag pause far", "dag resume far", "datasets readers far_total"):
        assert command(*line.split()).exception is None
    refused = command("dag", "pause", "far", role="operator-reader").exception
    assert "permission 'writer'" in str(refused)
    assert far("datasets ls", role="operator-reader") == []
    assert "There is no dataset" in str(command("datasets", "show", "far_total", role="operator-writer").exception)

    named = [each for each in far("data ls") if each["rows"]]
    assert named
    shown = far(f"data show {named[0]['name']}")
    assert shown["columns"]


@pytest.fixture
def sales(site):
    """A named Object with values of many kinds."""
    values = {
        "n": [1, 2**60, None],
        "x": [0.5, math.nan, math.inf],
        "d": [Decimal("1.10"), Decimal("2.20"), Decimal("3.30")],
        "at": [datetime(2026, 1, 1, 12, tzinfo=UTC)] * 3,
        'odd, `a"b': ["x", "ü\n", ""],
        "many": [[1, 2], [], [3]],
    }

    async def make() -> None:
        async with DataContext(parse_clickhouse_url(site.environment["AAICLICK_CLICKHOUSE_URL"])):
            await create_object_from_value(values, name="sales/2026", replace=True)

    asyncio.run(make())
    return "sales/2026"


def test_an_export_from_afar_is_the_file_that_it_is_beside_the_databases(command, sales, tmp_path) -> None:
    for kind in ("near", "far"):
        (tmp_path / kind).mkdir()

    def both(file: str) -> list[Result]:
        asked = ((None, "near"), ("operator-reader", "far"))
        return [command("data", "export", sales, str(tmp_path / place / file), role=role) for role, place in asked]

    for file in (*(f"out.{name}" for name in sorted(FORMATS) if name != "avro"), "out.csv.gz"):
        for result in both(file):
            assert result.exception is None, result.exception
            assert "3 rows are in" in result.stderr
        assert (tmp_path / "far" / file).read_bytes() == (tmp_path / "near" / file).read_bytes()
    near, far = (result.exception for result in both("out.avro"))  # which has no such name for a column
    assert isinstance(near, DataError)
    assert "Invalid name" in str(near)
    assert "Invalid name" in str(far)
    assert {each.name for each in (tmp_path / "far").iterdir()} == {each.name for each in (tmp_path / "near").iterdir()}


def test_an_export_from_afar_goes_to_a_bucket_as_well(command, sales, monkeypatch) -> None:
    """The upload itself is the one of every export."""
    uploaded: dict[str, bytes] = {}

    async def upload(target, access, pieces) -> None:
        uploaded[str(target)] = b"".join([piece async for piece in pieces])

    monkeypatch.setattr(export, "upload", upload)
    assert command("data", "export", sales, "s3://pile/sales.tsv", role="operator-reader").exception is None
    assert uploaded["s3://pile/sales.tsv"].startswith(b"n\tx\td\t")


def test_an_export_that_breaks_off_leaves_no_file(command, site, tmp_path, monkeypatch) -> None:
    """ClickHouse fails near the end, when much has been sent already."""
    target = parse_clickhouse_url(site.environment["AAICLICK_CLICKHOUSE_URL"])
    table = "named_torn"
    rows, last = 2_000_000, 1_900_000
    asyncio.run(
        _tell(
            target,
            f"CREATE OR REPLACE TABLE {table} (aai_id UInt64, x UInt8 ALIAS throwIf(aai_id = {last}, 'torn'))"
            " ENGINE = MergeTree ORDER BY aai_id",
            f"INSERT INTO {table} SELECT number FROM numbers({rows})",
        )
    )
    received: list[int] = []
    write = AsyncClient.export_object

    async def count(client, *arguments):
        async for piece in write(client, *arguments):
            received.append(len(piece))
            yield piece

    monkeypatch.setattr(AsyncClient, "export_object", count)
    before = tmp_path / "torn.csv"
    before.write_text("as it was")
    result = command("data", "export", "torn", str(before), role="operator-reader")
    assert isinstance(result.exception, UnreachableError)
    assert "broke off" in str(result.exception)
    assert sum(received) > 1_000_000
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("torn.csv", "as it was")]
    asyncio.run(_tell(target, f"DROP TABLE {table}"))


async def _tell(target, *statements: str) -> None:
    client = await connect(target)
    for statement in statements:
        await client.run(statement)


def test_people_and_keys_from_afar(command, site) -> None:
    def far(*line: str, role: str | None = "operator-admin"):
        result = command(*line, "-o", "json", role=role)
        assert result.exception is None, (line, result.exception)
        return json.loads(result.stdout)

    made = far("key", "create", "k", "--scope", "reader", "--days", "1")
    assert made["key"].startswith("aai_")
    assert command("key", "revoke", made["id"]).exception is None
    person = far("user", "create", "12345", "--role", "writer")
    org = far("org", "create", "afar", "--weight", "3")
    assert command("org", "pause", "afar").exception is None
    assert far("key", "create", "first", "--scope", "admin", "--org", "afar")["scopes"] == "admin"
    assert command("types", "retry", "mail", "--base-seconds", "7").exception is None
    assert command("types", "pause", "mail").exception is None
    for line in (["key", "ls"], ["user", "ls"], ["org", "ls"], ["types", "ls", "--org", "default"]):
        listed = far(*line)
        for each in listed:
            each.pop("used", None)
        near = far(*line, role=None)
        for each in near:
            each.pop("used", None)
        assert listed == near
        assert listed
    assert org["weight"] == 3
    assert command("org", "resume", "afar").exception is None
    assert command("types", "resume", "mail").exception is None
    assert command("user", "rm", person["id"]).exception is None
    assert "not a key of the organisation" in str(command("user", "ls", "--org", "afar").exception)


@pytest.mark.parametrize("role", ["operator-admin", None])
def test_roles_are_made_given_taken_and_removed(command, site, role: str | None) -> None:
    def told(*line: str):
        result = command(*line, role=role)
        assert result.exception is None, (line, result.exception)
        return json.loads(result.stdout) if "json" in line else result.stderr

    def refused(*line: str, by: str | None = role) -> int:
        return command("role", *line, role=by).exception.exit_code

    before = len(site.sql("SELECT 1 FROM audit_log"))
    slug, subject = f"analyst-{role or 'near'}", f"sub|{role}"
    user = told("user", "create", subject, "-o", "json")["id"]
    made = told("role", "create", slug, "--name", "Analyst", "-o", "json")
    assert (made["slug"], made["name"]) == (slug, "Analyst")
    assert made in told("role", "ls", "-o", "json")
    assert f"has the role '{slug}'" in told("role", "give", slug, subject)
    [member] = told("role", "members", slug, "-o", "json")
    assert (member["user"], member["subject"]) == (user, subject)
    told("role", "take", made["id"], user)
    assert told("role", "members", slug, "-o", "json") == []
    assert [refused(*line) for line in (["take", slug, user], ["give", "nowhere", user], ["give", slug, "nobody"])] == [
        3
    ] * 3
    assert refused("create", slug) == 1
    assert refused("create", "No Slug") == 2
    assert refused("create", "other", by="operator-writer") == 4
    told("role", "rm", slug)
    assert refused("rm", slug) == 3
    told("user", "rm", user)
    deeds = [row["action"] for row in site.sql("SELECT action FROM audit_log ORDER BY id OFFSET $1", before)]
    assert [deed for deed in deeds if "role" in deed] == ["role.create", "role.add", "role.remove", "role.delete"]
