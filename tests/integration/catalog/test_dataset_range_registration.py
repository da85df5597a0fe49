"""Dataset versions by range: registered once, by deploys, backfills and concurrent callers."""

from __future__ import annotations

import asyncio

import pytest

from aaiclick.catalog import backfill
from aaiclick.catalog.dataset_range_registration import RegisteredVersion, register_range
from aaiclick.catalog.errors import DagError
from aaiclick.errors import ConflictError, NotFoundError, RequestError
from aaiclick.store.catalog.datasets import Reader, VersionRange
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.postgres_connections import connect
from tests.integration.catalog.conftest import JOBS, SHOP, order

ALL = Reader(DEFAULT_ORG_ID, None)
RANGED = SHOP.replace("outputs: [raw]", "outputs: [{name: raw, range: [0, 999]}]")
NUMBERED = f"""
name: shop
jobs:
  - name: fetch
    activation: source
    operator: python
    source: {{kind: manual}}
    outputs: [{{name: blocks, partition_by: id}}]
    config: {{function: "{JOBS}:fetch"}}
  - name: sums
    activation: reactive
    operator: sql
    execution_strategy: PerPartition
    outputs: [totals]
    config: {{query: "SELECT id, sum(amount) AS total FROM blocks GROUP BY id"}}
"""
RANGES = "SELECT range_start, range_end FROM dataset_versions WHERE range_start IS NOT NULL ORDER BY 1, 2"


async def ranges(shop) -> list[tuple]:
    return [tuple(row) for row in await shop.db.fetch(RANGES)]


async def register(shop, start=None, end=None, name="shop.raw", **options) -> RegisteredVersion:
    return await register_range(shop.db, ALL, name, VersionRange(start, end), **options)


async def test_deploy_registers_declared_range(shop):
    await shop.deploy(RANGED)
    assert await ranges(shop) == [(0, 999)]
    await shop.deploy(RANGED + "\n# the same in other words")
    assert await ranges(shop) == [(0, 999)]
    await shop.run(order(1, 1, 10))
    assert await shop.rows("shop.raw") == [(1, "2026-01-01", 10)]
    await shop.deploy(RANGED.replace("999", "1999"))
    assert await ranges(shop) == [(0, 999), (0, 1999)]


async def test_reversed_range_is_refused(shop):
    with pytest.raises(DagError, match="ends before it begins"):
        await shop.deploy(RANGED.replace("[0, 999]", "[999, 0]"))


@pytest.mark.parametrize("bounds", [(0, 999), (0, None), (None, 999), (-5, -5), (-(1 << 63), (1 << 63) - 1)])
async def test_a_range_is_registered_once(shop, bounds):
    await shop.deploy()
    first, second = await register(shop, *bounds), await register(shop, *bounds)
    assert (first.created, second.created) == (True, False)
    assert first.id == second.id
    row = await shop.db.fetchrow("SELECT * FROM dataset_versions WHERE id = $1", first.id)
    assert (row["range_start"], row["range_end"]) == bounds
    other_dataset = await register(shop, *bounds, name="shop.orders")
    assert other_dataset.created  # of another dataset


async def test_range_without_bounds_is_serving_version(shop):
    await shop.deploy()
    serving = await shop.db.fetchval(
        "SELECT p.dataset_version FROM dag_version_datasets p JOIN datasets d ON d.id = p.dataset_uuid"
        " WHERE d.name = 'shop.raw'"
    )
    assert await register(shop) == RegisteredVersion(serving, False)


@pytest.mark.parametrize("bounds", [(None, None), (0, 999), (None, 5)])
async def test_concurrent_registrations_create_one_row(shop, aaiclick_postgres, bounds):
    await shop.deploy()
    before = await shop.db.fetchval("SELECT count(*) FROM dataset_versions")
    connections = [await connect(aaiclick_postgres) for _ in range(12)]
    try:
        versions = await asyncio.gather(
            *(register_range(connection, ALL, "shop.raw", VersionRange(*bounds)) for connection in connections)
        )
    finally:
        for connection in connections:
            await connection.close()
    assert len({version.id for version in versions}) == 1
    expected = 0 if bounds == (None, None) else 1
    assert [version.created for version in versions].count(True) == expected
    assert await shop.db.fetchval("SELECT count(*) FROM dataset_versions") == before + expected


async def test_a_backfill_registers_its_range_once(shop):
    await shop.deploy(NUMBERED)
    await shop.run(order(1, 1, 10), order(5, 1, 5), order(90, 2, 7))

    async def clickhouse():
        return shop.clickhouse

    for _ in range(2):
        plan = await backfill.plan_backfill(shop.db, clickhouse, DEFAULT_ORG_ID, "shop", "sums", "0", "50")
        assert plan.bounds == VersionRange(0, 50)
        await shop.db.execute("UPDATE dataset_partitions SET inputs_hash = NULL, recorded_ticket = recorded_ticket + 1")
        await backfill.start_backfill(shop.db, await backfill.plan_backfill(
            shop.db, clickhouse, DEFAULT_ORG_ID, "shop", "sums", "0", "50"))  # fmt: skip
    assert await ranges(shop) == [(0, 50)]
    name = "SELECT d.name FROM dataset_versions v JOIN datasets d ON d.id = v.dataset_uuid WHERE v.range_start = 0"
    assert await shop.db.fetchval(name) == "shop.totals"
    await shop.check()


async def test_a_backfill_of_times_registers_seconds(shop):
    await shop.deploy()

    async def clickhouse():
        return shop.clickhouse

    await backfill.start_backfill(shop.db, await backfill.plan_backfill(
        shop.db, clickhouse, DEFAULT_ORG_ID, "shop", "fetch", "2026-03-01", "2026-03-02"))  # fmt: skip
    assert await ranges(shop) == [(1772344800, 1772431200)]  # 06:00 of both days


async def test_invalid_registration_is_refused(shop):
    await shop.deploy()
    with pytest.raises(RequestError, match="before it begins"):
        await register(shop, 9, 1)
    with pytest.raises(NotFoundError, match="There is no dataset"):
        await register(shop, 1, 9, name="nosuch")
    with pytest.raises(NotFoundError, match="There is no dataset"):
        await register_range(shop.db, Reader(DEFAULT_ORG_ID), "shop.raw", VersionRange(1, 9))
    with pytest.raises(ConflictError, match="written by its definition"):
        await register(shop, 1, 9, location="/srv/lake/*.parquet")
    assert await ranges(shop) == []
