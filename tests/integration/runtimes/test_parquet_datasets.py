"""Datasets stored as Parquet files, on the disk of ClickHouse and in S3."""

from __future__ import annotations

import json
from pathlib import Path

import boto3
import pytest

from aaiclick import failpoints
from aaiclick.catalog import dataset_queries
from aaiclick.catalog.deploy import deploy, roll_back
from aaiclick.catalog.errors import DagError
from aaiclick.catalog.execution import parquet_storage
from aaiclick.catalog.execution.definition_context import parse_files
from aaiclick.orchestration.loops.orphan_files import delete_orphan_files
from aaiclick.settings import get_settings
from aaiclick.store.catalog import dag_versions, event_routing, orphan_files
from aaiclick.store.catalog.datasets import Reader
from aaiclick.store.engine import queue
from aaiclick.store.enums import DEFAULT_ORG_ID
from tests.integration.catalog.conftest import SHOP, order

ALL = Reader(DEFAULT_ORG_ID, None)


def kept_in(prefix: str) -> str:
    """The shop DAG with all datasets in files."""
    storage = f"storage: {{kind: parquet, prefix: {prefix}}}"
    text = SHOP.replace("outputs: [raw]", f"outputs: [{{name: raw, {storage}}}]")
    text = text.replace("{name: orders, partition_by: day}", f"{{name: orders, partition_by: day, {storage}}}")
    text = text.replace("outputs: [daily]", f"outputs: [{{name: daily, {storage}}}]")
    return text.replace("lineage: {doubled", f"{storage}, lineage: {{doubled")


@pytest.fixture(params=["disk", "s3"])
async def storage(request, cloud, tmp_path, monkeypatch):
    """A prefix, and a function that lists its files."""
    prefix = f"{tmp_path}/lake/" if request.param == "disk" else "s3://lake/shop/"
    monkeypatch.setenv("AAICLICK_PARQUET_PREFIXES", prefix)
    get_settings.cache_clear()
    client = boto3.client("s3")
    client.create_bucket(Bucket="lake", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})

    def listed() -> set[str]:
        if request.param == "disk":
            return {str(path) for path in Path(prefix).rglob("*.parquet")}
        return {f"s3://lake/{entry['Key']}" for entry in client.list_objects_v2(Bucket="lake").get("Contents", ())}

    yield prefix, listed
    client.close()
    get_settings.cache_clear()


async def read(shop, name):
    rows = await dataset_queries.run_query(shop.db, shop.clickhouse, ALL, f"SELECT * FROM {name}")
    return sorted(tuple(row.values()) for row in rows.to_pylist())


async def pointed(shop) -> set[str]:
    rows = await shop.db.fetch("SELECT storage_location, files FROM dataset_versions")
    return {row["storage_location"] + file.name for row in rows for file in parse_files(row["files"])}


async def test_files_are_appended_replaced_and_read_by_name(shop, storage):
    prefix, listed = storage
    await shop.deploy(kept_in(prefix))
    failpoints.arm_faults("publish.before=error,publish.after=error@2,end.before=error@3", None)
    try:
        await shop.run(order(1, 1, 10), order(2, 1, 5), order(3, 2, 7))
        await shop.run(order(2, 1, 6), order(4, 3, 1))
    finally:
        failpoints.arm_faults("", None)
    assert await read(shop, "shop.raw") == [
        (1, "2026-01-01", 10), (2, "2026-01-01", 6), (3, "2026-01-02", 7), (4, "2026-01-03", 1),
    ]  # fmt: skip
    assert await read(shop, "daily") == [("2026-01-01", 16), ("2026-01-02", 7), ("2026-01-03", 1)]
    assert await read(shop, "shop.doubled") == [(1, 20), (2, 12), (3, 14), (4, 2)]
    rows = await dataset_queries.run_query(
        shop.db, shop.clickhouse, ALL, "SELECT count() AS n FROM shop.raw r JOIN daily d ON r.day = d.day"
    )
    assert rows.to_pylist() == [{"n": 4}]
    # Files of failed attempts and replaced files are still there and ignored.
    there = await pointed(shop)
    assert there < listed()
    tasks = await shop.db.fetchval("SELECT count(*) FROM tasks WHERE failures > 0")
    assert tasks
    await shop.check()
    assert "aaiclick-test-secret" not in json.dumps([dict(row) for row in await shop.db.fetch(
        "SELECT error, outputs FROM tasks")])  # fmt: skip


async def test_replaced_files_are_deleted_when_they_are_unreadable(shop, storage):
    prefix, listed = storage
    text = kept_in(prefix)
    await shop.deploy(text)
    failpoints.arm_faults("publish.before=error@2", None)
    try:
        await shop.run(order(1, 1, 10), order(2, 1, 5))
    finally:
        failpoints.arm_faults("", None)
    await shop.run(order(3, 2, 7))
    early = listed() - await pointed(shop)
    assert early  # of a failed attempt, and replaced
    await shop.emit("shop.raw", 1)
    await event_routing.route_events(shop.db)
    (reader, *_) = await queue.claim(shop.db, worker_id=1, limit=1, queues=["runtime:dispatcher"], lease_seconds=60)
    current_files = await pointed(shop)
    await shop.run(order(1, 1, 11), order(3, 2, 8))
    late = listed() - await pointed(shop) - early
    assert late & current_files  # the reader may be using them
    assert await delete_orphan_files(shop.db) == 0  # a query may be reading any of them
    # Marked files are deleted by the next pass if the first one dies.
    assert {
        file.location + file.name for file in await orphan_files.mark_orphan_files(shop.db, retention_seconds=0)
    } == early
    assert await delete_orphan_files(shop.db, retention_seconds=0) == 0
    assert await delete_orphan_files(shop.db, retention_seconds=0, retry_seconds=0) == len(early)
    assert listed() == await pointed(shop) | late
    await queue.acknowledge(shop.db, worker_id=1, releases=[reader.lease])
    assert await delete_orphan_files(shop.db, retention_seconds=0) == len(late)
    assert listed() == await pointed(shop)
    # Files of older versions are kept for a rollback.
    changed = text.replace("id > 0", "id > 1")
    begun = await deploy(shop.db, changed)
    assert await shop.finish(begun.job_id) == "COMPLETED"
    await deploy(shop.db, changed, resume=True)
    await delete_orphan_files(shop.db, retention_seconds=0)
    await roll_back(shop.db, "shop")
    assert await read(shop, "daily") == [("2026-01-01", 16), ("2026-01-02", 8)]
    # Files with other names are never deleted.
    await shop.db.execute(
        "INSERT INTO orphan_files (dataset_version, name, org_id, location, replaced_at) SELECT id, '../../x', $1, "
        "storage_location, now() FROM dataset_versions LIMIT 1",
        DEFAULT_ORG_ID,
    )
    assert await delete_orphan_files(shop.db, retention_seconds=0) == 0


async def test_many_appended_files_are_merged(shop, storage, monkeypatch):
    prefix, listed = storage
    monkeypatch.setattr(parquet_storage, "MAX_FILES", 2)
    text = kept_in(prefix)
    await shop.deploy(text[: text.index("  - name: tidy")])
    for number in range(4):
        await shop.run(order(number, 1, number), order(9, 1, number))
    assert await read(shop, "shop.raw") == [*((n, "2026-01-01", n) for n in range(4)), (9, "2026-01-01", 3)]
    assert len(await pointed(shop)) == 2  # two, then one merged from three updates, and one more
    assert len(listed()) == 4


async def test_missing_file_raises_an_error(shop, storage):
    prefix, _ = storage
    text = kept_in(prefix)
    await shop.deploy(text[: text.index("  - name: tidy")])
    await shop.run(order(1, 1, 10))
    await shop.db.execute(
        """UPDATE dataset_versions SET files = '[{"name": "gone.parquet", "slice": "", "rows": 1}]'"""
    )
    with pytest.raises(Exception, match=r"gone\.parquet|does not exist|NoSuchKey|not exist") as caught:
        await read(shop, "shop.raw")
    assert "aaiclick-test-secret" not in str(caught.value)


async def test_files_are_written_only_to_allowed_prefixes(shop, storage, tmp_path):
    _, listed = storage
    for prefix in (f"{tmp_path}/elsewhere/", "s3://another/"):
        with pytest.raises(DagError, match="may not store files there"):
            await shop.deploy(kept_in(prefix))
    with pytest.raises(DagError, match="A prefix is"):
        await shop.deploy(kept_in(f"{tmp_path}/lake/../*/"))
    assert not listed()


async def test_files_of_a_deleted_dag_are_deleted(shop, storage):
    prefix, listed = storage
    await shop.deploy(kept_in(prefix))
    await shop.run(order(1, 1, 10), order(2, 2, 5))
    assert listed() == await pointed(shop)
    async with shop.db.transaction():
        assert await dag_versions.lock_versions(shop.db, DEFAULT_ORG_ID, "shop")
        await dag_versions.delete_dag(shop.db, DEFAULT_ORG_ID, "shop")
    await delete_orphan_files(shop.db, retention_seconds=0)
    assert listed() == set()
