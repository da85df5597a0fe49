"""Pages for newcomers: their files are deployed and run as written."""

from __future__ import annotations

import asyncio
import importlib
import json
import re
import shlex
import sys
from datetime import date
from pathlib import Path

import pytest
from click.testing import CliRunner

from aaiclick.cli.main import cli
from aaiclick.orchestration import OrchContext, create_job, enqueue, run_job_test, send_event
from aaiclick.orchestration.worker.inline_runner import run_until_job_ends
from aaiclick.settings import get_settings

DOCS = Path(__file__).parents[3] / "docs"
FILE = re.compile(r"```(?:python|yaml)\n# (\w+\.\w+)\n(.*?)```", re.DOTALL)
JOBS = {
    "first-steps": ("shop", "revenue", {}, 8.7),
    "coming-from/airflow": ("nightly_job", "nightly", {"day": date(2026, 11, 17)}, 7.5),
    "coming-from/airflow#weekday": ("regions_job", "regions", {"day": date(2026, 11, 17)}, "2026-11-17: 6.5 euros"),
    "coming-from/airflow#weekend": ("regions_job", "regions", {"day": date(2026, 11, 15)}, "2026-11-15: 3.5 euros"),
    "coming-from/prefect": ("prices_job", "prices", {}, 7.0),
    "coming-from/celery": ("mail_job", "thumbnails", {}, 600),
    "coming-from/temporal": ("order_job", "order", {}, "shipped after 12 euros"),
}
DAGS = {
    "tutorial": ("shop", "daily_revenue", 187.4),
    "coming-from/dagster": ("revenue", "daily_revenue", 7.5),
    "coming-from/dbt": ("models", "daily_revenue", 7.5),
}


@pytest.fixture
def write_files(aaiclick_env, tmp_path, monkeypatch):
    """Returns a function that writes the files of a page into the current directory."""
    monkeypatch.setenv("AAICLICK_LOG_DIR", str(tmp_path / "logs"))
    get_settings.cache_clear()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    modules: list[str] = []

    def write(page: str) -> str:
        text = (DOCS / f"{page}.md").read_text()
        for name, body in FILE.findall(text):
            (tmp_path / name).write_text(body)
            modules.append(name.partition(".")[0])
            sys.modules.pop(modules[-1], None)
        return text

    yield write
    for module in modules:
        sys.modules.pop(module, None)


def run(*arguments: str) -> str:
    result = CliRunner().invoke(cli, list(arguments), standalone_mode=False)
    assert result.exception is None, (arguments, result.exception, result.stderr)
    assert not result.return_value, (arguments, result.stdout, result.stderr)
    return result.stdout


@pytest.mark.parametrize("page", JOBS)
async def test_job_of_the_page_has_the_expected_result(write_files, tmp_path, page) -> None:
    write_files(page.partition("#")[0])
    (tmp_path / "orders.csv").write_text("region,euros\nnorth,1.5\nsouth,2\neast,3\n")
    module, name, arguments, expected = JOBS[page]
    async with OrchContext():
        await send_event("paid", {"euros": 12}, key="7")
        job = await getattr(importlib.import_module(module), name)(**arguments)
        ended = await asyncio.to_thread(run_job_test, job)
        assert (ended.status, await job.result()) == ("COMPLETED", expected)


def test_airflow_dag_is_rewritten_in_60_lines() -> None:
    files = dict(FILE.findall((DOCS / "coming-from/airflow.md").read_text()))
    assert len(files["regions_job.py"].splitlines()) <= 60


@pytest.mark.parametrize("page", DAGS)
def test_dag_of_the_page_publishes_the_expected_rows(write_files, tmp_path, page) -> None:
    text = write_files(page)
    for block in re.findall(r"```text\n(order_id,.*?)```", text, re.DOTALL):
        (tmp_path / "orders.csv").write_text(block)
    dag, dataset, euros = DAGS[page]
    run("dag", "validate", f"{dag}.yaml")
    run("dag", "deploy", f"{dag}.yaml")
    run("dag", "run", dag)
    [row] = json.loads(run("datasets", "query", f"SELECT sum(euros) AS euros FROM {dataset}", "-o", "json"))
    assert row["euros"] == pytest.approx(euros)
    if page == "tutorial":
        [alert] = json.loads(run("datasets", "query", "SELECT day, value FROM revenue_alerts", "-o", "json"))
        assert alert["value"] == 43.5
        (tmp_path / "orders.csv").write_text((tmp_path / "orders.csv").read_text().replace("false", "true"))
        run("dag", "run", dag)
        [row] = json.loads(run("datasets", "query", f"SELECT sum(euros) AS euros FROM {dataset}", "-o", "json"))
        assert row["euros"] == pytest.approx(205.6)
        _change_the_query(text, tmp_path / "shop.yaml")
        _notice_what_is_wrong(text, tmp_path / "orders.csv")


def _change_the_query(text: str, dag_file: Path) -> None:
    """Add the column that the tutorial names, deploy it and roll it back."""
    column = re.search(r"with a column `(.*?)`", text)[1]
    dag_file.write_text(dag_file.read_text().replace("2) AS euros FROM", f"2) AS euros, {column} FROM"))
    run("dag", "diff", dag_file.name)
    run("dag", "deploy", dag_file.name)
    rows = json.loads(run("datasets", "query", "SELECT largest FROM daily_revenue ORDER BY day", "-o", "json"))
    assert [row["largest"] for row in rows] == [31.5, 99.9]
    run("dag", "rollback", "shop")


def _notice_what_is_wrong(text: str, orders: Path) -> None:
    """Follow the section of the tutorial about tests, freshness and notifications."""
    section = text.partition("## Let it notice what is wrong")[2].partition("\n## ")[0]
    orders.write_text(orders.read_text() + re.search(r"`(6,Dora,.*?)`", section)[1] + "\n")
    outputs = {}
    for line in re.findall(r"^(?:printf|aaiclick) .*$", section, re.MULTILINE):
        value, pipe, command = line.rpartition(" | ")
        arguments = shlex.split(command, comments=True)[1:]
        result = CliRunner().invoke(cli, arguments, shlex.split(value)[1] if pipe else None, standalone_mode=False)
        assert result.exception is None, (line, result.exception)
        outputs[" ".join(arguments[:2])] = result.stdout
    assert "-5" in outputs["datasets query"]
    assert "2026-11-16" in outputs["incidents ls"]
    assert "daily_revenue" in outputs["datasets freshness"]


async def test_queue_item_of_the_celery_page_runs(write_files) -> None:
    write_files("coming-from/celery")
    importlib.import_module("mail_job")
    async with OrchContext():
        first = await enqueue("mail:welcome", {"to": "ada@example.org"}, idempotency_key="welcome-1")
        assert await enqueue("mail:welcome", {"to": "ada@example.org"}, idempotency_key="welcome-1") == first
        job = await create_job("wait", importlib.import_module("mail_job").resize.task(1))
    await asyncio.to_thread(asyncio.run, run_until_job_ends(job.id))
    shown = json.loads(await asyncio.to_thread(run, "tasks", "show", str(first), "-o", "json"))
    assert shown["status"] == "COMPLETED"
