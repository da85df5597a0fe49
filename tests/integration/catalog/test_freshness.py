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
from aaiclick.settings import get_settings
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


async def test_late_datasets_of_100_000_are_one_index_scan(shop):
    await shop.db.execute(
        "INSERT INTO datasets (org_id, name, producer_dag_name, producer_job_name, producer_output_index) "
        "SELECT (SELECT id FROM orgs LIMIT 1), 'd' || n, 'd', 'j', n FROM generate_series(1, 100000) AS n"
    )
    await shop.db.execute(
        "INSERT INTO dataset_freshness (dataset_uuid, org_id, max_age_seconds, timezone, days, due_at) "
        "SELECT id, org_id, 60, 'UTC', '*', now() + (producer_output_index - 100) * interval '1 second' FROM datasets"
    )
    await shop.db.execute("ANALYZE datasets, dataset_freshness")
    org_id = await shop.db.fetchval("SELECT id FROM orgs LIMIT 1")
    now = await shop.db.fetchval("SELECT now()")
    text = await shop.db.fetchval(
        f"EXPLAIN (ANALYZE, FORMAT JSON) {statement('list_freshness')}", org_id, None, None, now, 1_000, None, None
    )
    plans, scans = [json.loads(text)[0]["Plan"]], []
    while plans:
        plan = plans.pop()
        scans.append((plan["Node Type"], plan.get("Relation Name")))
        plans += plan.get("Plans", [])
    assert ("Seq Scan", "dataset_freshness") not in scans
    assert ("Seq Scan", "datasets") not in scans
