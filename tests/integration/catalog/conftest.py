"""A small shop DAG: a source, SQL over all rows, SQL by partition, Python."""

from __future__ import annotations

import asyncio
import json

import pytest

from aaiclick.catalog.deploy import deploy
from aaiclick.catalog.execution.dataset_tables import DatasetLayout
from aaiclick.data.runtime.clickhouse_client import connect as connect_clickhouse
from aaiclick.orchestration.worker.inline_runner import run_until_job_ends
from aaiclick.settings import get_settings
from aaiclick.store.catalog import dag_sources, dag_versions, dataset_events
from aaiclick.store.engine.invariants import check_invariants
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.postgres_connections import connect
from aaiclick.store.tenancy import orgs, secrets
from aaiclick.store.tenancy.secret_encryption import new_key

JOBS = "tests.integration.catalog.dag_functions"
SHOP = f"""
name: shop
defaults: {{max_attempts: 5}}
jobs:
  - name: fetch
    activation: source
    operator: python
    source: {{kind: cron, schedule: "0 6 * * *", missed: all}}
    outputs: [raw]
    update_strategy: append
    unique_key: [id]
    config: {{function: "{JOBS}:fetch"}}
  - name: tidy
    activation: reactive
    operator: sql
    outputs: [{{name: orders, partition_by: day}}]
    config: {{query: "SELECT id, day, amount FROM raw WHERE id > 0"}}
  - name: sums
    activation: reactive
    operator: sql
    execution_strategy: PerPartition
    outputs: [daily]
    config: {{query: "SELECT day, sum(amount) AS total FROM orders GROUP BY day"}}
  - name: twice
    activation: reactive
    operator: python
    inputs: [orders]
    outputs: [{{name: doubled, lineage: {{doubled: [orders.amount]}}}}]
    config: {{function: "{JOBS}:double"}}
publish: [daily]
"""


class Shop:
    """The DAG, its databases, and helpers to query them."""

    def __init__(self, db, clickhouse) -> None:
        self.db = db
        self.clickhouse = clickhouse

    async def deploy(self, text=SHOP):
        return await deploy(self.db, text)

    async def fire(self, payload=None, job=None, dag="shop"):
        trigger = {"kind": "manual"} if payload is None else {"kind": "manual", "payload": payload}
        job_id, _ = await dag_sources.start_source(self.db, DEFAULT_ORG_ID, dag, job, trigger)
        return job_id

    async def finish(self, job_id):
        job = await asyncio.wait_for(run_until_job_ends(job_id), 60)
        return job.status.value

    async def run(self, *rows, dag="shop", job=None):
        job_id = await self.fire({"rows": list(rows)} if rows else None, job, dag)
        assert await self.finish(job_id) == "COMPLETED", await self.errors()
        return job_id

    async def errors(self):
        return [row["error"] for row in await self.db.fetch("SELECT error FROM tasks WHERE error IS NOT NULL")]

    async def rows(self, name, dag="shop"):
        """Return the rows of a dataset, sorted."""
        for row in await dag_versions.list_serving_datasets(self.db, DEFAULT_ORG_ID, dag):
            if row["name"] == name:
                return await self.rows_of(row["version"])
        return None

    async def rows_of(self, generation):
        row = await self.db.fetchrow("SELECT storage_location, columns FROM dataset_versions WHERE id = $1", generation)
        if row["columns"] is None:
            return None
        select = DatasetLayout.from_json(json.loads(row["columns"])).select(row["storage_location"])
        return sorted(tuple(values.values()) for values in (await self.clickhouse.read_text(select)).to_pylist())

    async def tasks(self, job_id):
        """Types of a job's tasks with their partitions, in order."""
        rows = await self.db.fetch("SELECT type, partitions FROM tasks WHERE job_id = $1 ORDER BY id", job_id)
        return [(row["type"].removeprefix("shop."), *(row["partitions"] or ())) for row in rows]

    async def outputs(self, job_id, job):
        rows = await self.db.fetch("SELECT outputs FROM tasks WHERE job_id = $1 AND type = $2", job_id, f"shop.{job}")
        return [json.loads(row["outputs"]) for row in rows]

    async def emit(self, name, count):
        """Events of a dataset, in a job of their own."""
        dataset = await self.db.fetchrow(
            "SELECT p.dataset_uuid, p.dataset_version, p.dag_version_id FROM dag_version_datasets p "
            "JOIN datasets d ON d.id = p.dataset_uuid WHERE d.name = $1",
            name,
        )
        job_id = await dataset_events.open_job(self.db, DEFAULT_ORG_ID, "many", dataset["dag_version_id"], {})
        event = dataset_events.Event(DEFAULT_ORG_ID, job_id, dataset["dataset_uuid"], dataset["dataset_version"])
        async with self.db.transaction():
            await dataset_events.count_events(self.db, await dataset_events.emit_events(self.db, [event] * count))
        return job_id

    async def until(self, question, *values, seconds=60):
        """Wait for something to become true."""
        async with asyncio.timeout(seconds):
            while not await self.db.fetchval(question, *values):  # noqa: ASYNC110  (there is no notification)
                await asyncio.sleep(0.05)

    async def grant(self, name, value, host=None, slug="default"):
        """Set a secret of an organisation."""
        org, keys = await orgs.find_org(self.db, slug), await secrets.load_keys_for_writing(self.db)
        await secrets.set_secret(self.db, org, name, value, host, keys)

    async def check(self):
        assert await check_invariants(self.db) == []


@pytest.fixture
async def shop(aaiclick_env, aaiclick_postgres, aaiclick_clickhouse, monkeypatch):
    monkeypatch.setenv("AAICLICK_SECRETS_KEY", new_key())
    get_settings.cache_clear()
    db = await connect(aaiclick_postgres)
    yield Shop(db, await connect_clickhouse(aaiclick_clickhouse))
    await db.close()


def order(number, day, amount):
    return {"id": number, "day": f"2026-01-{day:02}", "amount": amount}
