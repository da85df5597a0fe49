"""The examples run and print the expected output."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted(ROOT.glob("examples/data_*.py"))
EXPECTED = {
    "data_files.py": "left behind     False",
    "data_first_steps.py": "a + b           [13, 31, 22]",
    "data_views_and_chunks.py": "opened again    {'n': [122, 124, 126]}",
    "data_without_await.py": "above the mean  [{'shop': 'n', 'price': 7}]",
}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs(path, clickhouse_endpoint):
    endpoint = clickhouse_endpoint
    credential = f"{quote(endpoint.user, safe='')}:{quote(endpoint.password, safe='')}"
    url = (
        f"http://{credential}@{endpoint.host}:{endpoint.port}/{endpoint.database}?{urlencode({'path': endpoint.path})}"
    )
    environ = {**os.environ, "AAICLICK_CLICKHOUSE_URL": url}
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=60, env=environ, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert EXPECTED[path.name] in done.stdout
