"""docs/data-tests.md: its DAG runs, and its Python examples give the results in their comments."""

from __future__ import annotations

import contextlib
import re
import sys
from pathlib import Path

import pytest

from aaiclick.errors import JobFailedError
from aaiclick.orchestration import JobStatus, create_job
from aaiclick.orchestration.testing import run_job_test
from aaiclick.settings import get_settings
from tests.integration.catalog.conftest import shop as shop

PAGE = (Path(__file__).parents[3] / "docs" / "data-tests.md").read_text(encoding="utf-8")
DAG = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[0]
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
FUNCTIONS = """
def load_customers():
    return [{"id": "ann"}, {"id": "bob"}]


def load_orders(event):
    return event["payload"]["rows"]
"""
FAILING = """

@task(tests=[unique("id"), between("euros", low=0)])
def load_duplicates():
    return [{"id": 1, "euros": 5}, {"id": 1, "euros": 7}]
"""


@pytest.fixture
def functions(tmp_path, monkeypatch):
    (tmp_path / "shop_functions.py").write_text(FUNCTIONS)
    (tmp_path / "tested_tasks.py").write_text(EXAMPLES[1] + FAILING)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("AAICLICK_TASK_MODULES", "shop_functions,tested_tasks")
    get_settings.cache_clear()
    yield
    for name in ("shop_functions", "tested_tasks"):
        sys.modules.pop(name, None)


def order(number, customer, euros, day="2026-01-01"):
    return {"order_id": number, "customer": customer, "euros": euros, "day": day}


def order_ids(rows):
    return [value for values in rows for value in values if isinstance(value, int)]


@pytest.mark.usefixtures("functions")
async def test_documented_dag_blocks_quarantines_and_warns(shop):
    await shop.deploy(
        DAG.replace(
            "name: orders\n",
            "name: orders\n        columns: {order_id: Int64, customer: String, euros: Float64, day: Date}\n",
        )
    )
    await shop.run(job="customers")
    await shop.run(order(1, "ann", 5), order(2, "bob", -3), order(3, "bob", 7, "2099-01-01"), job="fetch")
    assert order_ids(await shop.rows("orders")) == [1, 3]
    assert order_ids(await shop.rows("orders__rejected")) == [2]
    outcomes = "SELECT outcome FROM data_test_results WHERE latest ORDER BY number"
    assert [row["outcome"] for row in await shop.db.fetch(outcomes)] == [
        "passed", "passed", "quarantined", "passed", "passed", "warned",
    ]  # fmt: skip
    job_id = await shop.fire({"rows": [order(1, "eve", 5)]}, "fetch")
    assert await shop.finish(job_id) == "FAILED"
    assert order_ids(await shop.rows("orders")) == [1, 3]


@pytest.mark.usefixtures("aaiclick_env")
async def test_documented_expectations_print_their_comments(capsys):
    names: dict[str, object] = {}
    exec(EXAMPLES[0], names)
    await names["main"]()
    assert capsys.readouterr().out.splitlines() == re.findall(r"\)  # (.*)", EXAMPLES[0])


@pytest.mark.usefixtures("aaiclick_env", "functions")
async def test_task_with_a_failing_test_fails_without_retries(shop):
    import tested_tasks

    tasks = [tested_tasks.load_orders.task(), tested_tasks.load_duplicates.task()]
    job = await create_job("tested", tasks)
    with contextlib.suppress(JobFailedError):
        run_job_test(job)
    assert job.status is JobStatus.FAILED
    rows = await shop.db.fetch("SELECT status::text, attempt FROM tasks WHERE job_id = $1 ORDER BY id", job.id)
    assert [(row["status"], row["attempt"]) for row in rows] == [("COMPLETED", 1), ("FAILED", 1)]
    results = await shop.db.fetch("SELECT outcome, sample_table FROM data_test_results ORDER BY number")
    assert [row["outcome"] for row in results] == ["blocked", "passed"]
    assert results[0]["sample_table"] is not None
