"""docs/parameters.md: its examples run as written."""

from __future__ import annotations

import ast
import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from aaiclick.cli.run import run
from aaiclick.errors import SubmitError
from aaiclick.orchestration import JobStatus, run_job_test

PAGE = (Path(__file__).parents[3] / "docs" / "parameters.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [
    shlex.split(line, comments=True)
    for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
]


@pytest.fixture
def trips(aaiclick_env, tmp_path, monkeypatch):
    """The page's module."""
    (text,) = [text for text in EXAMPLES if text.startswith("# trips.py\n")]
    (tmp_path / "trips.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)


async def test_examples_run(trips):
    names: dict[str, object] = {}
    for text in EXAMPLES:
        if not text.startswith("# trips.py\n"):
            code = compile(text, "docs/parameters.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            if (running := eval(code, names)) is not None:
                await running
    assert run_job_test(names["trips_job"]).status is JobStatus.COMPLETED
    assert names["schema"]["required"] == ["day"]
    with pytest.raises(SubmitError) as refusal:
        await names["report"](names["date"](2026, 1, 1), limit=0)
    message, parameters = PAGE.split("```\nreport() has")[1].split("\n")[:2]
    assert str(refusal.value).startswith(f"report() has{message}")
    assert parameters.removesuffix(" …") in str(refusal.value)


def test_commands_run(trips):
    runs = [command for command in COMMANDS if command[:2] == ["aaiclick", "run"]]
    assert len(runs) == 3
    for command in runs:
        result = CliRunner().invoke(run, [*command[2:], "--debug", "-o", "json"])
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["status"] == "COMPLETED"
