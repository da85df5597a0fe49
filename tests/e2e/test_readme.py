"""The examples of the README run as written."""

import json
import re
from pathlib import Path

pytest_plugins = ["pytester"]
README = Path(__file__).parents[2] / "README.md"


def write_examples(directory: Path) -> None:
    text = README.read_text() + (README.parent / "docs" / "testing.md").read_text()
    examples = re.findall(r"```python\n# (\w+\.py)\n(.*?)```", text, re.DOTALL)
    assert [name for name, _ in examples] == ["trips.py", "test_trips.py", "test_more.py"]
    for name, code in examples:
        (directory / name).write_text(code)


def test_readme_test_passes(pytester):
    write_examples(pytester.path)
    pytester.makeini("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\npythonpath = .")
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=4)


def test_readme_job_runs(started, tmp_path, aaiclick_postgres, aaiclick_clickhouse):
    write_examples(tmp_path)
    ran = started(
        "run", "trips.distances", "-o", "json",
        AAICLICK_DATABASE_URL=aaiclick_postgres.dsn,
        AAICLICK_CLICKHOUSE_URL=aaiclick_clickhouse.url,
        AAICLICK_LOG_DIR=str(tmp_path / "logs"),
    )  # fmt: skip
    assert ran.returncode == 0, ran
    job = json.loads(ran.stdout)
    assert (job["total_tasks"], job["open_tasks"]) == (4, 0)


def test_example_dag_is_deployed_and_run(aaiclick, tmp_path, aaiclick_postgres, aaiclick_clickhouse):
    for name in ("orders.yaml", "orders_jobs.py"):
        (tmp_path / name).write_text((README.parent / "examples" / "dags" / name).read_text())
    environment = {
        "AAICLICK_DATABASE_URL": aaiclick_postgres.dsn,
        "AAICLICK_CLICKHOUSE_URL": aaiclick_clickhouse.url,
        "AAICLICK_LOG_DIR": str(tmp_path / "logs"),
    }
    assert aaiclick("dag", "deploy", "orders.yaml", **environment).returncode == 0
    ran = aaiclick("dag", "run", "orders", "-o", "json", **environment)
    assert ran.returncode == 0, ran
    job = json.loads(ran.stdout)
    assert {item["status"] for item in (job, *job["tasks"])} == {"COMPLETED"}
    assert {task["type"].removeprefix("orders.") for task in job["tasks"]} == {
        "fetch",
        "tidy",
        "daily",
        "score",
        "watch",
    }
    orders = aaiclick("datasets", "query", "SELECT sum(orders) AS n FROM daily_revenue", "-o", "json", **environment)
    scored = aaiclick("datasets", "query", "SELECT count() AS n FROM orders_with_scores", "-o", "json", **environment)
    assert json.loads(orders.stdout)[0]["n"] == json.loads(scored.stdout)[0]["n"] > 100
