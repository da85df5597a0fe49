"""Datasets as readers see them: by name, one version at a time, and nothing that they may not read."""

from __future__ import annotations

import asyncio

import pytest
from click.testing import CliRunner

from aaiclick.catalog import datasets
from aaiclick.catalog.deploy import deploy, finish, roll_back
from aaiclick.catalog.errors import DatasetError, QueryRefusedError
from aaiclick.catalog.queries.dataset_sql import Limits
from aaiclick.cli.datasets import datasets as command
from aaiclick.data.errors import QueryError
from aaiclick.errors import NotFoundError
from aaiclick.store import catalog_datasets, users
from aaiclick.store.catalog_datasets import Reader
from aaiclick.store.engine import connect
from aaiclick.store.words import DEFAULT_ORG_ID
from tests.integration.catalog.conftest import SHOP, order

EVERYTHING = Reader(DEFAULT_ORG_ID, None)
BOTH = "SELECT (SELECT sum(total) FROM daily) AS total, (SELECT count() FROM shop.orders) AS orders"


async def asked(shop, text, reader=EVERYTHING, limits=None):
    table = await datasets.query(shop.db, shop.clickhouse, reader, text, limits)
    return [tuple(row.values()) for row in table.to_pylist()]


async def test_a_reader_through_a_hundred_swaps_sees_one_version_or_the_other(shop, aaiclick_postgres):
    await shop.deploy()
    await shop.run(order(1, 1, 10), order(2, 1, 20), order(3, 2, 30))
    begun = await deploy(shop.db, SHOP.replace("id > 0", "id > 1"))
    await shop.finish(begun.job_id)
    await finish(shop.db, begun)
    other = await connect(aaiclick_postgres)
    seen, done = set(), asyncio.Event()

    async def read():
        while not done.is_set():
            (answer,) = await asked(shop, BOTH)
            seen.add(answer)

    reading = asyncio.create_task(read())
    first = None
    for turn in range(100):
        back = await roll_back(other, "shop", first if turn % 2 == 0 else begun.version_hash)
        first = first or back.version_hash
    done.set()
    await reading
    assert seen == {(60, 3), (50, 2)}
    await other.close()


async def test_who_has_no_role_sees_no_dataset_no_lineage_no_rows_and_no_hint(shop):
    await shop.deploy()
    await shop.run(order(1, 1, 10))
    ada = await users.create_user(shop.db, DEFAULT_ORG_ID, external_id="ada", email=None, role="reader")
    role = await users.create_role(shop.db, DEFAULT_ORG_ID, slug="finance", name="Finance")
    nobody = await catalog_datasets.reader_of(shop.db, DEFAULT_ORG_ID, "ada")
    for reader in (nobody, await catalog_datasets.reader_of(shop.db, DEFAULT_ORG_ID, "stranger")):
        assert await catalog_datasets.visible(shop.db, reader) == []
        words = set()
        for name in ("daily", "dairy"):
            with pytest.raises(NotFoundError) as missing:
                await datasets.lineage(shop.db, reader, name)
            with pytest.raises(QueryRefusedError) as refused:
                await asked(shop, f"SELECT * FROM {name}", reader)
            words.add((str(missing.value).replace(name, "?"), str(refused.value).replace(name, "?")))
        assert len(words) == 1
    await catalog_datasets.set_read_roles(shop.db, DEFAULT_ORG_ID, "daily", ["finance"])
    await users.add_member(shop.db, DEFAULT_ORG_ID, role["id"], ada["id"])
    reader = await catalog_datasets.reader_of(shop.db, DEFAULT_ORG_ID, "ada")
    assert await asked(shop, "SELECT * FROM daily", reader) == [("2026-01-01", 10)]
    # What it is made from stays hidden, and so do the edges and columns that lead there.
    assert await datasets.lineage(shop.db, reader, "daily") == datasets.Graph()
    with pytest.raises(QueryRefusedError):
        await asked(shop, "SELECT total, id FROM daily JOIN shop.orders USING (day)", reader)


async def test_lineage_goes_up_and_down_to_the_column(shop):
    await shop.deploy()
    await shop.run(order(1, 1, 10))
    up = await datasets.lineage(shop.db, EVERYTHING, "daily")
    assert [(each.source, each.job, each.target) for each in up.edges] == [
        ("shop.orders", "shop.sums", "daily"), ("shop.raw", "shop.tidy", "shop.orders"),
    ]  # fmt: skip
    assert datasets.ColumnEdge("shop.raw.amount", "shop.orders.amount") in up.columns
    assert datasets.ColumnEdge("shop.orders.amount", "daily.total") in up.columns
    down = await datasets.lineage(shop.db, EVERYTHING, "shop.raw", "down")
    assert down.datasets == ["daily", "shop.doubled", "shop.orders", "shop.raw"]


async def test_limits_end_a_query_and_what_is_not_made_yet_is_said(shop):
    await shop.deploy()
    with pytest.raises(DatasetError, match="'daily' has no rows yet"):
        await asked(shop, "SELECT * FROM daily")
    await shop.run(order(1, 1, 10), order(2, 2, 10))
    with pytest.raises(QueryError, match="Limit for result"):
        await asked(shop, "SELECT * FROM daily", limits=Limits(result_rows=1))


async def test_a_dataset_is_made_again_with_all_that_follows(shop):
    await shop.deploy()
    await shop.run(order(1, 1, 10))
    table = await shop.db.fetchval("SELECT storage_location FROM dataset_versions v JOIN datasets d "
                                   "ON d.id = v.dataset_uuid WHERE d.name = 'shop.orders'")  # fmt: skip
    await shop.clickhouse.run(f"TRUNCATE TABLE {table}")
    found = await catalog_datasets.find_dataset(shop.db, EVERYTHING, "shop.orders")
    job_id = await catalog_datasets.rematerialize(shop.db, DEFAULT_ORG_ID, found["id"], "shop.orders")
    assert await shop.finish(job_id) == "COMPLETED"
    assert await shop.rows("shop.orders") == [(1, "2026-01-01", 10)]


async def test_the_commands_say_what_there_is(shop):
    await shop.deploy()
    await shop.run(order(1, 1, 10))

    async def said(*words):
        result = await asyncio.to_thread(CliRunner().invoke, command, [*words], catch_exceptions=False)
        return result.stdout

    assert "daily\tshop.sums\t1\t" in await said("ls")
    assert "column\ttotal\tInt64" in await said("show", "daily")
    assert "shop.raw\tshop.tidy\tshop.orders" in await said("lineage", "daily")
    assert "shop.orders.amount\tdaily.total" in await said("lineage", "daily", "--columns")
    assert await said("query", "SELECT day, total FROM daily") == "day\ttotal\n2026-01-01\t10\n"
    assert await said("ls", "--as", "nobody") == "\n"
