"""Deletion of a DAG: with everything of it, only while nothing uses it, and it can be deployed again."""

from __future__ import annotations

import asyncio
import json
import os

import httpx
from click.testing import CliRunner

from aaiclick.cli.dag import dag as dag_command
from aaiclick.orchestration.loops.table_cleanup import PgCleanupWorker
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.tenancy.api_keys import create_key
from tests.integration.catalog.conftest import SHOP, order
from tests.integration.server.conftest import start_server

READER = """
name: report
jobs:
  - {name: count, activation: reactive, operator: sql, inputs: [{dataset: daily}], outputs: [days],
     config: {query: "SELECT count() AS days FROM daily"}}
"""
ROWS_OF_A_DAG = ("dag_versions", "dag_current_versions", "job_definitions", "datasets", "dataset_versions", "jobs")
DATASET_TABLES = "SELECT name FROM system.tables WHERE database = currentDatabase() AND name LIKE 'dataset\\_%'"


async def run_command(*arguments: str, answer: str | None = None):
    return await asyncio.to_thread(CliRunner().invoke, dag_command, list(arguments), answer, standalone_mode=False)


async def count_rows(shop) -> dict[str, int]:
    return {table: await shop.db.fetchval(f"SELECT count(*) FROM {table}") for table in ROWS_OF_A_DAG}


async def test_deleted_dag_leaves_no_rows_and_no_tables(shop) -> None:
    await shop.deploy()
    await shop.run(order(1, 17, 10))
    await shop.deploy(SHOP.replace("id > 0", "id > 1"))
    assert (await shop.clickhouse.read_text(DATASET_TABLES)).num_rows > 0
    await shop.db.execute("UPDATE jobs SET status = 'CANCELLED', completed_at = now(), open_events = 0, open_tasks = 0")
    await shop.db.execute("UPDATE tasks SET status = 'CANCELLED', readiness = NULL, completed_at = now()")
    done = await run_command("rm", "shop", "--yes", "-o", "json")
    assert done.exception is None, done.exception
    assert json.loads(done.stdout)["versions"] == 2
    assert await count_rows(shop) == dict.fromkeys(ROWS_OF_A_DAG, 0)
    await PgCleanupWorker().run_once()
    assert (await shop.clickhouse.read_text(DATASET_TABLES)).num_rows == 0
    await shop.check()
    [entry] = await shop.db.fetch("SELECT target FROM audit_log WHERE action = 'dag.delete'")
    assert entry["target"] == "shop"


async def test_dag_with_the_same_text_can_be_deployed_again(shop) -> None:
    await shop.deploy()
    await shop.run(order(1, 17, 10))
    assert (await run_command("rm", "shop", "--yes")).exception is None
    assert await shop.rows("daily") is None
    await shop.deploy()
    await shop.run(order(2, 18, 20))
    assert await shop.rows("daily") == [("2026-01-18", 20)]


async def test_dag_in_use_is_not_deleted(shop) -> None:
    await shop.deploy()
    job_id = await shop.fire({"rows": [order(1, 17, 10)]})
    before = await count_rows(shop)
    refused = (await run_command("rm", "shop", "--yes")).exception
    assert str(job_id) in refused.what
    assert "dag pause shop" in refused.remedy
    assert await count_rows(shop) == before
    assert await shop.finish(job_id) == "COMPLETED"
    await shop.deploy(READER)
    assert "read by report" in (await run_command("rm", "shop", "--yes")).exception.what
    assert (await run_command("rm", "nosuch", "--yes")).exception.what == "There is no DAG 'nosuch'."
    assert (await run_command("rm", "report", answer="n\n")).exception is not None
    assert await shop.rows("daily") == [("2026-01-17", 10)]


async def test_route_deletes_for_admins_only(shop, tmp_path) -> None:
    await shop.deploy()
    await shop.run(order(1, 17, 10))
    keys = {
        role: (await create_key(shop.db, org_id=DEFAULT_ORG_ID, name=role, scopes=[role])).text
        for role in ("writer", "admin")
    }
    server = await asyncio.to_thread(start_server, dict(os.environ), tmp_path / "server.log")
    try:
        async with httpx.AsyncClient(base_url=server.url) as client:
            statuses = [
                (await client.delete("/v1/dags/shop", headers={"Authorization": f"Bearer {keys[role]}"})).status_code
                for role in ("writer", "admin", "admin")
            ]
    finally:
        await asyncio.to_thread(server.stop)
    assert statuses == [403, 200, 404]
    assert await count_rows(shop) == dict.fromkeys(ROWS_OF_A_DAG, 0)
