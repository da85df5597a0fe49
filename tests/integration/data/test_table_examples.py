"""The examples of docs/tables.md return what the page says."""

from __future__ import annotations

import ast
import inspect
import re
from datetime import date, datetime, timedelta
from pathlib import Path

import pytest

import aaiclick.data

PAGE = Path(__file__).parents[3] / "docs" / "tables.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


async def evaluate(code, names):
    """Run statements with top-level await; return the value of the last one if it is an expression."""
    tree = ast.parse(code)
    value = None
    for statement in tree.body:
        is_expression = isinstance(statement, ast.Expr)
        node = ast.Expression(statement.value) if is_expression else ast.Module([statement], [])
        mode = "eval" if is_expression else "exec"
        value = eval(compile(node, str(PAGE), mode, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
        if inspect.iscoroutine(value):
            value = await value
    return value


@pytest.mark.usefixtures("data")
async def test_examples_return_the_values_of_the_page():
    names = {name: getattr(aaiclick.data, name) for name in aaiclick.data.__all__}
    names |= {"date": date, "datetime": datetime, "timedelta": timedelta}
    assert len(BLOCKS) > 8
    for block in BLOCKS:
        code = ""
        for line in block.splitlines():
            if line.startswith("# "):
                assert repr(await evaluate(code, names)) == line[2:], code
                code = ""
            else:
                code += line + "\n"
        await evaluate(code, names)
