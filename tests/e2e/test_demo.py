"""`aaiclick demo` and its shop."""

from __future__ import annotations

import re

import pytest


@pytest.mark.timeout(170)
def test_demo_completes_although_a_worker_is_killed(aaiclick, tmp_path) -> None:
    ran = aaiclick("demo", "--no-serve", TMPDIR=str(tmp_path))
    assert ran.returncode == 0, ran.stderr
    assert re.search(r"Web UI: http://127\.0\.0\.1:\d+", ran.stderr)
    assert "2026-11-07" in ran.stderr
    killed = re.search(r"kill -9 \d+ .* (\d+) running tasks", ran.stderr)
    repeated = re.search(r"Job COMPLETED: 26 tasks, (\d+) of them repeated", ran.stderr)
    assert int(killed[1]) > 0
    assert int(repeated[1]) > 0
    assert "24 invoices" in ran.stderr
    assert [path for path in tmp_path.iterdir() if path.name.startswith("aaiclick-demo-")] == []
