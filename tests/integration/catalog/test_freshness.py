"""Freshness of datasets: due times follow deploys and updates; late ones are one index scan."""

from __future__ import annotations

import json
import re
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from aaiclick.operations.actor import local_actor
from aaiclick.operations.freshness import list_freshness
from aaiclick.orchestration.loops import incidents
from aaiclick.server.metrics import scrape_metrics
from aaiclick.settings import get_settings
from aaiclick.store.catalog import freshness
from aaiclick.store.catalog.datasets import Reader
from aaiclick.store.statements import statement

PAGE = (Path(__file__).parents[3] / "docs" / "freshness.md").read_text(encoding="utf-8")
DAG = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[0]
DUE = "SELECT d.name, f.due_at - now() AS due FROM dataset_freshness f JOIN datasets d ON d.id = f.dataset_uuid"


@pytest.fixture
def functions(tmp_path, monkeypatch):
    (tmp_path / "shop_functions.py").write_text("def load_orders():\n    return [{'id': 1}]\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("AAICLICK_TASK_MODULES", "shop_functions")
    get_settings.cache_clear()
    yield
    sys.modules.pop("shop_functions", None)


@pytest.mark.usefixtures("functions")
async def test_documented_policies_are_late_until_an_update(shop):
    await shop.deploy(DAG)
    await shop.db.execute("UPDATE dataset_freshness SET due_at = now() - interval '1 minute'")
    actor = local_actor()
    states = {row.dataset: row for row in await list_freshness(shop.db, actor, late=True)}
    assert {name: row.state for name, row in states.items()} == {"orders": "late", "totals": "late"}
    assert states["totals"].causes[0] == "shop.totals waits for orders"
    assert states["orders"].policy == "by 07:00 MON-FRI Europe/Berlin"
    await shop.run()
    late = {row.dataset: row.state for row in await list_freshness(shop.db, actor, late=True)}
    assert late == {"totals": "will be late"}  # its source runs once a day
    metrics = (await scrape_metrics(shop.db, worker_timeout_seconds=60)).decode()
    assert "datasets_late 0.0" in metrics
    assert "datasets_expected_late 1.0" in metrics
    due = {row["name"]: row["due"].total_seconds() for row in await shop.db.fetch(DUE)}
    assert 7100 < due["totals"] <= 7200
    assert due["orders"] > 0
    await shop.deploy(DAG.replace(", freshness: {max_age: 2h}", ""))
    assert [row["name"] for row in await shop.db.fetch(DUE)] == ["orders"]


@pytest.mark.usefixtures("functions")
async def test_late_dataset_opens_one_incident_until_its_update(shop):
    await shop.deploy(DAG)
    await shop.db.execute("UPDATE dataset_freshness SET due_at = now() - interval '1 minute'")
    for _ in range(3):
        await incidents.run_once(shop.db)
    opened = await shop.db.fetch("SELECT rule, severity, title, count, closed_at FROM incidents ORDER BY title")
    assert [(row["rule"], row["severity"], row["title"], row["count"]) for row in opened] == [
        ("deadline_missed", "warning", "Output 1 of shop.fetch is late", 1),
        ("deadline_missed", "warning", "Output 1 of shop.totals is late", 1),
    ]
    hour = timedelta(hours=1)
    now = await shop.db.fetchval("SELECT now()")
    await incidents.run_once(shop.db, now=now + hour)
    assert await shop.db.fetchval("SELECT count(*) FROM incidents WHERE closed_at IS NULL") == 2
    await shop.run()
    await incidents.run_once(shop.db, now=now + hour)
    assert await shop.db.fetchval("SELECT count(*) FROM incidents WHERE closed_at IS NULL") == 0
    await shop.db.execute("UPDATE dataset_freshness SET due_at = now()")
    await incidents.run_once(shop.db)
    assert await shop.db.fetchval("SELECT count(*) FROM incidents WHERE closed_at IS NULL") == 2
    await shop.deploy(DAG.replace(", freshness: {max_age: 2h}", ""))  # one without a policy, one due after its update
    await incidents.run_once(shop.db, now=now + 2 * hour)
    assert await shop.db.fetchval("SELECT count(*) FROM incidents WHERE closed_at IS NULL") == 0


SERVING = """
    SET LOCAL session_replication_role = replica;  -- without foreign keys: only what the statements read
    CREATE TEMP TABLE serving ON COMMIT DROP AS
        SELECT o.id AS org_id, n, md5('dataset ' || n)::uuid AS id, md5('version ' || n)::uuid AS version,
            'd' || n % 100 AS dag, md5('dag ' || n % 100)::uuid AS dag_version, 'j' || n / 100 AS job,
            md5('dataset ' || (n - 100)) AS previous
        FROM (SELECT id FROM orgs LIMIT 1) AS o, generate_series(1, 100000) AS n;
    INSERT INTO datasets (id, org_id, name, producer_dag_name, producer_job_name, producer_output_index)
        SELECT id, org_id, 'd' || n, dag, job, 0 FROM serving;
    INSERT INTO dag_current_versions (org_id, dag_name, dag_version_id)
        SELECT DISTINCT org_id, dag, dag_version FROM serving;
    INSERT INTO dataset_versions (id, dataset_uuid, storage_location, config_hash)
        SELECT version, id, 't', 'h' FROM serving;
    INSERT INTO dag_version_datasets (dag_version_id, dataset_uuid, dataset_version)
        SELECT dag_version, id, version FROM serving;
    INSERT INTO job_definitions (org_id, name, dag_name, dag_version_id, activation, execution_strategy, runtime,
            operator, config, config_hash, spec, update_strategy, status, input_datasets, output_datasets)
        SELECT org_id, job, dag, dag_version, 'reactive', 'PerUpdate', 'pool', 'sql', '{}', 'h', '{}', 'replace',
            'Idle', CASE WHEN n > 100 THEN ARRAY[previous::uuid::text] END, ARRAY[id::text]
        FROM serving WHERE n <= 10000;
    INSERT INTO dataset_freshness (dataset_uuid, org_id, max_age_seconds, timezone, days, due_at)
        SELECT id, org_id, 60, 'UTC', '*', now() + (n - 100) * interval '1 minute' FROM serving;
"""
"""100 DAGs of 1,000 consecutive datasets each; all have a policy, a hundred are late, 10,000 have a definition."""


async def test_late_datasets_of_100_000_are_found_by_indexes(shop):
    async with shop.db.transaction():
        await shop.db.execute(SERVING)
    await shop.db.execute("ANALYZE")
    org_id = await shop.db.fetchval("SELECT id FROM orgs LIMIT 1")
    now = await shop.db.fetchval("SELECT now()")
    reader = Reader(org_id, None)
    late = await freshness.list_freshness(shop.db, reader, due_before=now)
    assert [row.name for row in late] == [f"d{number}" for number in range(1, 101)]
    assert await shop.db.fetchval(statement("count_late_datasets")) == 100
    runs = await freshness.list_upstream_runs(shop.db, org_id, [late[-1].dataset_uuid])
    assert [(run.dag, run.job) for run in runs] == [("d0", "j1")]
    last = await shop.db.fetchval("SELECT id FROM datasets WHERE name = 'd500'")
    assert len(await freshness.list_upstream_runs(shop.db, org_id, [last])) == 5
    late_ids = [row.dataset_uuid for row in late]
    arguments = {
        "list_freshness": [org_id, None, None, now, 1_000, None, None],
        "list_upstream_runs": [org_id, late_ids, 10],
        "list_dataset_names": [org_id, None, late_ids],
        "get_forecast_end": [org_id, 60.0],
        "count_late_datasets": [],
        "take_late_datasets": [1_000, None],
    }
    for name, values in arguments.items():
        for mode in ("force_custom_plan", "force_generic_plan"):
            await shop.db.execute(f"SET plan_cache_mode = {mode}")
            text = await shop.db.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement(name)}", *values)
            plan = json.loads(text)[0]["Plan"]
            scans = {node.get("Relation Name") for node in list_nodes(plan) if node["Node Type"] == "Seq Scan"}
            assert not scans & {"dataset_freshness", "datasets", "dag_version_datasets", "job_definitions"}, (
                name,
                mode,
            )
            assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 5_000, (name, mode)


def list_nodes(plan):
    return [plan, *(node for child in plan.get("Plans", ()) for node in list_nodes(child))]
