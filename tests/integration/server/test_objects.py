"""Objects over HTTP with a real ClickHouse."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from aaiclick.data import DataContext, create_object_from_value
from aaiclick.endpoints import parse_clickhouse_url


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
