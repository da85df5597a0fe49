"""Alert rules and dashboard: every metric and label in their expressions is exported by the server."""

from __future__ import annotations

import json
import re
from collections import defaultdict

import pytest
import yaml
from click.testing import CliRunner

from aaiclick.cli.main import cli
from aaiclick.server.metrics import MetricsCollector
from aaiclick.store.metrics import MetricRows

WORDS = {
    "and", "on", "by", "sum", "max", "rate", "increase", "deriv", "histogram_quantile", "up", "job",
    "queue", "worker", "outcome", "le", "severity",
}  # fmt: skip
SUFFIXES = {
    "counter": ("_total",),
    "gauge": ("",),
    "histogram": ("_bucket", "_sum", "_count"),
    "summary": ("_sum", "_count"),
}


def print_file(name: str) -> str:
    result = CliRunner().invoke(cli, ["monitoring", name], standalone_mode=False)
    assert result.exception is None
    return result.stdout


@pytest.fixture(scope="module")
def exported() -> set[str]:
    """Names of all exported series."""
    lists = {name: [] for name in ("jobs", "tasks", "attempts", "queues", "workers", "deleted", "incidents")}
    rows = MetricRows(**lists, events=defaultdict(int))
    return {family.name + suffix for family in MetricsCollector(rows).collect() for suffix in SUFFIXES[family.type]}


def names_in(expression: str) -> set[str]:
    without_texts = re.sub(r'"[^"]*"|\[\w+\]', "", expression)
    return set(re.findall(r"\b[a-z][a-z_]+\b", without_texts)) - WORDS


def test_alert_rules_use_exported_metrics(exported) -> None:
    [group] = yaml.safe_load(print_file("alerts"))["groups"]
    assert len({rule["alert"] for rule in group["rules"]}) == len(group["rules"]) >= 8
    for rule in group["rules"]:
        assert names_in(rule["expr"]) <= exported, rule["alert"]
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert rule["annotations"].keys() == {"summary", "description"}


def test_dashboard_uses_exported_metrics(exported) -> None:
    panels = json.loads(print_file("dashboard"))["panels"]
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    assert set().union(*map(names_in, expressions)) <= exported
    shown = {name.removesuffix("_sum").removesuffix("_bucket") for text in expressions for name in names_in(text)}
    families = {name for name in exported if not name.endswith(("_sum", "_count", "_bucket"))}
    assert families <= shown


def test_unknown_metric_would_be_noticed(exported) -> None:
    assert names_in('max(rate(tasks_lost_total{outcome="x"}[5m]))') - exported == {"tasks_lost_total"}
