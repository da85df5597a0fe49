"""Data tests with random violations, killed workers and concurrent readers: no reader sees a row that fails."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter

import pytest

from aaiclick.catalog import dataset_queries
from aaiclick.catalog.errors import DatasetError
from aaiclick.orchestration import RetryPolicy, set_retry_policy
from aaiclick.settings import get_settings
from aaiclick.store.catalog.datasets import Reader
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.postgres_connections import connect
from tests.integration.catalog.conftest import JOBS
from tests.integration.catalog.test_crash_recovery import start_worker

ALL = Reader(DEFAULT_ORG_ID, None)
READERS = 8 if "KILL_TEST_SEEDS" in os.environ else 3
PAUSE_SECONDS = 0.3
MIN_READS = 10
BUDGET_SECONDS = 300
BLOCKED_CUSTOMER = "eve"
"""In the row that blocks a batch; only a batch that must never be public has it."""

WORKER_OPTIONS = os.environ.get("KILL_TEST_WORKER", "").split()
SEEDS = range(*(int(bound) for bound in os.environ.get("KILL_TEST_SEEDS", "1").split(":")))
FAILPOINTS = {
    f"{name}.{when}": passes
    for name, passes in (("publish", 6), ("end", 6), ("announce_publish", 1))
    for when in ("before", "after")
}
"""Where workers are killed, at most at which pass; only appended rows in ClickHouse are announced."""

TESTS = f"""tests:
          - unique: [code]
            on_failure: quarantine
          - not_null: [customer]
            on_failure: quarantine
          - between: {{column: euros, low: 0, high: 100, on_failure: quarantine}}
          - sql: SELECT * FROM this WHERE customer = '{BLOCKED_CUSTOMER}'
          - rows: {{at_most: 1000}}"""
DEFINITION = """
  - name: {name}
    activation: reactive
    operator: sql
    {strategy}
    outputs:
      - name: {name}
        {storage}
        {tests}
    config: {{query: "SELECT id, code, day, euros, customer FROM raw"}}"""


def make_dag(prefix):
    files = f"storage: {{kind: parquet, prefix: {prefix}}}"
    append, slices = "update_strategy: append\n    unique_key: [id]", "execution_strategy: PerPartition"
    variants = {
        "replaced": ("", ""), "sliced": (slices, ""), "appended": (append, ""), "files": ("", files),
        "sliced_files": (slices, files), "appended_files": (append, files),
    }  # fmt: skip
    definitions = [
        DEFINITION.format(name=name, strategy=strategy, storage=storage, tests=TESTS)
        for name, (strategy, storage) in variants.items()
    ]
    source = f"""name: shop
defaults: {{max_attempts: 50}}
jobs:
  - name: fetch
    activation: source
    operator: python
    source: {{kind: manual}}
    outputs: [{{name: raw, partition_by: day}}]
    config: {{function: "{JOBS}:fetch"}}"""
    return source + "".join(definitions) + f"\npublish: [{', '.join(variants)}]", list(variants)


def random_rows(random_, first_id, count, blocked):
    rows = [
        {
            "id": first_id + number,
            "code": random_.choice([first_id + number, random_.randrange(first_id + count)]),
            "day": f"2026-01-0{random_.randint(1, 2)}",
            "euros": random_.choice([-1, 5, 50, 100, 101]),
            "customer": random_.choice(["ann", "bob", None]),
        }
        for number in range(count)
    ]
    if blocked:
        rows[random_.randrange(count)] |= {"euros": 5, "customer": BLOCKED_CUSTOMER, "code": 10_000}
    return rows


def violations(rows):
    codes = Counter(row["code"] for row in rows)
    return [
        row for row in rows
        if row["customer"] in (None, BLOCKED_CUSTOMER) or not 0 <= row["euros"] <= 100 or codes[row["code"]] > 1
    ]  # fmt: skip


async def read_for_ever(shop, postgres, names, failures, reads):
    """Read each dataset again and again; only a dataset without rows may raise an error."""
    connection = await connect(postgres)
    try:
        while True:
            for name in names:
                try:
                    result = await dataset_queries.run_query(connection, shop.clickhouse, ALL, f"SELECT * FROM {name}")
                except DatasetError as error:
                    if "has no rows yet" in str(error):
                        continue
                    raise
                failures += [(name, row) for row in violations(result.to_pylist())]
                reads[name] += 1
            await asyncio.sleep(PAUSE_SECONDS)
    finally:
        await connection.close()


class RestartedWorker:
    """A worker that is started again after a fault has killed its supervisor, as an init system does."""

    def __init__(self, marks, stderr, **variables) -> None:
        self.starts = 0
        self._marks, self._stderr, self._variables = marks, stderr, variables
        self._process = self._start()

    def _start(self):
        self.starts += 1
        return start_worker(self._marks, *WORKER_OPTIONS, stderr=self._stderr, **self._variables)

    def keep_running(self):
        if self._process.poll() is not None:
            self._process = self._start()

    async def stop(self):
        self._process.terminate()
        await asyncio.to_thread(self._process.wait, 30)


async def finish(shop, job_id, worker, readers, deadline, stderr):
    """Wait until a job ends; return its status."""
    while True:
        ended = "SELECT status::text FROM jobs WHERE id = $1 AND completed_at IS NOT NULL"
        if status := await shop.db.fetchval(ended, job_id):
            return status
        for reader in readers:
            if reader.done():
                reader.result()
        if time.monotonic() > deadline:
            tasks = await shop.db.fetch(
                "SELECT type, status, attempt, run_at, error FROM tasks WHERE job_id = $1", job_id
            )
            pytest.fail(f"The job has not ended: {[dict(task) for task in tasks]}\n{stderr.read_text()[-5000:]}")
        worker.keep_running()
        await asyncio.sleep(0.1)


async def read(shop, name):
    result = await dataset_queries.run_query(shop.db, shop.clickhouse, ALL, f"SELECT * FROM {name}")
    return [(row["id"], row["code"], row["day"], row["euros"], row["customer"]) for row in result.to_pylist()]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", SEEDS)
async def test_readers_see_no_failing_row_despite_kills(
    shop, aaiclick_postgres, seed, tmp_path, monkeypatch
):  # fmt: skip
    random_ = random.Random(seed)
    monkeypatch.setenv("AAICLICK_PARQUET_PREFIXES", f"{tmp_path}/lake/")
    monkeypatch.setenv("AAICLICK_LOG_DIR", str(tmp_path / "logs"))
    get_settings.cache_clear()
    text, names = make_dag(f"{tmp_path}/lake/")
    await shop.deploy(text)
    for name in ["fetch", *names]:
        await set_retry_policy(f"shop.{name}", RetryPolicy(base_seconds=0.01, cap_seconds=0.01))
    marks = tmp_path / "marks"
    marks.mkdir()
    armed = ",".join(f"{point}=kill@{random_.randint(1, passes)}" for point, passes in FAILPOINTS.items())
    failures, reads, produced = [], Counter(), []
    readers = [
        asyncio.create_task(read_for_ever(shop, aaiclick_postgres, names, failures, reads)) for _ in range(READERS)
    ]
    stderr, deadline = tmp_path / "stderr", time.monotonic() + BUDGET_SECONDS
    with stderr.open("w") as stream:
        worker = RestartedWorker(marks, stream, AAICLICK_FAULTS=armed)
        try:
            for number in range(3):
                rows = random_rows(random_, 1_000 * number, 40, blocked=number == 1)
                produced += rows if number != 1 else []
                job_id = await shop.fire({"rows": rows})
                status = await finish(shop, job_id, worker, readers, deadline, stderr)
                assert (status == "FAILED") == (number == 1), await shop.errors()
        finally:
            await worker.stop()
            for reader in readers:
                reader.cancel()
            ended_readers = await asyncio.gather(*readers, return_exceptions=True)
            get_settings.cache_clear()
    assert [error for error in ended_readers if not isinstance(error, asyncio.CancelledError)] == []
    print(f"seed {seed}: {armed}; the worker was started {worker.starts} times; reads: {min(reads.values())}")
    assert failures == []
    assert {name: reads[name] for name in names if reads[name] < MIN_READS} == {}
    assert len(list(marks.iterdir())) == len(FAILPOINTS)
    for name in names:
        expected = produced if name.startswith("appended") else rows
        both = Counter([*await read(shop, name), *await read(shop, f"{name}__rejected")])
        assert both == Counter(tuple(row.values()) for row in expected), name
    await shop.check()
