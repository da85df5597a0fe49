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


def test_refusals_read_like_those_of_a_database(command, work) -> None:
    assert "There is no job 1" in str(command("jobs", "show", "1").exception)
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
    assert (ran["status"], ran["tasks"], ran["results"]) == ("COMPLETED", "2/2", {"one": "3"})
    assert command("run", "far_tasks.broken", "--name", "b").return_value == 1
    before = len(far("jobs ls"))
    with place_unknown():
        by_name = far("run far_tasks.both --arg n=2")
        assert (by_name["status"], by_name["tasks"], by_name["results"]) == ("COMPLETED", "3/3", {"both": "4"})
        pair = far("run far_tasks.pair --arg n=2")
        assert (pair["status"], pair["tasks"]) == ("COMPLETED", "3/3")
    assert len(far("jobs ls")) == before + 2
    elsewhere = far("run not.installed.here --no-wait")
    assert elsewhere["name"] == "here"
    assert command("jobs", "cancel", elsewhere["id"]).exception is None
    assert command("jobs", "release", ran["id"]).exception is None

    changes = far("dag diff far.yaml")
    assert {each["change"] for each in changes} >= {"added", "new"}
    assert far("dag deploy far.yaml") == changes
    assert far("dag diff far.yaml") == []
    assert [each["status"] for each in far("dag run far --job fetch")] == ["COMPLETED", "COMPLETED"]
    assert far("datasets query 'SELECT total FROM far_total'") == [{"total": 150}]
    for line in ("dag versions", "dag versions far", "datasets ls", "datasets show far_total",
                 "datasets lineage far_total", "datasets lineage far_total --columns"):  # fmt: skip
        assert far(line) == far(line, role=None)
        assert far(line)
    words = "dag backfill far --job nightly --from 2026-03-01 --to 2026-03-02"
    assert [each["state"] for each in far(f"{words} --dry-run")] == ["would run", "would run"]
    assert [each["state"] for each in far(words)] == ["runs", "runs"]
    assert all(each["job"] for each in far(words))
    assert "before it begins" in str(command(*words.split(), "--to", "2026-02-01").exception)
    refused = command(*words.split(), role="operator-reader").exception
    assert "permission 'writer'" in str(refused)
    again = far("datasets rematerialize far_total")
    assert again["status"] == "COMPLETED"
    (place / "far.yaml").write_text(DAG.replace("sum(amount)", "sum(amount) + 1"))
    assert far("dag deploy far.yaml")
    assert far("datasets query 'SELECT total FROM far_total'") == [{"total": 151}]
    far("dag rollback far")
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
    for line in (["key", "ls"], ["user", "ls"], ["org", "ls"], ["types", "ls"]):
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
