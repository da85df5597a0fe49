"""Datasets as readers see them: by name, one version at a time, and nothing that they may not read."""

from __future__ import annotations

import asyncio
import json
import os

import httpx
import pytest
from click.testing import CliRunner

from aaiclick.catalog import datasets
from aaiclick.catalog.deploy import deploy, finish, roll_back
from aaiclick.catalog.errors import DatasetError, QueryRefusedError
from aaiclick.catalog.made import made_in_words
from aaiclick.catalog.queries.dataset_sql import Limits
from aaiclick.catalog.readable import as_seen
from aaiclick.cli.datasets import datasets as command
from aaiclick.data.errors import QueryError
from aaiclick.errors import NotFoundError
from aaiclick.store import catalog_datasets, users
from aaiclick.store.catalog_datasets import Reader
from aaiclick.store.engine import connect
from aaiclick.store.keys import create_key
from aaiclick.store.words import DEFAULT_ORG_ID
from tests.integration.catalog.conftest import SHOP, order
from tests.integration.server.conftest import start_server

EVERYTHING = Reader(DEFAULT_ORG_ID, None)
BOTH = "SELECT (SELECT sum(total) FROM daily) AS total, (SELECT count() FROM shop.orders) AS orders"


async def asked(shop, text, reader=EVERYTHING, limits=None):
    table = await datasets.query(shop.db, shop.clickhouse, reader, text, limits)
    return [tuple(row.values()) for row in table.to_pylist()]


async def test_a_reader_through_many_swaps_sees_one_version_or_the_other(shop, aaiclick_postgres):
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
    for turn in range(30):
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
    # What a task made is told by its outputs; what it was given tells of its inputs.
    rows = await shop.db.fetch("SELECT * FROM tasks ORDER BY id")
    seen = {row["type"]: row for row in await as_seen(shop.db, reader, rows)}
    assert [made_in_words(row["outputs"]) for row in seen.values()] == ["", "", "daily: 1 rows", ""]
    assert json.loads(seen["shop.sums"]["result"])["daily"]["rows"] == 1
    assert {row["kwargs"] for row in seen.values()} == {"{}"}
    assert await as_seen(shop.db, EVERYTHING, rows) == rows
    # What it is made from stays hidden, and so do the edges and columns that lead there.
    assert await datasets.lineage(shop.db, reader, "daily") == datasets.Graph()
    with pytest.raises(QueryRefusedError):
        await asked(shop, "SELECT total, id FROM daily JOIN shop.orders USING (day)", reader)
    await catalog_datasets.set_read_roles(shop.db, DEFAULT_ORG_ID, "shop.orders", ["finance"])
    (sums,) = await as_seen(shop.db, reader, [row for row in rows if row["type"] == "shop.sums"])
    assert json.loads(sums["kwargs"])["definition"]


async def test_over_http_no_task_no_job_and_no_page_names_a_dataset_that_is_hidden(shop, tmp_path):
    await shop.deploy()
    dataset = await catalog_datasets.find_dataset(shop.db, EVERYTHING, "daily")
    done = [await shop.run(order(1, 1, 10)), await shop.run(order(1, 1, 10))]
    again = await catalog_datasets.rematerialize(shop.db, DEFAULT_ORG_ID, dataset["id"], "daily")
    assert await shop.finish(again) == "COMPLETED"
    tasks = [row["id"] for row in await shop.db.fetch("SELECT id FROM tasks")]
    paths = ["/v1/tasks", "/v1/jobs", "/jobs", *(f"/v1/tasks/{each}" for each in tasks)]
    paths += [f"/v1/jobs/{job_id}{part}" for job_id in [*done, again] for part in ("", "/results", "/events")]
    paths += [
        f"/jobs/{job_id}?view={view}" for job_id in [*done, again] for view in ("graph", "tasks", "events", "log")
    ]
    paths += [f"/tasks/{each}" for each in tasks]
    keys = {
        role: (await create_key(shop.db, org_id=DEFAULT_ORG_ID, name=role, scopes=[role])).text
        for role in ("reader", "admin")
    }
    server = start_server(dict(os.environ), tmp_path / "server.log")

    def told(role):
        """What each path answers whoever has a key of the role."""
        with httpx.Client(base_url=server.url, timeout=30) as browser:
            csrf = browser.get("/sign-in").text.partition('name="csrf" value="')[2].partition('"')[0]
            assert browser.post("/sign-in", data={"csrf": csrf, "credential": keys[role]}).status_code == 303
            bearer = {"Authorization": f"Bearer {keys[role]}"}
            found = {path: browser.get(path, headers=bearer if path.startswith("/v1") else None) for path in paths}
        assert {answer.status_code for answer in found.values()} == {200}
        return {path: answer.text for path, answer in found.items()}

    try:
        names = ("daily", "orders", "raw", "doubled")
        everything = " ".join(told("admin").values())
        assert all(name in everything for name in names)
        assert [(path, name) for path, text in told("reader").items() for name in names if name in text] == []
    finally:
        server.stop()


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
