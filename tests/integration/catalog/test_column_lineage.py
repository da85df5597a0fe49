"""Column lineage is that of the serving version: during a deploy, after a failed one, and after a rollback."""

from __future__ import annotations

import pytest

from aaiclick.catalog import dataset_queries
from aaiclick.catalog.deploy import deploy, roll_back
from aaiclick.store.catalog.datasets import Reader
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.ui import dag_queries
from tests.integration.catalog.conftest import SHOP, order

EVERYTHING = Reader(DEFAULT_ORG_ID, None)
OTHER_TOTAL = SHOP.replace("sum(amount) AS total", "sum(id) AS total")


async def sources_of(shop, dataset, column):
    """Return the input columns of a column, from the API's query and from that of the dataset page."""
    graph = await dataset_queries.trace_lineage(shop.db, EVERYTHING, dataset)
    by_api = {edge.source for edge in graph.columns if edge.target == f"{dataset}.{column}"}
    dataset_id = await shop.db.fetchval("SELECT id FROM datasets WHERE name = $1", dataset)
    by_page = {
        f"{row['input_name']}.{row['input_column']}"
        for row in await dag_queries.list_column_lineage(shop.db, dataset_id)
        if row["output_column"] == column
    }
    assert by_api == by_page
    return by_api


async def test_lineage_changes_with_the_swap_and_back_with_a_rollback(shop):
    await shop.deploy()
    await shop.run(order(1, 1, 10))
    assert await sources_of(shop, "daily", "total") == {"shop.orders.amount"}
    started = await deploy(shop.db, OTHER_TOTAL)
    assert await shop.finish(started.job_id) == "COMPLETED"
    assert await sources_of(shop, "daily", "total") == {"shop.orders.amount"}
    await deploy(shop.db, OTHER_TOTAL, resume=True)
    assert await sources_of(shop, "daily", "total") == {"shop.orders.id"}
    await roll_back(shop.db, "shop")
    assert await sources_of(shop, "daily", "total") == {"shop.orders.amount"}


async def test_a_failed_deploy_leaves_the_lineage(shop):
    await shop.deploy()
    await shop.run(order(1, 1, 10))
    failing = OTHER_TOTAL.replace("FROM raw WHERE id > 0", "FROM raw WHERE id > 0 AND id < 9")  # fills orders again
    failing = failing.replace(":double", ":fail_always").replace("max_attempts: 5", "max_attempts: 1")
    started = await deploy(shop.db, failing)
    assert await shop.finish(started.job_id) == "FAILED"
    assert await sources_of(shop, "daily", "total") == {"shop.orders.amount"}


@pytest.mark.parametrize("declared", ["lineage: {doubled: [orders.id]}", "lineage: {}"])
async def test_declared_lineage_changes_with_the_swap_without_a_rebuild(shop, declared):
    await shop.deploy()
    assert await sources_of(shop, "shop.doubled", "doubled") == {"shop.orders.amount"}
    await shop.run(order(1, 1, 10))
    changed = await shop.deploy(SHOP.replace("lineage: {doubled: [orders.amount]}", declared))
    assert (changed.serves, changed.built) == (True, ())
    expected = {"shop.orders.id"} if "orders" in declared else set[str]()
    assert await sources_of(shop, "shop.doubled", "doubled") == expected
    await shop.run(order(2, 1, 10))
    assert await sources_of(shop, "shop.doubled", "doubled") == expected
    await roll_back(shop.db, "shop")
    assert await sources_of(shop, "shop.doubled", "doubled") == {"shop.orders.amount"}
