"""`aaiclick demo` and its shop."""

from __future__ import annotations

import re

import pytest


@pytest.mark.timeout(170)
def test_demo_completes_although_a_worker_is_killed(aaiclick, tmp_path) -> None:
    browser = tmp_path / "browser"
    browser.write_text('#!/bin/sh\necho "$1" > opened\n')
    browser.chmod(0o755)
    ran = aaiclick("demo", "--no-serve", "--open", TMPDIR=str(tmp_path), BROWSER=f"{browser} %s")
    assert ran.returncode == 0, ran.stderr
    address = re.search(r"Web UI: (http://127\.0\.0\.1:\d+)", ran.stderr)
    assert (tmp_path / "opened").read_text() == f"{address[1]}\n"
    assert "2026-11-07" in ran.stderr
    killed = re.search(r"kill -9 \d+ .* (\d+) running tasks", ran.stderr)
    repeated = re.search(r"Job COMPLETED: 26 tasks, (\d+) of them repeated", ran.stderr)
    assert int(killed[1]) > 0
    assert int(repeated[1]) > 0
    assert "24 invoices" in ran.stderr
    assert [path for path in tmp_path.iterdir() if path.name.startswith("aaiclick-demo-")] == []
