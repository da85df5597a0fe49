"""Commands for jobs, DAGs, datasets and Objects from submission to rows, locally and remotely."""

from __future__ import annotations

import asyncio
import json
import math
import shlex
import signal
import subprocess
import sys
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from click.testing import Result

from aaiclick.client import AsyncClient
from aaiclick.data import DataContext, create_object_from_value
from aaiclick.data.errors import DataError
from aaiclick.data.io import export
from aaiclick.data.io.formats import FORMATS
from aaiclick.data.runtime.clickhouse_client import connect
from aaiclick.errors import UnreachableError
from aaiclick.server_addresses import parse_clickhouse_url
from tests.fork_server import FORK_SERVER

STOCK = """
name: stock
jobs:
  - {name: count, activation: source, operator: python, source: {kind: manual}, outputs: [counted],
     config: {function: "shop:count"}}
publish: [{output: counted, name: stock}]
"""


@pytest.fixture(scope="module")
def stock(site) -> str:
    """A dataset and a role 'clerks'."""
    admin = site.as_("operator-admin")
    assert admin.post("/v1/dags/deploy", json={"text": STOCK}).json()["serves"]
    admin.post("/v1/roles", json={"slug": "clerks", "name": "Clerks"}).raise_for_status()
    return "stock"


def _readers(site) -> list[str]:
    [row] = site.sql("SELECT read_roles FROM datasets WHERE name = 'stock'")
    return row["read_roles"]


@pytest.mark.parametrize("role", ["operator-admin", None])
def test_readers_of_a_dataset_have_to_be_existing_roles(command, site, stock, role: str | None) -> None:
    """A misspelt role would lock out all readers."""
    assert command("datasets", "readers", stock, "clerks", role=role).exception is None
    for roles, message in (
        (["clerks", "clreks"], "no role 'clreks'."),
        (["b", "A b"], "no role 'A b' and no role 'b'."),
    ):
        refused = command("datasets", "readers", stock, *roles, role=role).exception
        assert (refused.exit_code, refused.what) == (3, f"There is {message}")
    assert _readers(site) == ["clerks"]
    assert command("datasets", "readers", "nosuch", "clerks", role=role).exception.exit_code == 3


@pytest.mark.parametrize("role", ["operator-admin", None])
def test_query_of_an_unknown_dataset_fails_like_show(command, role: str | None) -> None:
    for arguments in (["show", "nosuch"], ["query", "SELECT * FROM nosuch"]):
        refused = command("datasets", *arguments, role=role).exception
        assert (refused.exit_code, refused.what) == (3, "There is no dataset 'nosuch'.")
    assert command("datasets", "query", "DROP TABLE nosuch", role=role).exception.exit_code == 2


def test_version_is_registered_once_by_api_and_command(command, site, stock) -> None:
    registered = site.as_("operator-admin").post(
        f"/v1/datasets/{stock}/versions", json={"range_start": 0, "range_end": 9}
    )
    assert registered.json()["created"] is True
    for role in ("operator-admin", None):
        again = command("datasets", "register", stock, "--range", "0", "9", "-o", "json", role=role)
        assert json.loads(again.stdout) == {"id": registered.json()["id"], "created": False, "job_id": None}
        other = command(
            "datasets", "register", stock, "--range", "10", f"{10 + len(role or '')}", "-o", "json", role=role
        )
        assert json.loads(other.stdout)["created"] is True
    [row] = site.sql("SELECT range_start, range_end FROM dataset_versions WHERE range_end = 9")
    assert tuple(row) == (0, 9)
    detail = json.loads(command("datasets", "show", stock, "-o", "json").stdout)
    assert [0, 9] in [[generation["range_start"], generation["range_end"]] for generation in detail["generations"]]
    refused = site.as_("operator-reader").post(f"/v1/datasets/{stock}/versions", json={})
    assert refused.status_code == 403
    noted = site.sql("SELECT count(*) AS n FROM audit_log WHERE action = 'dataset.register'")
    assert noted[0]["n"] == 3


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
def code_directory(site, tmp_path, monkeypatch):
    """A directory with task code, in which a remote worker runs."""
    (tmp_path / "far_tasks.py").write_text(CODE)
    (tmp_path / "far.yaml").write_text(DAG)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    start = ["worker", "start", "--processes", "1", "--grace-seconds", "0.5", "--import", "far_tasks"]
    bare = {name: value for name, value in site.environment.items() if not name.startswith("AAICLICK_")}
    remote_settings = {"AAICLICK_SERVER": site.server.url, "AAICLICK_API_KEY": site.keys["operator-worker"]}
    remote_settings["AAICLICK_LOG_DIR"] = str(tmp_path / "logs")
    worker = FORK_SERVER.start(start, bare | remote_settings, tmp_path, stderr=subprocess.DEVNULL)
    yield tmp_path
    worker.send_signal(signal.SIGTERM)
    worker.wait(60)


@contextmanager
def code_not_importable():
    """Makes the task code impossible to import, so that entry points are sent by name."""
    path, code = list(sys.path), sys.modules.pop("far_tasks", None)
    sys.modules["far_tasks"] = None  # importing it raises ImportError
    try:
        yield
    finally:
        sys.path[:] = path
        del sys.modules["far_tasks"]
        if code is not None:
            sys.modules["far_tasks"] = code


def test_jobs_dags_and_datasets_end_to_end(command, code_directory) -> None:
    def run_json(line: str, role: str | None = "operator-admin"):
        result = command(*shlex.split(line), "-o", "json", role=role)
        assert result.exception is None, (line, result.exception, result.output)
        return json.loads(result.stdout)

    ran = run_json("run far_tasks.both --arg n=1")
    results = [{"name": "one", "value": 3}]
    assert (ran["status"], ran["total_tasks"], ran["results"]) == ("COMPLETED", 2, results)
    shown = run_json(f"jobs show {ran['id']}")
    assert ran == {name: value for name, value in shown.items() if name not in ("groups", "children")} | {
        "results": [{"name": "one", "value": 3}]
    }
    assert command("run", "far_tasks.broken", "--name", "b").return_value == 1
    before = len(run_json("jobs ls"))
    with code_not_importable():
        by_name = run_json("run far_tasks.both --arg n=2")
        assert (by_name["status"], by_name["total_tasks"], by_name["results"]) == (
            "COMPLETED",
            3,
            [{"name": "both", "value": 4}],
        )
        pair = run_json("run far_tasks.pair --arg n=2")
        assert (pair["status"], pair["total_tasks"]) == ("COMPLETED", 3)
    assert len(run_json("jobs ls")) == before + 2
    elsewhere = run_json("run not.installed.here --no-wait")
    assert elsewhere["name"] == "here"
    assert command("jobs", "cancel", elsewhere["id"]).exception is None
    assert command("jobs", "release", ran["id"]).exception is None

    changes = run_json("dag diff far.yaml")
    assert {change["change"] for change in changes} >= {"added", "new"}
    first = run_json("dag deploy far.yaml")
    assert (first["changes"], first["dag"], first["serves"], first["changed"]) == (changes, "far", True, True)
    assert run_json("dag diff far.yaml") == []
    assert run_json("dag deploy far.yaml", role=None) == run_json("dag deploy far.yaml") | {"changed": False}
    ran = run_json("dag run far --job fetch")
    assert [item["status"] for item in (ran, *ran["tasks"])] == ["COMPLETED"] * 3
    assert ran["id"] == run_json("jobs ls --limit 1")[0]["id"]
    local = run_json("dag run far --job fetch", role=None)
    assert [list(item) for item in (local, *local["tasks"])] == [list(item) for item in (ran, *ran["tasks"])]
    assert run_json("datasets query 'SELECT total FROM far_total'") == [{"total": 150}]
    for line in ("dag versions", "dag versions far", "datasets ls", "datasets show far_total",
                 "datasets lineage far_total", "datasets lineage far_total --columns"):  # fmt: skip
        assert run_json(line) == run_json(line, role=None)
        assert run_json(line)
    backfill = "dag backfill far --job nightly --from 2026-03-01 --to 2026-03-02"
    assert run_json(f"{backfill} --dry-run", role=None) == run_json(f"{backfill} --dry-run")
    assert len(run_json(backfill)["job_ids"]) == 2
    filled = run_json(backfill)
    assert (filled["count"], filled["before"], filled["job_ids"]) == (0, 2, [])
    assert all(step["job_id"] and step["status"] for step in filled["steps"])
    assert "before it begins" in str(command(*backfill.split(), "--to", "2026-02-01").exception)
    refused = command(*backfill.split(), role="operator-reader").exception
    assert "permission 'writer'" in str(refused)
    again = run_json("datasets rematerialize far_total")
    assert again["status"] == "COMPLETED"
    (code_directory / "far.yaml").write_text(DAG.replace("sum(amount)", "sum(amount) + 1"))
    second = run_json("dag deploy far.yaml")
    assert (second["serves"], second["built"], bool(second["job_id"])) == (True, ["total"], True)
    assert run_json("datasets query 'SELECT total FROM far_total'") == [{"total": 151}]
    assert run_json("dag rollback far")["hash"] == first["hash"]
    for line in ("dag pause far", "dag resume far", "datasets readers far_total"):
        assert command(*line.split()).exception is None
    refused = command("dag", "pause", "far", role="operator-reader").exception
    assert "permission 'writer'" in str(refused)
    assert run_json("datasets ls", role="operator-reader") == []
    assert "There is no dataset" in str(command("datasets", "show", "far_total", role="operator-writer").exception)

    named = [item for item in run_json("data ls") if item["rows"]]
    assert named
    assert {tuple(item) for item in named} == {tuple(item) for item in run_json("data ls", role=None)}
    small = f"data ls --job {pair['id']} --state literal"
    assert {item["state"] for item in run_json(small)} == {"literal"}
    assert run_json(small) == run_json(small, role=None)
    assert {item["state"] for item in run_json("data ls --state live")} <= {"live"}
    shown = run_json(f"data show {named[0]['name'] or named[0]['table_id']}")
    assert shown["columns"]


@pytest.fixture
def sales(site):
    """A named Object with columns of many types."""
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


def test_remote_export_equals_the_local_one(command, sales, tmp_path) -> None:
    for side in ("local", "remote"):
        (tmp_path / side).mkdir()

    def both(file: str) -> list[Result]:
        sides = ((None, "local"), ("operator-reader", "remote"))
        return [
            command("data", "export", sales, str(tmp_path / side_name / file), role=role) for role, side_name in sides
        ]

    refused = {"json": "NaN", "jsonl": "NaN", "avro": "name"}  # JSON has no NaN, Avro no such column name
    for file in (*(f"out.{name}" for name in sorted(FORMATS)), "out.csv.gz"):
        results = both(file)
        if (reason := refused.get(file.removeprefix("out."))) is not None:
            assert [reason in str(result.exception) for result in results] == [True, True], results
            assert isinstance(results[0].exception, DataError)
            continue
        for result in results:
            assert result.exception is None, result.exception
            assert "3 rows written to" in result.stderr
        assert (tmp_path / "remote" / file).read_bytes() == (tmp_path / "local" / file).read_bytes()
    assert {path.name for path in (tmp_path / "remote").iterdir()} == {
        path.name for path in (tmp_path / "local").iterdir()
    }


def test_remote_export_can_go_to_a_bucket(command, sales, monkeypatch) -> None:
    """The upload is the same as that of a local export."""
    uploaded: dict[str, bytes] = {}

    async def upload(target, access, pieces) -> None:
        uploaded[str(target)] = b"".join([piece async for piece in pieces])

    monkeypatch.setattr(export, "upload_object", upload)
    assert command("data", "export", sales, "s3://pile/sales.tsv", role="operator-reader").exception is None
    assert uploaded["s3://pile/sales.tsv"].startswith(b'"n"\t"x"\t"d"\t')


def test_interrupted_export_leaves_no_file(command, site, tmp_path, monkeypatch) -> None:
    """ClickHouse fails near the end, after most rows were sent."""
    target = parse_clickhouse_url(site.environment["AAICLICK_CLICKHOUSE_URL"])
    table = "named_torn"
    rows, last = 2_000_000, 1_900_000
    asyncio.run(
        _run_statements(
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
    assert "closed the connection during a response" in str(result.exception)
    assert sum(received) > 1_000_000
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("torn.csv", "as it was")]
    asyncio.run(_run_statements(target, f"DROP TABLE {table}"))


async def _run_statements(target, *statements: str) -> None:
    client = await connect(target)
    for statement in statements:
        await client.run(statement)
