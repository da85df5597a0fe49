"""Rewritten queries run in ClickHouse, and their columns have the names of the lineage."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
from urllib.parse import urlencode

import pytest

from aaiclick.catalog.queries.table_rewrite import PhysicalTable, QueryLimits, prepare_query
from tests.unit.catalog.test_column_lineage import CASES, SCHEMAS
from tests.unit.catalog.test_table_rewrite import ORDINARY

TYPES = {
    "amount": "Float64", "rate": "Float64", "price": "Float64", "tags": "Array(String)", "placed_at": "DateTime",
    "at": "DateTime", "signed_at": "DateTime", "id": "UInt64", "customer_id": "UInt64", "parent_id": "UInt64",
    "lines.price": "Array(Float64)", "lines.sku": "Array(String)", "x": "Int64", "y": "Int64", "t": "DateTime",
    "arr": "Array(Int64)", "k": "Int64",
}  # fmt: skip
DATASETS = {name: list(columns) for name, columns in SCHEMAS.items() if columns is not None}
DATASETS |= {name: ["id", "k", "x", "y", "t", "s", "arr", "file"] for name in ("orders_2", "people_2", "items_2")}


class RefusedError(Exception):
    """ClickHouse refused the query."""


def ask(endpoint, query, settings=None):
    parameters = urlencode({"database": endpoint.database, **(settings or {})})
    credential = base64.b64encode(f"{endpoint.user}:{endpoint.password}".encode()).decode()
    with contextlib.closing(http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=60)) as connection:
        connection.request(
            "POST", f"/{endpoint.path}?{parameters}", query.encode(), {"Authorization": f"Basic {credential}"}
        )
        answer = connection.getresponse()
        body = answer.read().decode()
        if answer.status != http.client.OK:
            raise RefusedError(body)
        return body


@pytest.fixture
def tables(aaiclick_clickhouse):
    tables_ = {}
    for number, (name, columns) in enumerate(DATASETS.items()):
        shape = ", ".join(f"`{column}` {TYPES.get(column, 'String')}" for column in columns)
        engine = "ReplacingMergeTree ORDER BY tuple()" if number % 2 else "MergeTree ORDER BY tuple()"
        ask(aaiclick_clickhouse, f"CREATE TABLE dataset_{number} ({shape}) ENGINE = {engine}")
        tables_[name] = PhysicalTable(
            f"dataset_{number}", tuple(columns), database=aaiclick_clickhouse.database, final=bool(number % 2)
        )
    return tables_


def test_lineage_queries_run_with_expected_columns(aaiclick_clickhouse, tables):
    compared = 0
    for case, (text, columns, _) in CASES.items():
        if "opaque" in text:
            continue
        prepared = prepare_query(text, tables)
        answer = ask(aaiclick_clickhouse, f"{prepared.text} FORMAT JSONCompact", prepared.settings)
        assert [column["name"] for column in json.loads(answer)["meta"]] == list(columns), case
        compared += 1
    assert compared >= 20


def test_ordinary_queries_run_in_clickhouse(aaiclick_clickhouse, tables):
    mine = {"orders": tables["orders_2"], "people": tables["people_2"]}
    for text in ORDINARY:
        prepared = prepare_query(text, mine)
        ask(aaiclick_clickhouse, prepared.text, prepared.settings)


def test_limits_stop_a_query(aaiclick_clickhouse, tables):
    ask(aaiclick_clickhouse, f"INSERT INTO {tables['rates'].table} (rate) SELECT 1 FROM numbers(1000)")
    prepared = prepare_query("SELECT rate FROM rates", tables, QueryLimits(result_rows=10))
    with pytest.raises(RefusedError, match="TOO_MANY_ROWS"):
        ask(aaiclick_clickhouse, prepared.text, prepared.settings)
    with pytest.raises(RefusedError, match=r"READONLY|readonly"):
        ask(aaiclick_clickhouse, f"DROP TABLE {tables['rates'].table}", prepared.settings)


def test_clickhouse_treats_unknown_name_as_function(aaiclick_clickhouse):
    """The reason why every name must resolve; a failure means that ClickHouse changed this behaviour."""
    assert ask(aaiclick_clickhouse, "SELECT arrayMap(`lower`, ['A'])").strip() == "['a']"
