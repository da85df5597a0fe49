"""A reactive DAG workload: sales are appended, cleaned and summed by day; each step triggers the next by an event.

Whatever fails or is repeated, in the end every sale is there exactly once and every sum is right.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from aaiclick.catalog.execution.dataset_tables import DatasetLayout
from aaiclick.data.runtime.clickhouse_client import ClickHouseClient
from aaiclick.store.catalog import dag_versions
from aaiclick.store.enums import DEFAULT_ORG_ID

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

DAG_NAME = "chaos"
DEFINITIONS = ("sell", "tidy", "sums", "totals")
EXACTLY_ONCE = ("sell", "tidy")
"""Steps that run exactly once per trigger; sums run per changed day, unless another run covered them."""
TASKS_PER_RUN = 4
"""Approximate number of tasks per trigger."""

DAG = """
name: chaos
defaults: {max_attempts: 100}
jobs:
  - name: sell
    activation: source
    operator: python
    source: {kind: cron, schedule: "0 6 1 1 *"}
    outputs: [raw]
    update_strategy: append
    unique_key: [id]
    config: {function: "aaiclick.chaos.tasks:sell"}
  - name: tidy
    activation: reactive
    operator: sql
    outputs: [{name: sales, partition_by: day}]
    config: {query: "SELECT id, day, amount FROM raw WHERE id > 0"}
  - name: sums
    activation: reactive
    operator: sql
    execution_strategy: PerPartition
    outputs: [daily]
    config: {query: "SELECT day, sum(amount) AS total FROM sales GROUP BY day"}
  - name: totals
    activation: reactive
    operator: sql
    execution_strategy: Coalesce
    outputs: [total]
    config: {query: "SELECT count() AS sales, sum(amount) AS amount FROM sales"}
publish: [daily]
"""


Row = tuple[object, ...]
SALE = ("id", "day", "amount")
CAUSED = """
    SELECT job_id, type, coalesce(partitions[1], '') AS part, count(*) AS tasks FROM tasks
    WHERE starts_with(type, $1 || '.') GROUP BY job_id, type, part
"""


async def find_differences(
    connection: Connection, clickhouse: ClickHouseClient, records: list[dict[str, Any]]
) -> list[str]:
    """Return sales and sums that differ from the acknowledged ones, and steps that did not run exactly once."""
    acknowledged = {record["key"]: record["job"] for record in records if record.get("acknowledged") == "flow"}
    requests = [record for record in records if record.get("requested") == "flow"]
    if not requests:
        return []
    requested = Counter(tuple(row[column] for column in SALE) for record in requests for row in record["rows"])
    confirmed = Counter(
        tuple(row[column] for column in SALE)
        for record in requests
        if record["key"] in acknowledged
        for row in record["rows"]
    )
    raw = await _count_rows(connection, clickhouse, f"{DAG_NAME}.raw", SALE)
    tidied = await _count_rows(connection, clickhouse, f"{DAG_NAME}.sales", SALE)
    sums = await _count_rows(connection, clickhouse, "daily", ("day", "total"))
    findings = [f"the sale {row} is missing in the dataset" for row in confirmed - raw]
    findings += [
        f"the sale {row} is there {raw[row]} times, requested {requested[row]} times" for row in raw - requested
    ]
    findings += [
        f"the sale {row} was added {raw[row]} times and cleaned {tidied[row]} times"
        for row in _find_mismatches(raw, tidied)
    ]
    total = await _count_rows(connection, clickhouse, f"{DAG_NAME}.total", ("sales", "amount"))
    expected = tidied.total(), sum(int(str(amount)) * count for (_, _, amount), count in tidied.items())
    if total != Counter[Row]([expected]):  # the last of waiting updates is not lost
        findings.append(f"the total is {[*total]} instead of {expected}")
    findings += [f"the sum {row} is there {sums[row]} times" for row in _find_mismatches(_sum_by_day(tidied), sums)]
    return findings + await _find_wrong_counts(connection, acknowledged.values())


def _sum_by_day(sales: Counter[Row]) -> Counter[Row]:
    """Return the expected sums."""
    totals: Counter[str] = Counter()
    for (_, day, amount), count in sales.items():
        totals[str(day)] += count * int(str(amount))
    return Counter[Row](totals.items())


def _find_mismatches(left: Counter[Row], right: Counter[Row]) -> list[Row]:
    return [*(left - right), *(right - left)]


async def _find_wrong_counts(connection: Connection, jobs: Iterable[int]) -> list[str]:
    """Return steps that ran too rarely or too often, even if a later event repaired the result.

    Each sale is cleaned once, by its own job, and summed once for each day that changed.
    """
    counts_by_job: dict[int, Counter[str]] = {job: Counter() for job in jobs}
    findings: list[str] = []
    for row in await connection.fetch(CAUSED, DAG_NAME):
        counts_by_job.setdefault(row["job_id"], Counter())[row["type"]] += row["tasks"]
        if row["part"] and row["tasks"] > 1:
            findings.append(f"job {row['job_id']} has {row['tasks']} tasks of {row['type']} for {row['part']}")
    for job, counts in counts_by_job.items():
        names = [f"{DAG_NAME}.{name_}" for name_ in EXACTLY_ONCE]
        findings += [
            f"job {job} has {counts[name]} tasks of {name} instead of one" for name in names if counts[name] != 1
        ]
    return findings


async def _count_rows(
    connection: Connection, clickhouse: ClickHouseClient, name: str, columns: Sequence[str]
) -> Counter[Row]:
    return Counter(tuple(row[column] for column in columns) for row in await _read_rows(connection, clickhouse, name))


async def _read_rows(connection: Connection, clickhouse: ClickHouseClient, name: str) -> list[dict[str, object]]:
    """Return the rows that readers of a dataset see."""
    for dataset in await dag_versions.list_serving_datasets(connection, DEFAULT_ORG_ID, DAG_NAME):
        if dataset["name"] == name:
            row = await connection.fetchrow(
                "SELECT storage_location, columns FROM dataset_versions WHERE id = $1", dataset["version"]
            )
            if row is not None and row["columns"] is not None:
                select = DatasetLayout.from_json(json.loads(row["columns"])).select(row["storage_location"])
                return (await clickhouse.read_text(select)).to_pylist()
    return []
