"""Jobs, DAGs, datasets and Objects by the command line, from submission to rows, near and from afar."""

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
from aaiclick.data import DataContext, create_object_from_value, export
from aaiclick.data.client import connect
from aaiclick.data.errors import DataError
from aaiclick.data.formats import FORMATS
from aaiclick.errors import UnreachableError
from aaiclick.targets import parse_clickhouse_url
from tests.hatchery import HATCHERY

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


def test_a_version_is_registered_by_range_once_by_api_and_command(command, site, stock) -> None:
    made = site.as_("operator-admin").post(f"/v1/datasets/{stock}/versions", json={"range_start": 0, "range_end": 9})
    assert made.json()["created"] is True
    for role in ("operator-admin", None):
        again = command("datasets", "register", stock, "--range", "0", "9", "-o", "json", role=role)
        assert json.loads(again.stdout) == {"id": made.json()["id"], "created": False, "job_id": None}
        other = command(
            "datasets", "register", stock, "--range", "10", f"{10 + len(role or '')}", "-o", "json", role=role
        )
        assert json.loads(other.stdout)["created"] is True
    [row] = site.sql("SELECT range_start, range_end FROM dataset_versions WHERE range_end = 9")
    assert tuple(row) == (0, 9)
    detail = json.loads(command("datasets", "show", stock, "-o", "json").stdout)
    assert [0, 9] in [[each["range_start"], each["range_end"]] for each in detail["generations"]]
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
def place(site, tmp_path, monkeypatch):
    """A directory with code in it, where a worker runs that knows the server and no database."""
    (tmp_path / "far_tasks.py").write_text(CODE)
    (tmp_path / "far.yaml").write_text(DAG)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    start = ["worker", "start", "--processes", "1", "--grace-seconds", "0.5", "--import", "far_tasks"]
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
    shown = far(f"data show {named[0]['name'] or named[0]['table_id']}")
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
