"""Files of `deploy/`, the CI workflow and the alert rules, checked by the schemas and the tool of their programs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from tests.documentation import BLOCKS

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "aaiclick" / "monitoring" / "alerts.yaml"
ALERT_TESTS = Path(__file__).with_name("alert_tests.yaml")
MANIFESTS = [*yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / "aaiclick.yaml").read_text())]
KUBERNETES_VERSIONS = ("1.30", "1.33")


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
@pytest.mark.parametrize(
    "manifest", MANIFESTS, ids=lambda manifest: f"{manifest['kind']}-{manifest['metadata']['name']}"
)
def test_kubernetes_accepts_the_manifest(manifest, version) -> None:
    kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.parametrize(
    ("schema", "file"),
    [("vendor.compose-spec", "deploy/compose.yaml"), ("vendor.github-workflows", ".github/workflows/ci.yml")],
)
def test_file_matches_its_published_schema(schema, file) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, file]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


@pytest.fixture(scope="module")
def promtool() -> str:
    program = shutil.which("promtool", path=f"{os.environ['PATH']}:{ROOT / '.venv' / 'prometheus' / 'usr' / 'bin'}")
    assert program is not None, "The tests need promtool: make prometheus"
    return program


def test_alert_rules_fire_as_expected(promtool, tmp_path) -> None:
    (tmp_path / "alerts.yaml").write_bytes(ALERTS.read_bytes())
    (tmp_path / "tests.yaml").write_bytes(ALERT_TESTS.read_bytes())
    for arguments in (["check", "rules", "alerts.yaml"], ["test", "rules", "tests.yaml"]):
        checked = subprocess.run([promtool, *arguments], cwd=tmp_path, capture_output=True, text=True)
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_documented_configuration_of_prometheus_is_valid(promtool, tmp_path) -> None:
    [text] = [block.text for block in BLOCKS if block.page == "observability.md" and "scrape_configs" in block.text]
    (tmp_path / "aaiclick.yaml").write_bytes(ALERTS.read_bytes())
    (tmp_path / "aaiclick.key").write_text("aai_key")
    (tmp_path / "prometheus.yaml").write_text(text.replace("/etc/prometheus", str(tmp_path)))
    checked = subprocess.run(
        [promtool, "check", "config", "prometheus.yaml"], cwd=tmp_path, capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_alert_rule_has_a_test() -> None:
    [group] = yaml.safe_load(ALERTS.read_text())["groups"]
    expectations = [
        item for test in yaml.safe_load(ALERT_TESTS.read_text())["tests"] for item in test["alert_rule_test"]
    ]
    names = [rule["alert"] for rule in group["rules"]]
    assert sorted({item["alertname"] for item in expectations if item["exp_alerts"]}) == sorted(names)
    assert sorted({item["alertname"] for item in expectations if not item["exp_alerts"]}) == sorted(names)
