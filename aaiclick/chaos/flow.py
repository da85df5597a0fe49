"""A reactive DAG: sales come in, are tidied, and are summed up by day; an event of each step causes the next.

Whatever breaks, and whatever is said twice, in the end every sale is there once and every sum is right.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from aaiclick.catalog.running.storage import Layout
from aaiclick.data.client import Client
from aaiclick.store import catalog_dags
from aaiclick.store.words import DEFAULT_ORG_ID

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

NAME = "chaos"
JOBS = ("sell", "tidy", "sums")
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


async def differences(connection: Connection, clickhouse: Client, meant: list[dict[str, Any]]) -> list[str]:
    """What is not in the datasets as clients were told that it would be."""
    fired = [each for each in meant if each.get("meant") == "flow"]
    if not fired:
        return []
    sold = {row["id"]: (row["day"], row["amount"]) for each in fired for row in each["rows"]}
    totals: Counter[str] = Counter()
    for day, amount in sold.values():
        totals[day] += amount
    found = {row["id"]: (row["day"], row["amount"]) for row in await _rows(connection, clickhouse, f"{NAME}.raw")}
    daily = [(row["day"], row["total"]) for row in await _rows(connection, clickhouse, "daily")]
    wrong = [f"sale {sale} is not in the dataset" for sale in sold if sale not in found]
    wrong += [f"sale {sale} is there, and nobody made it" for sale in found if sale not in sold]
    wrong += [f"the sum of {day} is {dict(daily).get(day)}, and not {sum_}" for day, sum_ in totals.items()
              if dict(daily).get(day) != sum_]  # fmt: skip
    return wrong + ([f"{len(daily)} sums of {len(totals)} days"] if len(daily) != len(totals) else [])


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
