"""docs/schedules.md: its examples run as written, and its table of policies matches the code."""

from __future__ import annotations

import ast
import re
from datetime import date
from pathlib import Path
from typing import get_args

import pytest

from aaiclick.cron import MissedPolicy, OverlapPolicy
from aaiclick.orchestration import JobStatus, OrchContext, run_job_test
from aaiclick.orchestration.loops import scheduler
from aaiclick.orchestration.schedules import find_declared_schedules

PAGE = (Path(__file__).parents[3] / "docs" / "schedules.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def reports(aaiclick_env, tmp_path, monkeypatch):
    """The page's module."""
    (text,) = [text for text in EXAMPLES if text.startswith("# reports.py\n")]
    (tmp_path / "reports.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)


async def test_every_example_runs(reports):
    names: dict[str, object] = {}
    for text in EXAMPLES:
        if not text.startswith("# reports.py\n"):
            code = compile(text, "docs/schedules.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            if (running := eval(code, names)) is not None:
                await running
    assert names["request"].name == "hourly"
    async with OrchContext() as context, context.connection() as connection:
        assert await connection.fetch("SELECT name, every_seconds FROM schedules") == [("acme", 3600.0)]
        later = await connection.fetchval("SELECT anchor_at + interval '1 hour' FROM schedules")
        assert (await scheduler.run_once(connection, now=later))["runs"] == 1
    assert run_job_test(await names["nightly"](date(2026, 1, 31))).status is JobStatus.COMPLETED
    assert [new.name for new in find_declared_schedules("reports")] == ["reports.nightly", "reports.poll"]


def test_table_has_all_policies():
    table = PAGE.split("## Policies")[1].split("\n\n")[1]
    values = re.findall(r"^\| \S* ?\| `(\w+)` \|", table, re.MULTILINE)
    assert set(values) == {*get_args(MissedPolicy), *get_args(OverlapPolicy)}
