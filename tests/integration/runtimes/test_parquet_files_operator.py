"""External Parquet files as datasets, by prefix and glob, on disk and in S3 (moto)."""

from __future__ import annotations

import io
import json
from pathlib import Path

import boto3
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aaiclick.catalog import dataset_queries
from aaiclick.catalog.dataset_range_registration import register_range
from aaiclick.catalog.errors import DagError
from aaiclick.errors import ConflictError, ForbiddenError, RequestError
from aaiclick.settings import get_settings
from aaiclick.store.catalog.datasets import Reader, VersionRange
from aaiclick.store.enums import DEFAULT_ORG_ID

ALL = Reader(DEFAULT_ORG_ID, None)
JOBS = "tests.integration.runtimes.test_parquet_files_operator"
LAKE = """
name: lake
jobs:
  - name: files
    activation: source
    operator: parquet_files
    source: {{kind: manual}}
    outputs: [{{name: sales, {partition} storage: {{kind: parquet, prefix: "{prefix}", glob: "{glob}"}}}}]
  - name: sums
    activation: reactive
    operator: sql
    outputs: [totals]
    config: {{query: "SELECT day, sum(amount) AS total FROM sales GROUP BY day"}}
"""


class Lake:
    """A prefix with files of an external writer."""

    def __init__(self, prefix: str, client) -> None:
        self.prefix = prefix
        self._client = client

    def put(self, name: str, content: bytes) -> None:
        if self.prefix.startswith("s3://"):
            self._client.put_object(Bucket="lake", Key=f"{self.prefix.removeprefix('s3://lake/')}{name}", Body=content)
        else:
            path = Path(self.prefix) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def pandas(self, name: str, **columns) -> None:
        file = io.BytesIO()
        pd.DataFrame(columns).to_parquet(file)
        self.put(name, file.getvalue())

    def polars(self, name: str, **columns) -> None:
        file = io.BytesIO()
        pl.DataFrame(columns).write_parquet(file)
        self.put(name, file.getvalue())

    def arrow(self, name: str, **columns) -> None:
        file = io.BytesIO()
        pq.write_table(pa.table(columns), file, compression="snappy")
        self.put(name, file.getvalue())


@pytest.fixture(params=["disk", "s3"])
def lake(request, cloud, tmp_path, monkeypatch):
    prefix = f"{tmp_path}/lake/sales/" if request.param == "disk" else "s3://lake/sales/"
    monkeypatch.setenv("AAICLICK_PARQUET_PREFIXES", prefix)
    get_settings.cache_clear()
    client = boto3.client("s3")
    client.create_bucket(Bucket="lake", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    yield Lake(prefix, client)
    client.close()
    get_settings.cache_clear()


def dag(lake: Lake, glob: str, partition: str = "") -> str:
    by = f"partition_by: {partition}," if partition else ""
    return LAKE.format(prefix=lake.prefix, glob=glob, partition=by)


async def read(shop, sql: str) -> list[tuple]:
    rows = await dataset_queries.run_query(shop.db, shop.clickhouse, ALL, sql)
    return sorted(tuple(row.values()) for row in rows.to_pylist())


async def test_files_of_pandas_and_polars_are_a_dataset(shop, lake):
    lake.pandas("a.parquet", day=["mon", "tue"], amount=[1, 2])
    lake.polars("b.parquet", day=["mon"], amount=[10])
    await shop.deploy(dag(lake, "*.parquet"))
    await shop.run(dag="lake")
    assert await read(shop, "SELECT day, amount FROM lake.sales") == [("mon", 1), ("mon", 10), ("tue", 2)]
    assert await read(shop, "SELECT day, total FROM lake.totals") == [("mon", 11), ("tue", 2)]
    row = await shop.db.fetchrow("SELECT * FROM dataset_versions WHERE columns IS NOT NULL AND files <> '[]'")
    assert row["storage_location"] == f"{lake.prefix}*.parquet"
    assert row["rows"] == 3
    assert await shop.db.fetchval("SELECT count(*) FROM orphan_files") == 0  # external files are never deleted
    await shop.check()


async def test_partition_directories_of_spark_are_columns(shop, lake):
    lake.arrow("day=2026-01-01/part-00000-1a.c000.snappy.parquet", id=[1, 2], amount=[1.5, 2.5])
    lake.arrow("day=2026-01-02/part-00000-2b.c000.snappy.parquet", id=[3], amount=[4.0])
    lake.put("_SUCCESS", b"")
    lake.put("day=2026-01-02/.part-00000-2b.c000.snappy.parquet.crc", b"crc")
    await shop.deploy(dag(lake, "day=*/*.parquet", partition="day"))
    await shop.run(dag="lake")
    assert await read(shop, "SELECT id, toString(day), amount FROM lake.sales") == [
        (1, "2026-01-01", 1.5), (2, "2026-01-01", 2.5), (3, "2026-01-02", 4.0),
    ]  # fmt: skip
    assert await read(shop, "SELECT id FROM lake.sales WHERE day = '2026-01-02'") == [(3,)]
    keys = await shop.db.fetch("SELECT partition_key FROM dataset_partitions WHERE partition_key <> '' ORDER BY 1")
    assert [row["partition_key"] for row in keys] == ["2026-01-01", "2026-01-02"]


async def test_only_new_files_make_an_update(shop, lake):
    lake.polars("a.parquet", day=["mon"], amount=[1])
    await shop.deploy(dag(lake, "*.parquet"))
    await shop.run(dag="lake")
    again = await shop.run(dag="lake")
    types = "SELECT array_agg(type ORDER BY id) FROM tasks WHERE job_id = $1"
    assert await shop.db.fetchval(types, again) == ["lake.files"]
    lake.polars("b.parquet", day=["mon"], amount=[5])
    changed = await shop.run(dag="lake")
    assert await shop.db.fetchval(types, changed) == ["lake.files", "lake.sums"]
    assert await read(shop, "SELECT total FROM lake.totals") == [(6,)]


async def test_column_missing_in_older_files_is_null(shop, lake):
    lake.arrow("a.parquet", day=["mon"], amount=[1])
    lake.arrow("b.parquet", day=["tue"], amount=[2], note=["new"])
    await shop.deploy(dag(lake, "*.parquet"))
    await shop.run(dag="lake")
    assert await read(shop, "SELECT day, note FROM lake.sales") == [("mon", None), ("tue", "new")]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (None, "No file matches"),
        ("_temporary/0/half.parquet", "which is unfinished"),
        ("day=2026-01-01/c.parquet", "partition directories"),
    ],
)
async def test_invalid_dataset_fails_with_the_reason(shop, lake, name, message):
    if name is not None:
        lake.polars("x/a.parquet", day=["mon"], amount=[1])
        lake.polars(name, day=["mon"], amount=[1])
    await shop.deploy(dag(lake, "**/*.parquet"))
    await shop.db.execute("UPDATE job_definitions SET max_attempts = 1")
    assert await shop.finish(await shop.fire(dag="lake")) == "FAILED"
    (error,) = await shop.errors()
    assert message in error


async def test_a_location_of_another_organisation_cannot_be_registered(shop, lake, monkeypatch):
    lake.polars("a.parquet", day=["mon"], amount=[1])
    await shop.deploy(dag(lake, "*.parquet"))
    other = lake.prefix.replace("sales/", "acme/")
    monkeypatch.setenv("AAICLICK_PARQUET_PREFIXES", f"{lake.prefix},acme={other}")
    get_settings.cache_clear()
    for location in (f"{other}*.parquet", f"{other}secret.parquet"):
        with pytest.raises(ForbiddenError, match="may not store files"):
            await register_range(shop.db, ALL, "lake.sales", VersionRange(0, 9), location)
    assert await shop.db.fetchval("SELECT count(*) FROM dataset_versions WHERE range_start = 0") == 0


async def test_a_prefix_of_another_organisation_is_refused(shop, lake):
    text = dag(lake, "*.parquet").replace("sales/", "other/")
    with pytest.raises(DagError, match="may not store files there"):
        await shop.deploy(text)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("*.parquet", "../*.parquet", "A glob is a path below the prefix"),
        ("*.parquet", "/etc/*.parquet", "A glob is a path below the prefix"),
        ("*.parquet", "{a,b}.parquet", "A glob is a path below the prefix"),
        ("kind: parquet, ", "", "A glob is for files"),
        (
            "operator: parquet_files",
            "operator: http_fetch\n    config: {url: 'http://x/'}",
            "cannot write external files",
        ),
        (
            "source: {kind: manual}",
            "source: {kind: manual}\n    update_strategy: append\n    unique_key: [day]",
            "always read as a whole",
        ),
    ],
)
async def test_invalid_globs_are_refused(shop, lake, old, new, message):
    with pytest.raises(DagError, match=message):
        await shop.deploy(dag(lake, "*.parquet").replace(old, new))


def export(event) -> None:
    """Write files like an external program."""
    payload = event["payload"]
    Path(payload["directory"]).mkdir(parents=True, exist_ok=True)
    pl.DataFrame({"day": ["mon"], "amount": [payload["amount"]]}).write_parquet(f"{payload['directory']}/a.parquet")


async def test_a_function_writes_its_files_itself(shop, lake):
    if lake.prefix.startswith("s3://"):
        pytest.skip("the function writes to disk")
    text = dag(lake, "*.parquet").replace("parquet_files", "python")
    text = text.replace("  - name: sums", f'    config: {{function: "{JOBS}:export"}}\n  - name: sums')
    await shop.deploy(text)
    job_id = await shop.fire({"directory": lake.prefix, "amount": 3}, dag="lake")
    assert await shop.finish(job_id) == "COMPLETED", await shop.errors()
    assert await read(shop, "SELECT total FROM lake.totals") == [(3,)]
    outputs = await shop.db.fetchval("SELECT outputs FROM tasks WHERE type = 'lake.files'")
    assert json.loads(outputs)["sales"]["rows"] == 1


async def test_registered_ranges_are_read_together(shop, lake):
    lake.polars("main/a.parquet", day=["mon"], amount=[1])
    lake.polars("0/a.parquet", day=["mon"], amount=[10])
    lake.polars("1/a.parquet", day=["tue"], amount=[20])
    await shop.deploy(dag(lake, "main/*.parquet"))
    await shop.run(dag="lake")

    async def register(start, end, name):
        registered = await register_range(shop.db, ALL, "lake.sales", VersionRange(start, end), f"{lake.prefix}{name}")
        if registered.job_id is not None:
            assert await shop.finish(registered.job_id) == "COMPLETED", await shop.errors()
        return registered

    first = await register(0, 99, "0/*.parquet")
    assert (first.created, first.job_id is None) == (True, False)
    again = await register(0, 99, "0/*.parquet")
    assert (again.id, again.created, again.job_id) == (first.id, False, None)
    await register(100, 199, "1/*.parquet")
    assert await read(shop, "SELECT amount FROM lake.sales") == [(1,), (10,), (20,)]
    assert await read(shop, "SELECT day, total FROM lake.totals") == [("mon", 11), ("tue", 20)]
    with pytest.raises(ConflictError, match=r"overlaps the registered range 0\.\.99"):
        await register(50, 120, "2/*.parquet")
    with pytest.raises(ConflictError, match="is registered at"):
        await register(0, 99, "other/*.parquet")
    with pytest.raises(ForbiddenError, match="may not store files"):
        await register_range(shop.db, ALL, "lake.sales", VersionRange(500, 600), "/etc/*.parquet")
    for location in ("../*.parquet", f"{lake.prefix}../x/*.parquet", "relative/*.parquet", "http://x/*.parquet"):
        with pytest.raises(RequestError, match="not a prefix with a glob"):
            await register_range(shop.db, ALL, "lake.sales", VersionRange(500, 600), location)
    await shop.check()
