"""Steps of DAGs are ordinary tasks: annotations, @task functions, inputs by name or map, and checks before a deploy."""

import json
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "jobs-or-dags.md"

CODE = """
from datetime import date
import pandas as pd
import polars as pl
from aaiclick.data import Object
from aaiclick.orchestration import job, task

@task
def load(first: date, count: int = 4) -> pd.DataFrame:
    assert isinstance(first, date)
    return pd.DataFrame({"day": [first.isoformat()] * count, "euros": [10.0 * n for n in range(count)]})

@task(retries=5)
def add_tax(frame: pd.DataFrame, rate: float) -> pd.DataFrame:
    return frame.assign(euros=frame.euros * (1 + rate))

def keep_large(taxed: pl.DataFrame, least: float = 0) -> pl.DataFrame:
    return taxed.filter(pl.col("euros") > least)

async def summarise(rows: list[dict[str, object]], table: Object) -> list[dict[str, object]]:
    assert len(await table.rows()) == len(rows)
    return [{"rows": len(rows), "euros": sum(row["euros"] for row in rows)}]

@job
def nightly() -> None: ...
"""
DAG = """
name: shop
jobs:
  - name: load
    activation: source
    operator: python
    source: {kind: manual}
    outputs: [orders]
    config: {function: "shop:load", arguments: {first: 2026-11-16}}
  - name: tax
    activation: reactive
    operator: python
    inputs: [orders]
    outputs: [taxed]
    config: {function: "shop:add_tax", arguments: {frame: {input: orders}, rate: 0.5}}
  - name: large
    activation: reactive
    operator: python
    inputs: [taxed]
    outputs: [large]
    config: {function: "shop:keep_large", arguments: {least: 20}}
  - name: sums
    activation: reactive
    operator: python
    inputs: [large]
    outputs: [sums]
    config: {function: "shop:summarise", arguments: {rows: {input: large}, table: {input: large}}}
publish: [sums]
"""
MISTAKES = {
    "shop:add_tax": ("shop:add_taxes", "Did you mean shop.add_tax?"),
    "shop:keep_large": ("shop:nightly", "shop:nightly is a @job."),
    "frame: {input: orders}": ("table: {input: orders}", "has no parameter 'table'"),
    "{input: orders}, rate: 0.5": ("{input: order}, rate: 0.5", "The definition has no input 'order'."),
    "rate: 0.5}": ("tax_rate: 0.5}", "has no parameter 'tax_rate'"),
    ", rate: 0.5": ("", "needs 'rate', and no input or argument has this name."),
    "first: 2026-11-16": ("first: soon", "The argument 'first'"),
    "rows: {input: large}, table: {input: large}": ("", "has no parameter for the input 'large'"),
}


@pytest.fixture
def project(aaiclick, tmp_path, aaiclick_postgres, aaiclick_clickhouse):
    (tmp_path / "shop.py").write_text(CODE)
    (tmp_path / "shop.yaml").write_text(DAG)
    aaiclick.environment |= {
        "AAICLICK_DATABASE_URL": aaiclick_postgres.dsn,
        "AAICLICK_CLICKHOUSE_URL": aaiclick_clickhouse.url,
        "AAICLICK_LOG_DIR": str(tmp_path / "logs"),
    }
    return aaiclick


def test_steps_receive_inputs_in_their_annotated_forms(project):
    assert project("dag", "ls", "-o", "json").stdout == "[]\n"
    deployed = project("dag", "deploy", "shop.yaml")
    assert deployed.returncode == 0, deployed
    ran = project("dag", "run", "shop")
    assert ran.returncode == 0, ran
    shown = project("datasets", "query", "SELECT * FROM sums", "-o", "json")
    assert json.loads(shown.stdout) == [{"rows": 2, "euros": 75.0}], shown
    [listed] = json.loads(project("dag", "ls", "-o", "json").stdout)
    assert (listed["dag"], listed["versions"], len(listed["version"])) == ("shop", 1, 12)


@pytest.mark.parametrize("text", MISTAKES)
def test_mistakes_are_reported_before_a_deploy(project, tmp_path, text):
    assert DAG.count(text) == 1
    replacement, message = MISTAKES[text]
    (tmp_path / "shop.yaml").write_text(DAG.replace(text, replacement))
    result = project("dag", "validate", "shop.yaml")
    assert result.returncode == 2, result
    assert message in result.stderr, result.stderr
    assert "shop.yaml:" in result.stderr


def test_functions_that_cannot_be_imported_are_not_checked(project, tmp_path):
    (tmp_path / "shop.py").unlink()
    result = project("dag", "validate", "shop.yaml")
    assert result.returncode == 0, result
    assert "Not checked: functions of shop, which cannot be imported here." in result.stderr


def test_the_example_of_the_page_runs_as_a_job_and_as_a_dag(project, tmp_path):
    blocks = re.findall(r"```(?:python|yaml)\n# (\S+)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert [name for name, _ in blocks] == ["prices.py", "prices.yaml", "catalogue.py"]
    for name, text in blocks:
        (tmp_path / name).write_text(text)
    ran = project("run", "prices.taxed_prices")
    assert (ran.returncode, "8.92" in ran.stdout) == (0, True), ran
    for command in (["validate", "prices.yaml"], ["deploy", "prices.yaml"], ["run", "prices"]):
        result = project("dag", *command)
        assert result.returncode == 0, result
    rows = json.loads(project("datasets", "query", "SELECT * FROM prices ORDER BY item", "-o", "json").stdout)
    assert [row["item"] for row in rows] == ["ink", "pen"]
    assert rows[0]["euros"] == pytest.approx(8.025)


PYTHON_DAG = """
import pandas as pd
from aaiclick.catalog import dataset, sql_dataset
from aaiclick.orchestration import task

@dataset(source="manual")
def orders() -> pd.DataFrame:
    return pd.DataFrame({"id": [1, 2], "euros": [10.0, 20.0]})

@dataset(inputs={"frame": "orders"}, arguments={"rate": 0.5}, partition_by="id")
@task(retries=5)
def taxed(frame: pd.DataFrame, rate: float) -> pd.DataFrame:
    return frame.assign(euros=frame.euros * (1 + rate))

sql_dataset("revenue", "SELECT sum(euros) AS euros FROM taxed", publish="revenue_of_all", tests=[{"not_null": "euros"}])
"""
PYTHON_MISTAKES = {
    'source="manual"': ('sorce="manual"', "Did you mean 'source'?"),
    'source="manual")': ('source="0 6 * * x")', "mod.py:6:1: orders.source.schedule:"),
    '"frame": "orders"': ('"frames": "orders"', "mod.py:10:1: taxed.config.arguments.frames:"),
    "FROM taxed": ("FROM taxes", "mod.py:15:1: revenue.config.query: The query reads 'taxes'"),
    "not_null": ("notnull", "mod.py:15:1: revenue.outputs[0].tests[0].notnull:"),
    "import pandas as pd": ("import pandas as pd, nosuchlibrary", "nosuchlibrary"),
}


def test_module_is_deployed_as_the_yaml_that_render_prints(project, tmp_path):
    (tmp_path / "mod.py").write_text(PYTHON_DAG)
    rendered = project("dag", "render", "mod.py")
    assert rendered.returncode == 0, rendered
    (tmp_path / "mod.yaml").write_text(rendered.stdout)
    for command in (["validate", "mod.py"], ["deploy", "mod.py"], ["run", "mod"]):
        result = project("dag", *command)
        assert result.returncode == 0, result
    rows = project("datasets", "query", "SELECT * FROM revenue_of_all", "-o", "json")
    assert json.loads(rows.stdout) == [{"euros": 45.0}]
    assert project("dag", "diff", "mod.yaml", "-o", "json").stdout == "[]\n"
    (tmp_path / "mod.py").write_text(PYTHON_DAG.replace("(1 + rate)", "(1 + 2 * rate)"))
    changes = json.loads(project("dag", "diff", "mod.py", "-o", "json").stdout)
    assert {change["name"] for change in changes if change["change"] == "rebuilt"} == {"taxed", "revenue"}


@pytest.mark.parametrize("text", PYTHON_MISTAKES)
def test_mistakes_in_a_module_are_reported_at_the_dataset(project, tmp_path, text):
    assert PYTHON_DAG.count(text) == 1
    replacement, message = PYTHON_MISTAKES[text]
    (tmp_path / "mod.py").write_text(PYTHON_DAG.replace(text, replacement))
    result = project("dag", "validate", "mod.py")
    assert result.returncode == (1 if text.startswith("import") else 2), result
    assert message in result.stderr, result.stderr


def test_module_example_of_the_page_runs(project, tmp_path):
    text = re.search(r"```python\n# catalogue.py\n(.*?)```", PAGE.read_text(), re.DOTALL)[1]
    (tmp_path / "catalogue.py").write_text(text)
    for command in (["deploy", "catalogue.py"], ["run", "catalogue"]):
        result = project("dag", *command)
        assert result.returncode == 0, result
    rows = project("datasets", "query", "SELECT * FROM dearest_item", "-o", "json")
    assert json.loads(rows.stdout) == [{"item": "ink"}]
    assert "description: Prices with tax, every morning." in project("dag", "render", "catalogue.py").stdout
