"""The documentation of DAG files matches the model."""

from __future__ import annotations

import re
from pathlib import Path

from aaiclick.catalog.dags.load import load_dag_file
from aaiclick.catalog.dags.model import Dag, Defaults, DefinitionSpec
from aaiclick.catalog.operators.config import BUILT_IN

ROOT = Path(__file__).parents[3]
DOCUMENT = (ROOT / "docs" / "dags.md").read_text(encoding="utf-8")


def named(section):
    text = DOCUMENT.split(f"## {section}\n")[1].split("\n## ")[0]
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


def test_every_key_is_documented_and_no_other():
    assert named("The file") == set(Dag.model_fields)
    assert named("A definition") == set(DefinitionSpec.model_fields)
    assert set(Defaults.model_fields) <= set(re.findall(r"`(\w+)`", DOCUMENT.split("| `defaults` |")[1].split("\n")[0]))


def test_every_operator_and_its_settings_are_documented():
    assert named("Operators") == {operator.name for operator in BUILT_IN}
    for operator in BUILT_IN:
        line = next(line for line in DOCUMENT.splitlines() if line.startswith(f"| `{operator.name}` |"))
        if not operator.preset:
            assert set(operator.config.model_fields) <= set(re.findall(r"`(\w+)`", line)), operator.name


def test_the_example_loads():
    dag = load_dag_file(ROOT / "examples" / "dags" / "orders.yaml")
    assert [job.name for job in dag.jobs] == ["fetch", "tidy", "daily", "score", "watch"]
    assert dag.job("daily").idle_timeout == "5m"
    assert dag.job("fetch").idle_timeout is None
