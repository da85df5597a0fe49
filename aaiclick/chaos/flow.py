"""A reactive DAG: sales come in, are tidied, and are summed up by day; an event of each step causes the next.

Whatever breaks, and whatever is said twice, in the end every sale is there once and every sum is right.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from aaiclick.catalog.running.storage import Layout
from aaiclick.data.client import Client
from aaiclick.store import catalog_dags
from aaiclick.store.words import DEFAULT_ORG_ID

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

NAME = "chaos"
JOBS = ("sell", "tidy", "sums")
ONCE = ("sell", "tidy")
"""What each firing does exactly once; sums are made of the days that changed, if others have not changed them."""
TASKS = 4
"""Tasks of one firing, about."""

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
    config: {function: "aaiclick.chaos.bodies:sell"}
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
publish: [daily]
"""


Row = tuple[object, ...]
SALE = ("id", "day", "amount")
CAUSED = """
    SELECT job_id, type, coalesce(partitions[1], '') AS part, count(*) AS tasks FROM tasks
    WHERE starts_with(type, $1 || '.') GROUP BY job_id, type, part
"""


async def differences(connection: Connection, clickhouse: Client, meant: list[dict[str, Any]]) -> list[str]:
    """What is not in the datasets as clients were told that it would be, and what was not done for it once."""
    heard = {each["key"]: each["job"] for each in meant if each.get("heard") == "flow"}
    fired = [each for each in meant if each.get("meant") == "flow"]
    if not fired:
        return []
    asked = Counter(tuple(row[of] for of in SALE) for each in fired for row in each["rows"])
    sold = Counter(tuple(row[of] for of in SALE) for each in fired if each["key"] in heard for row in each["rows"])
    raw = await _counted(connection, clickhouse, f"{NAME}.raw", SALE)
    tidy = await _counted(connection, clickhouse, f"{NAME}.sales", SALE)
    sums = await _counted(connection, clickhouse, "daily", ("day", "total"))
    wrong = [f"the sale {row} is not in the dataset" for row in sold - raw]
    wrong += [f"the sale {row} is there {raw[row]} times, made {asked[row]} times" for row in raw - asked]
    wrong += [f"the sale {row} came in {raw[row]} times, and is tidied {tidy[row]} times" for row in _unlike(raw, tidy)]
    wrong += [f"the sum {row} is there {sums[row]} times" for row in _unlike(_totals(tidy), sums)]
    return wrong + await _not_once(connection, heard.values())


def _totals(sales: Counter[Row]) -> Counter[Row]:
    """What the sums must be."""
    totals: Counter[str] = Counter()
    for (_, day, amount), times in sales.items():
        totals[str(day)] += times * int(str(amount))
    return Counter[Row](totals.items())


def _unlike(these: Counter[Row], those: Counter[Row]) -> list[Row]:
    return [*(these - those), *(those - these)]


async def _not_once(connection: Connection, jobs: Iterable[int]) -> list[str]:
    """Events that were lost, or heard twice, though a later one may have made up for it: a sale that comes in is
    tidied once, by its own job, and what was tidied is summed once for each day that changed.
    """
    found: dict[int, Counter[str]] = {job: Counter() for job in jobs}
    wrong: list[str] = []
    for row in await connection.fetch(CAUSED, NAME):
        found.setdefault(row["job_id"], Counter())[row["type"]] += row["tasks"]
        if row["part"] and row["tasks"] > 1:
            wrong.append(f"job {row['job_id']} has {row['tasks']} tasks of {row['type']} for {row['part']}")
    for job, counts in found.items():
        names = [f"{NAME}.{each}" for each in ONCE]
        wrong += [f"job {job} has {counts[name]} tasks of {name}, and not one" for name in names if counts[name] != 1]
    return wrong


async def _counted(connection: Connection, clickhouse: Client, name: str, columns: Sequence[str]) -> Counter[Row]:
    return Counter(tuple(row[of] for of in columns) for row in await _rows(connection, clickhouse, name))


async def _rows(connection: Connection, clickhouse: Client, name: str) -> list[dict[str, Any]]:
    """What readers of a dataset see."""
    for served in await catalog_dags.serving_datasets(connection, DEFAULT_ORG_ID, NAME):
        if served["name"] == name:
            row = await connection.fetchrow(
                "SELECT storage_location, columns FROM dataset_versions WHERE id = $1", served["version"]
            )
            if row is not None and row["columns"] is not None:
                select = Layout.from_json(json.loads(row["columns"])).select(row["storage_location"])
                return (await clickhouse.read_text(select)).to_pylist()
    return []
