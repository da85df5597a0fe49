"""Operators run from the CLI, with progress output."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.fork_server import FORK_SERVER

ROOT = Path(__file__).parents[3]


def aaiclick(*args: str) -> subprocess.CompletedProcess[str]:
    completed = FORK_SERVER.run(list(args), dict(os.environ), ROOT, timeout=150)
    assert completed.returncode == 0, completed.stderr
    return completed


@pytest.mark.timeout(240)
def test_the_example_runs_and_shows_its_progress(aaiclick_env, tmp_path, monkeypatch):
    monkeypatch.setenv("AAICLICK_LOG_DIR", str(tmp_path))
    ran = aaiclick("run", "examples.map_prices.prices", "--arg", "rows=250000", "-o", "json")
    assert "map examples.map_prices.add_tax: 3 of 3 chunks, 250,000 (" in ran.stderr
    job = json.loads(ran.stdout)
    shown = aaiclick("jobs", "show", job["id"]).stdout
    assert "map examples.map_prices.select_expensive" in shown
    assert "250,000 (" in shown
    tasks = json.loads(aaiclick("tasks", "ls", job["id"], "-o", "json").stdout)
    logs = "".join(path.read_text() for path in tmp_path.glob("*.log"))
    assert "map examples.map_prices.add_tax: 250,000 rows in 3 chunks of 100,000" in logs
    assert "3 of 3 chunks, 250,000 rows in" in logs
    assert "2,000 expensive items, prices from 0.00 to 118.88" in logs
    assert (len(tasks), job["open_tasks"]) == (job["total_tasks"], 0)
