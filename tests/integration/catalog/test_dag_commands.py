"""The dag and datasets commands with --org: one organisation does not see the other."""

from __future__ import annotations

import asyncio
import getpass
import json

import pytest
from click.testing import CliRunner

from aaiclick.cli.main import cli
from aaiclick.settings import get_settings
from aaiclick.store.postgres_connections import connect
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
    """Run a command; return its JSON output."""
    monkeypatch.setenv("AAICLICK_TASK_MODULES", JOBS)  # there are two organisations
    get_settings.cache_clear()
    (tmp_path / "one.yaml").write_text(TWO)
    (tmp_path / "two.yaml").write_text(TWO + "description: Another.\n")
    (tmp_path / "three.yaml").write_text(TWO.replace("sum(amount)", "count()"))

    def run(*arguments: str, org: str | None = "acme"):
        command_arguments = [
            str(tmp_path / argument) if argument.endswith(".yaml") else argument for argument in arguments
        ]
        done = CliRunner().invoke(
            cli, command_arguments if org is None else [*command_arguments, "--org", org], standalone_mode=False
        )
        if done.exception is not None:
            raise done.exception
        return json.loads(done.stdout) if "json" in arguments else done.stdout

    run("org", "create", "acme", org=None)
    return run


def ask(endpoint, question: str):
    async def query():
        connection = await connect(endpoint)
        try:
            return [tuple(row) for row in await connection.fetch(question)]
        finally:
            await connection.close()

    return asyncio.run(query())


def test_redeployed_version_is_up_to_date(command):
    """It was deployed without data to fill it; the data arrived while another version served."""
    for line in (["deploy", "one.yaml"], ["deploy", "three.yaml"], ["rollback", "shop"], ["run", "shop"]):
        command("dag", *line)
    done = command("dag", "deploy", "three.yaml", "-o", "json")
    assert (done["serves"], done["built"], done["catch_up_id"] is None) == (True, [], False)
    assert command("datasets", "query", "SELECT count() AS days FROM shop.daily", "-o", "json") == [{"days": 2}]


def test_commands_work_for_named_organisation(command, aaiclick_postgres):
    assert command("dag", "diff", "one.yaml", "-o", "json")
    command("dag", "deploy", "one.yaml")
    command("dag", "deploy", "two.yaml")
    assert command("dag", "diff", "two.yaml", "-o", "json") == []
    assert len(command("dag", "versions", "shop", "-o", "json")) == 2
    assert command("dag", "versions", "-o", "json", org="default") == []
    ran = command("dag", "run", "shop", "-o", "json")
    assert {status_row["status"] for status_row in (ran, *ran["tasks"])} == {"COMPLETED"}
    assert command("datasets", "query", "SELECT count() AS days FROM shop.daily", "-o", "json") == [{"days": 2}]
    ask(aaiclick_postgres, "UPDATE dataset_versions SET rows = NULL")
    shown = command("datasets", "show", "shop.daily", "-o", "json")
    assert (shown["dag"], shown["job"], shown["rows"], len(shown["runs"])) == ("shop", "daily", 2, 2)
    assert [generation["serving"] for generation in shown["generations"]] == [True]
    assert {dataset["name"] for dataset in command("datasets", "ls", "-o", "json")} >= {"shop.daily"}
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
    for arguments in (["run", "shop"], ["pause", "shop"], ["rollback", "shop"], ["trigger", "shop"]):
        with pytest.raises(Exception, match="There is no DAG 'shop'"):
            command("dag", *arguments, org="default")
    with pytest.raises(Exception, match="nobody"):
        command("dag", "versions", org="nobody")
    assert len(ask(aaiclick_postgres, "SELECT 1 FROM audit_log WHERE target = 'shop'")) == len(deeds)
