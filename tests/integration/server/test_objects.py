"""Objects over HTTP out of a real ClickHouse."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from aaiclick.data import DataContext, create_object_from_value
from aaiclick.targets import parse_clickhouse_url


@pytest.fixture
async def kept(site):
    """An Object with values that JSON has no words for, in the operator's database."""
    async with DataContext(parse_clickhouse_url(site.environment["AAICLICK_CLICKHOUSE_URL"])) as context:
        made = await create_object_from_value(
            {
                "n": [1, 2**60, 3],
                "x": [0.5, math.nan, math.inf],
                "d": [Decimal("1.10"), Decimal("2.20"), Decimal("3.30")],
                "at": [datetime(2026, 1, 1, tzinfo=UTC)] * 3,
                'from `a"b': ["x", "y", "z"],
            }
        )
        await made
        yield made
        del context


async def test_an_object_is_listed_described_and_shown(site, kept) -> None:
    reader = site.as_("operator-reader")
    table = kept.table_id
    items = reader.get("/v1/objects", params={"limit": 1000}).json()["items"]
    assert [each["rows"] for each in items if each["table_id"] == table] == [3]
    schema = reader.get(f"/v1/objects/{table}").json()
    assert [column["name"] for column in schema["columns"]] == ["n", "x", "d", "at", 'from `a"b']
    rows = reader.get(f"/v1/objects/{table}/rows", params={"offset": 1, "limit": 1}).json()["rows"]
    [row] = rows
    assert (row["n"], row["x"], row["d"], row['from `a"b']) == (str(2**60), None, "2.20", "y")
    assert row["at"].startswith("2026-01-01T00:00:00")
    assert reader.get(f"/v1/objects/{table}/rows", params={"offset": 10}).json() == {"rows": []}


async def test_an_object_of_the_operator_does_not_exist_for_others(site, kept) -> None:
    for path in (f"/v1/objects/{kept.table_id}", f"/v1/objects/{kept.table_id}/rows"):
        assert site.as_("admin").get(path).status_code == 404
    assert site.as_("admin").get("/v1/objects").json()["items"] == []
