"""Datasets kept as Parquet files, on the disk of ClickHouse and in S3: the registry says which files they are."""

from __future__ import annotations

import json
from pathlib import Path

import boto3
import pytest

from aaiclick import faults
from aaiclick.catalog import datasets
from aaiclick.catalog.deploy import deploy, finish, roll_back
from aaiclick.catalog.errors import DagError
from aaiclick.catalog.running import parquet
from aaiclick.catalog.running.work import files_of
from aaiclick.orchestration.loops.loose_files import delete_loose_files
from aaiclick.settings import get_settings
from aaiclick.store import event_routing, loose_files, queue
from aaiclick.store.catalog_datasets import Reader
from aaiclick.store.words import DEFAULT_ORG_ID
from tests.integration.catalog.conftest import SHOP, order

ALL = Reader(DEFAULT_ORG_ID, None)


def kept_in(prefix: str) -> str:
    """The shop, with all that it makes in files."""
    storage = f"storage: {{kind: parquet, prefix: {prefix}}}"
    text = SHOP.replace("outputs: [raw]", f"outputs: [{{name: raw, {storage}}}]")
    text = text.replace("{name: orders, partition_by: day}", f"{{name: orders, partition_by: day, {storage}}}")
    text = text.replace("outputs: [daily]", f"outputs: [{{name: daily, {storage}}}]")
    return text.replace("lineage: {doubled", f"{storage}, lineage: {{doubled")


@pytest.fixture(params=["disk", "s3"])
async def place(request, cloud, tmp_path, monkeypatch):
    """A prefix, and what lies under it."""
    prefix = f"{tmp_path}/lake/" if request.param == "disk" else "s3://lake/shop/"
    monkeypatch.setenv("AAICLICK_PARQUET_PREFIXES", prefix)
    get_settings.cache_clear()
    client = boto3.client("s3")
    client.create_bucket(Bucket="lake", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})

    def listed() -> set[str]:
        if request.param == "disk":
            return {str(each) for each in Path(prefix).rglob("*.parquet")}
        return {f"s3://lake/{each['Key']}" for each in client.list_objects_v2(Bucket="lake").get("Contents", ())}

    yield prefix, listed
    client.close()
    get_settings.cache_clear()


async def read(shop, name):
    found = await datasets.query(shop.db, shop.clickhouse, ALL, f"SELECT * FROM {name}")
    return sorted(tuple(each.values()) for each in found.to_pylist())


async def pointed(shop) -> set[str]:
    rows = await shop.db.fetch("SELECT storage_location, files FROM dataset_versions")
    return {row["storage_location"] + each.name for row in rows for each in files_of(row)}


async def test_files_are_appended_replaced_and_read_by_name(shop, place):
    prefix, listed = place
    await shop.deploy(kept_in(prefix))
    faults.arm("publish.before=error,publish.after=error@2,end.before=error@3", None)
    try:
        await shop.run(order(1, 1, 10), order(2, 1, 5), order(3, 2, 7))
        await shop.run(order(2, 1, 6), order(4, 3, 1))
    finally:
        faults.arm("", None)
    assert await read(shop, "shop.raw") == [
        (1, "2026-01-01", 10), (2, "2026-01-01", 6), (3, "2026-01-02", 7), (4, "2026-01-03", 1),
    ]  # fmt: skip
    assert await read(shop, "daily") == [("2026-01-01", 16), ("2026-01-02", 7), ("2026-01-03", 1)]
    assert await read(shop, "shop.doubled") == [(1, 20), (2, 12), (3, 14), (4, 2)]
    found = await datasets.query(
        shop.db, shop.clickhouse, ALL, "SELECT count() AS n FROM shop.raw r JOIN daily d ON r.day = d.day"
    )
    assert found.to_pylist() == [{"n": 4}]
    # Files of attempts that failed, and those that were replaced, lie there and are nothing.
    there = await pointed(shop)
    assert there < listed()
    tasks = await shop.db.fetchval("SELECT count(*) FROM tasks WHERE failures > 0")
    assert tasks
    await shop.check()
    assert "aaiclick-test-secret" not in json.dumps([dict(row) for row in await shop.db.fetch(
        "SELECT error, outputs FROM tasks")])  # fmt: skip


async def test_files_that_were_replaced_are_deleted_when_nobody_can_read_them(shop, place):
    prefix, listed = place
    text = kept_in(prefix)
    await shop.deploy(text)
    faults.arm("publish.before=error@2", None)
    try:
        await shop.run(order(1, 1, 10), order(2, 1, 5))
    finally:
        faults.arm("", None)
    await shop.run(order(3, 2, 7))
    early = listed() - await pointed(shop)
    assert early  # of an attempt that failed, and replaced
    await shop.emit("shop.raw", 1)
    await event_routing.route(shop.db)
    (reader, *_) = await queue.claim(shop.db, worker_id=1, limit=1, queues=["runtime:dispatcher"], lease_seconds=60)
    kept = await pointed(shop)
    await shop.run(order(1, 1, 11), order(3, 2, 8))
    late = listed() - await pointed(shop) - early
    assert late & kept  # the reader may be at them
    assert await delete_loose_files(shop.db) == 0  # a query may be at any of them
    # Whoever marks files and dies leaves them to the next one.
    assert {each.location + each.name for each in await loose_files.mark(shop.db, kept_seconds=0)} == early
    assert await delete_loose_files(shop.db, kept_seconds=0) == 0
    assert await delete_loose_files(shop.db, kept_seconds=0, again_seconds=0) == len(early)
    assert listed() == await pointed(shop) | late
    await queue.acknowledge(shop.db, worker_id=1, releases=[reader.lease])
    assert await delete_loose_files(shop.db, kept_seconds=0) == len(late)
    assert listed() == await pointed(shop)
    # What an older version is stays, for the way back.
    begun = await deploy(shop.db, text.replace("id > 0", "id > 1"))
    assert await shop.finish(begun.job_id) == "COMPLETED"
    await finish(shop.db, begun)
    await delete_loose_files(shop.db, kept_seconds=0)
    await roll_back(shop.db, "shop")
    assert await read(shop, "daily") == [("2026-01-01", 16), ("2026-01-02", 8)]
    # Nothing is deleted that does not have a name of ours.
    await shop.db.execute(
        "INSERT INTO loose_files (dataset_version, name, org_id, location, replaced_at) SELECT id, '../../x', $1, "
        "storage_location, now() FROM dataset_versions LIMIT 1",
        DEFAULT_ORG_ID,
    )
    assert await delete_loose_files(shop.db, kept_seconds=0) == 0


async def test_many_appended_files_become_one(shop, place, monkeypatch):
    prefix, listed = place
    monkeypatch.setattr(parquet, "MOST_FILES", 2)
    text = kept_in(prefix)
    await shop.deploy(text[: text.index("  - name: tidy")])
    for number in range(4):
        await shop.run(order(number, 1, number), order(9, 1, number))
    assert await read(shop, "shop.raw") == [*((n, "2026-01-01", n) for n in range(4)), (9, "2026-01-01", 3)]
    assert len(await pointed(shop)) == 2  # two, then one of three updates, and one more
    assert len(listed()) == 4


async def test_a_file_that_is_gone_is_an_error_and_not_fewer_rows(shop, place):
    prefix, _ = place
    text = kept_in(prefix)
    await shop.deploy(text[: text.index("  - name: tidy")])
    await shop.run(order(1, 1, 10))
    await shop.db.execute(
        """UPDATE dataset_versions SET files = '[{"name": "gone.parquet", "slice": "", "rows": 1}]'"""
    )
    with pytest.raises(Exception, match=r"gone\.parquet|does not exist|NoSuchKey|not exist") as caught:
        await read(shop, "shop.raw")
    assert "aaiclick-test-secret" not in str(caught.value)


async def test_files_are_kept_only_where_the_organisation_may(shop, place, tmp_path):
    _, listed = place
    for prefix in (f"{tmp_path}/elsewhere/", "s3://another/"):
        with pytest.raises(DagError, match="may not keep files there"):
            await shop.deploy(kept_in(prefix))
    with pytest.raises(DagError, match="A prefix is"):
        await shop.deploy(kept_in(f"{tmp_path}/lake/../*/"))
    assert not listed()
