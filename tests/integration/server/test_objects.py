"""Objects over HTTP with a real ClickHouse."""

from __future__ import annotations

import base64
import json
import math
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from aaiclick.catalog.dataset_visibility import hidden_tables
from aaiclick.data import DataContext, create_object_from_value
from aaiclick.server_addresses import parse_clickhouse_url
from aaiclick.store.catalog.datasets import Reader
from aaiclick.store.enums import DEFAULT_ORG_ID


@pytest.fixture
async def stored_object(site):
    """An Object in the operator's database with values that JSON cannot represent."""
    async with DataContext(parse_clickhouse_url(site.environment["AAICLICK_CLICKHOUSE_URL"])) as context:
        created_object = await create_object_from_value(
            {
                "n": [1, 2**60, 3],
                "x": [0.5, math.nan, math.inf],
                "d": [Decimal("1.10"), Decimal("2.20"), Decimal("3.30")],
                "at": [datetime(2026, 1, 1, tzinfo=UTC)] * 3,
                'from `a"b': ["x", "y", "z"],
            }
        )
        await created_object
        yield created_object
        del context


async def test_object_is_listed_described_and_previewed(site, stored_object) -> None:
    reader = site.as_("operator-reader")
    table = stored_object.table_id
    items = reader.get("/v1/objects", params={"limit": 1000}).json()["items"]
    assert [item["rows"] for item in items if item["table_id"] == table] == [3]
    schema = reader.get(f"/v1/objects/{table}").json()
    assert [column["name"] for column in schema["columns"]] == ["n", "x", "d", "at", 'from `a"b']
    rows = reader.get(f"/v1/objects/{table}/rows", params={"offset": 1, "limit": 1}).json()["rows"]
    [row] = rows
    assert (row["n"], row["x"], row["d"], row['from `a"b']) == (str(2**60), None, "2.20", "y")
    assert row["at"].startswith("2026-01-01T00:00:00")
    assert reader.get(f"/v1/objects/{table}/rows", params={"offset": 10}).json() == {"rows": []}


async def test_object_of_the_operator_is_not_found_by_others(site, stored_object) -> None:
    for path in (f"/v1/objects/{stored_object.table_id}", f"/v1/objects/{stored_object.table_id}/rows"):
        assert site.as_("admin").get(path).status_code == 404
    assert site.as_("admin").get("/v1/objects").json()["items"] == []


# --- literals: results that are stored with their tasks -----------------------------------------------------------


def complete_with_literal(site, http_worker, number: int, text: str) -> tuple[str, str, str]:
    """Run a job of one task with a literal as its result; returns the ids of job, task and Object."""
    body = {"name": "small", "tasks": [{"key": "a", "entrypoint": "m.f", "queue": f"literal-{number}"}]}
    answer = site.as_("writer").post("/v1/jobs", json=body)
    assert answer.status_code == 201, answer.text
    [task] = http_worker.claim(queues=[f"literal-{number}"])
    table = f"t{number}"
    reference = {"object_type": "object", "table_id": table}
    answer = http_worker.post("tasks/complete", lease=task["lease"], result=reference, literal=text)
    assert answer.status_code == 204, answer.text
    return answer_id(site, task), task["lease"]["task_id"], table


def answer_id(site, task) -> str:
    return site.as_("reader").get(f"/v1/tasks/{task['lease']['task_id']}").json()["job_id"]


def encode_arrow(table: pa.Table, columns: list[list[object]], compression: str | None = None) -> str:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    arrow = base64.b64encode(sink.getvalue().to_pybytes()).decode()
    return json.dumps({"arrow": arrow, "columns": columns, "shape": "table"})


def test_literal_is_listed_described_previewed_and_exported(site, http_worker) -> None:
    job_id, task_id, table = complete_with_literal(
        site, http_worker, 7_001, '{"value": {"n": [1, 2], "s": ["x", null]}}'
    )
    reader = site.as_("reader")
    [item] = reader.get("/v1/objects", params={"job_id": job_id}).json()["items"]
    assert (item["table_id"], item["state"], item["rows"], item["references"]) == (table, "literal", 2, 1)
    assert item["owners"] == [f"result of task {task_id} of job {job_id}"]
    assert reader.get("/v1/objects", params={"job_id": job_id, "state": "live"}).json()["items"] == []
    schema = reader.get(f"/v1/objects/{table}").json()
    assert [(column["name"], column["type"]) for column in schema["columns"]] == [
        ("n", "Int64"),
        ("s", "Nullable(String)"),
    ]
    rows = reader.get(f"/v1/objects/{table}/rows", params={"offset": 1}).json()["rows"]
    assert rows == [{"n": 2, "s": None}]
    exported = reader.get(f"/v1/objects/{table}/export", params={"format": "csv"}).text
    assert exported.splitlines()[0].replace('"', "") == "n,s"
    assert len(exported.splitlines()) == 3
    [result] = reader.get(f"/v1/jobs/{job_id}/results").json()
    assert result["value"] == "{'n': [1, 2], 's': ['x', None]}"


def test_literal_of_another_organisation_is_not_found(site, http_worker) -> None:
    job_id, _, table = complete_with_literal(site, http_worker, 7_002, '{"value": 1}')
    for role in ("other-admin", "operator-admin"):
        for path in (f"/v1/objects/{table}", f"/v1/objects/{table}/rows", f"/v1/objects/{table}/export"):
            assert site.as_(role).get(path).status_code == 404, (role, path)
        assert site.as_(role).get("/v1/objects", params={"job_id": job_id}).json()["items"] == []


HOSTILE_LITERALS = {
    "no JSON": "arrow",
    "an array": "[1]",
    "deep": '{"value": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "no columns": '{"arrow": "", "shape": "table"}',
    "no base64": '{"arrow": "!", "columns": [], "shape": "table"}',
    "no Arrow": '{"arrow": "AAAA", "columns": [["a", "Int64", null]], "shape": "table"}',
    "compressed": encode_arrow(pa.table({"a": [0] * 1_000_000}), [["a", "Int64", None]], "zstd"),
    "nulls": encode_arrow(pa.table({"a": pa.nulls(100_000_000)}), [["a", "Int64", None]]),
    "other columns": encode_arrow(pa.table({"a": [1]}), [["a", "Int64", None], ["b", "Int64", None]]),
    "unknown shape": encode_arrow(pa.table({"a": [1]}), [["a", "Int64", None]]).replace('"table"', '"heap"'),
}


@pytest.mark.parametrize("name", sorted(HOSTILE_LITERALS))
def test_hostile_literal_is_an_error_and_harms_nobody(site, http_worker, name) -> None:
    number = 7_100 + sorted(HOSTILE_LITERALS).index(name)
    job_id, _, table = complete_with_literal(site, http_worker, number, HOSTILE_LITERALS[name])
    reader = site.as_("reader")
    answer = reader.get(f"/v1/objects/{table}/rows")
    assert answer.status_code == 422, answer.text[:300]
    assert reader.get(f"/v1/objects/{table}").status_code in (200, 422)
    assert [item["table_id"] for item in reader.get("/v1/objects", params={"job_id": job_id}).json()["items"]] == [
        table
    ]
    assert reader.get(f"/v1/jobs/{job_id}/results").status_code == 200


def test_named_object_that_is_hidden_from_readers_is_not_found(site) -> None:
    """In every organisation: PostgreSQL has the organisation in its name, ClickHouse has not."""
    insert = "INSERT INTO table_refcounts (table_name, org_id) VALUES ($1, $2) RETURNING 1"
    site.sql(insert, "named_sums", DEFAULT_ORG_ID)
    site.sql(insert, f"{site.org}.named_sums", site.org)
    for org_id in (DEFAULT_ORG_ID, site.org):  # a table without references belongs to a task that is not known
        hidden = site.run(lambda connection, org_id=org_id: hidden_tables(connection, Reader(org_id), ["named_sums"]))
        assert hidden == {"named_sums"}, org_id
