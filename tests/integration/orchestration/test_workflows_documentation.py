"""docs/workflows.md: its examples run as written."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

from aaiclick.settings import get_settings

PAGE = (Path(__file__).parents[3] / "docs" / "workflows.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
MODULE = "# orders.py\n"


@pytest.fixture
def orders(aaiclick_env, tmp_path, monkeypatch):
    """Write the page's module."""
    monkeypatch.setenv("AAICLICK_LOG_DIR", str(tmp_path / "logs"))
    get_settings.cache_clear()
    parts = [text.removeprefix(MODULE) for text in EXAMPLES if text.startswith(MODULE)]
    (tmp_path / "orders.py").write_text("\n\n".join(parts))
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("orders", None)  # other tests have modules of this name
    yield
    sys.modules.pop("orders", None)


@pytest.mark.usefixtures("orders")
async def test_every_example_runs():
    names: dict[str, object] = {}
    examples = [text for text in EXAMPLES if not text.startswith(MODULE)]
    assert len(examples) >= 3
    for text in examples:
        code = compile(text, "docs/workflows.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if (running := eval(code, names)) is not None:
            await running
