"""What the documents say is shown by a test is shown by one that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = ("security.md", "reliability.md", "operations.md", "spec.md")


@pytest.fixture(scope="module")
def tests():
    files = [path for path in (ROOT / "tests").rglob("*.py") if path.name != Path(__file__).name]
    text = "\n".join(path.read_text() for path in files)
    return {path.name for path in files}, set(re.findall(r"def (test_\w+)", text))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_test_that_is_named_exists(document, tests):
    files, functions = tests
    text = (ROOT / "docs" / document).read_text()
    missing = [name for name in re.findall(r"`(tests/[\w/.]+)`", text) if not (ROOT / name).exists()]
    for name in re.findall(r"`(test_\w+)(?:\[[^`]*\])?`", text):
        missing += [] if name in functions else [name]
    missing += [name for name in re.findall(r"`(test_\w+\.py)`", text) if name not in files]
    assert missing == []
