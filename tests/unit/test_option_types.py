"""Unknown options of the decorators and of `.options()` are errors of the type checker."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[2]
SNIPPET = """
from aaiclick.orchestration import create_task, enqueue, job, task


@task(retries=2, timeout_seconds=60)
def load(day: str) -> int:
    return len(day)


@task(retrys=2)
def misspelt() -> None: ...


@task(retries="two")
def wrong_type() -> None: ...


@job(timezone="UTC", owner="ada")
def nightly() -> None:
    load.options(priority=3)("2026-11-16")
    load.options(prio=3)("2026-11-16")
    load(7)
    create_task(load, {"day": "2026-11-16"}, retrys=2)


@job(schedul="0 3 * * *")
def monthly() -> None: ...


async def send() -> None:
    await enqueue("mail:send", {}, prio=1)
"""


def test_unknown_options_are_type_errors(tmp_path):
    (tmp_path / "shop.py").write_text(SNIPPET)
    (tmp_path / "pyrightconfig.json").write_text(
        json.dumps({"extraPaths": [str(PACKAGE)], "typeCheckingMode": "basic"})
    )
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable, str(tmp_path)]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    errors = json.loads(checked.stdout)["generalDiagnostics"]
    lines = {SNIPPET.splitlines()[error["range"]["start"]["line"]].strip() for error in errors}
    assert lines == {
        "@task(retrys=2)",
        '@task(retries="two")',
        'load.options(prio=3)("2026-11-16")',
        "load(7)",
        'create_task(load, {"day": "2026-11-16"}, retrys=2)',
        '@job(schedul="0 3 * * *")',
        'await enqueue("mail:send", {}, prio=1)',
    }
