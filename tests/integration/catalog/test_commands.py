"""The dag and datasets commands with --org: what they do for one organisation, the other does not see."""

from __future__ import annotations

import asyncio
import getpass
import json

import pytest
from click.testing import CliRunner

from aaiclick.cli.main import cli
from aaiclick.settings import get_settings
from aaiclick.store.engine import connect
from tests.integration.catalog.conftest import JOBS

TWO = f"""
name: shop
jobs:
  - name: fetch
    activation: source
    operator: python
    source: {{kind: cron, schedule: "0 6 * * *"}}
    outputs: [{{name: raw, partition_by: day}}]
    config: {{function: "{JOBS}:fetch"}}
  - name: daily
    activation: reactive
    operator: sql
    execution_strategy: PerPartition
    outputs: [daily]
    config: {{query: "SELECT day, sum(amount) AS total FROM raw GROUP BY day"}}
"""


@pytest.fixture
def command(aaiclick_env, aaiclick_postgres, tmp_path, monkeypatch):
    """Runs a command; what it printed as JSON."""
    monkeypatch.setenv("AAICLICK_TASK_MODULES", JOBS)  # there are two organisations
    get_settings.cache_clear()
    (tmp_path / "one.yaml").write_text(TWO)
    (tmp_path / "two.yaml").write_text(TWO + "description: Another.\n")
    (tmp_path / "three.yaml").write_text(TWO.replace("sum(amount)", "count()"))

    def run(*arguments: str, org: str | None = "acme"):
        words = [str(tmp_path / each) if each.endswith(".yaml") else each for each in arguments]
        done = CliRunner().invoke(cli, words if org is None else [*words, "--org", org], standalone_mode=False)
        if done.exception is not None:
            raise done.exception
        return json.loads(done.stdout) if "json" in arguments else done.stdout

    run("org", "create", "acme", org=None)
    return run


def ask(target, question: str):
    async def asked():
        connection = await connect(target)
        try:
            return [tuple(row) for row in await connection.fetch(question)]
        finally:
            await connection.close()

    return asyncio.run(asked())


def test_a_version_that_serves_again_is_up_to_date_when_its_deploy_has_ended(command):
    """It was deployed when there was nothing to fill it with; what came then, came while another one served."""
    for line in (["deploy", "one.yaml"], ["deploy", "three.yaml"], ["rollback", "shop"], ["run", "shop"]):
        command("dag", *line)
    done = command("dag", "deploy", "three.yaml", "-o", "json")
    assert (done["serves"], done["built"], done["catch_up_id"] is None) == (True, [], False)
    assert command("datasets", "query", "SELECT count() AS days FROM shop.daily", "-o", "json") == [{"days": 2}]


def test_every_command_works_for_the_organisation_that_it_names(command, aaiclick_postgres):
    assert command("dag", "diff", "one.yaml", "-o", "json")
    command("dag", "deploy", "one.yaml")
    command("dag", "deploy", "two.yaml")
    assert command("dag", "diff", "two.yaml", "-o", "json") == []
    assert len(command("dag", "versions", "shop", "-o", "json")) == 2
    assert command("dag", "versions", "-o", "json", org="default") == []
    ran = command("dag", "run", "shop", "-o", "json")
    assert {each["status"] for each in (ran, *ran["tasks"])} == {"COMPLETED"}
    assert command("datasets", "query", "SELECT count() AS days FROM shop.daily", "-o", "json") == [{"days": 2}]
    ask(aaiclick_postgres, "UPDATE dataset_versions SET rows = NULL")
    shown = command("datasets", "show", "shop.daily", "-o", "json")
    assert (shown["dag"], shown["job"], shown["rows"], len(shown["runs"])) == ("shop", "daily", 2, 2)
    assert [each["serving"] for each in shown["generations"]] == [True]
    assert {each["name"] for each in command("datasets", "ls", "-o", "json")} >= {"shop.daily"}
    days = ["--from", "2026-01-01", "--to", "2026-01-02", "--dry-run", "-o", "json"]
    assert command("dag", "backfill", "shop", "--job", "fetch", *days)["count"] == 2
    assert command("dag", "backfill", "shop", "--job", "daily", *days)["before"] == 2
    command("dag", "rollback", "shop")
    command("dag", "pause", "shop")
    assert ask(aaiclick_postgres, "SELECT paused_at IS NOT NULL FROM dag_current_versions") == [(True,)]
    command("dag", "resume", "shop")
    command("dag", "trigger", "shop", "--job", "fetch")
    command("datasets", "readers", "shop.daily")
    command("datasets", "rematerialize", "shop.daily", "--no-wait")
    deeds = ask(aaiclick_postgres, "SELECT action FROM audit_log WHERE target = 'shop.daily' ORDER BY id")
    assert deeds == [("dataset.readers",), ("dataset.rematerialize",)]
    slugs = ask(aaiclick_postgres, "SELECT DISTINCT o.slug FROM jobs j JOIN orgs o ON o.id = j.org_id")
    assert slugs == [("acme",)]
    deeds = ask(aaiclick_postgres, "SELECT actor, action, target FROM audit_log WHERE target = 'shop' ORDER BY id")
    actions = ["deploy", "deploy", "run", "rollback", "pause", "resume", "run"]
    assert deeds == [(f"local:{getpass.getuser()}", f"dag.{action}", "shop") for action in actions]
    for words in (["run", "shop"], ["pause", "shop"], ["rollback", "shop"], ["trigger", "shop"]):
        with pytest.raises(Exception, match="There is no DAG 'shop'"):
            command("dag", *words, org="default")
    with pytest.raises(Exception, match="nobody"):
        command("dag", "versions", org="nobody")
    assert len(ask(aaiclick_postgres, "SELECT 1 FROM audit_log WHERE target = 'shop'")) == len(deeds)
