"""docs/jobs.md: its examples run as written, and its table of options matches the code."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from datetime import date
from pathlib import Path

import pytest

from aaiclick import orchestration
from aaiclick.orchestration import OrchContext, api, decorators, handler_registry
from aaiclick.settings import get_settings
from aaiclick.store.task_options import TaskKeywords

PAGE = (Path(__file__).parents[3] / "docs" / "jobs.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
FILE_HEADING = re.compile(r"# (\w+\.py)\n")
NOT_OPTIONS = {"unknown", "callback", "kwargs", "type", "payload", "payloads", "function", "entry"}


@pytest.fixture
async def shop(aaiclick_env, tmp_path, monkeypatch):
    """Write the page's module and the table that its examples need."""
    monkeypatch.setenv("AAICLICK_LOG_DIR", str(tmp_path / "logs"))
    get_settings.cache_clear()
    monkeypatch.setattr(handler_registry, "_handlers", {})  # other tests have handlers of the same type
    for text in EXAMPLES:
        if heading := FILE_HEADING.match(text):
            with (tmp_path / heading[1]).open("a") as module:
                module.write(text + "\n\n")
    monkeypatch.syspath_prepend(tmp_path)
    async with OrchContext() as context, context.connection() as connection:
        await connection.execute("CREATE TABLE orders (id bigint PRIMARY KEY)")


async def test_every_example_runs(shop):
    names: dict[str, object] = {}
    for text in EXAMPLES:
        if not FILE_HEADING.match(text):
            code = compile(text, "docs/jobs.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            if (running := eval(code, names)) is not None:
                await running
    assert names["done"].status == "COMPLETED"
    assert len(names["later"]) == 1000
    async with OrchContext() as context, context.connection() as connection:
        assert await connection.fetchval("SELECT array_agg(id) FROM orders") == [8]
        sent = await connection.fetchval('SELECT count(*) FROM tasks WHERE kwargs @> \'{"to": "ada@example.org"}\'')
        assert sent == 2


async def test_orders_of_a_week_are_printed(shop):
    weekly = importlib.import_module("orders").weekly
    done = orchestration.run_job_test(await weekly(date(2026, 11, 16)))
    assert (done.status, done.error) == ("COMPLETED", None)


def test_option_table_matches_the_code():
    head, _, *rows = [
        [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        for line in PAGE.split("## Options")[1].strip().splitlines()
    ]
    functions = {
        "@task": decorators.task,
        "create_task": api.create_task,
        "enqueue": orchestration.enqueue,
        "enqueue_many": orchestration.enqueue_many,
        "@job": decorators.job,
        "create_job": api.create_job,
    }
    assert head[1:-1] == list(functions)
    for column, (name, function) in enumerate(functions.items(), start=1):
        has = set(inspect.signature(function).parameters) - NOT_OPTIONS
        if "options" in has:
            keywords = decorators.JobKeywords if name == "@job" else TaskKeywords
            has = (has - {"options"}) | set(keywords.__annotations__)
        if name == "create_job":
            has.discard("name")  # the first parameter
        assert {row[0] for row in rows if row[column] == "yes"} == has, name


def test_pages_name_all_public_functions():
    beside = {
        "Health", "Job", "JobStatus", "Task", "TaskStatus", "Worker", "WorkerStatus", "deregister_worker",
        "emit_event", "get_current_context", "get_orch_context_session", "health_check", "list_workers",
        "register_worker", "worker_heartbeat", "NominalDate", "NominalTime", "schedule_item", "unschedule",
    }  # fmt: skip
    pages = PAGE + (Path(__file__).parents[3] / "docs" / "workflows.md").read_text(encoding="utf-8")
    assert [name for name in orchestration.__all__ if name not in pages and name not in beside] == []
