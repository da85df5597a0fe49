"""docs/from-polars-and-pandas.md: every aaiclick cell of the table runs."""

from __future__ import annotations

import ast
import inspect
import re
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl

import aaiclick.data
from aaiclick.data import Column, Object, col, create_object_from_value
from aaiclick.errors import AaiclickError

PAGE = Path(__file__).parents[3] / "docs" / "from-polars-and-pandas.md"
FRAME = pl.DataFrame(
    {
        "k": [1, 1, 2], "a": [1, 2, 3], "b": [2, 2, 5], "v": [1.5, None, 3.0], "s": ["x", "y", None],
        "on": ["p", "q", "p"],
        "t": [datetime(2024, 1, 1, hour) for hour in (1, 2, 5)], "u": [datetime(2024, 1, 1)] * 3,  # noqa: DTZ001
        "l": [[1, 2], [], [3]], "r": [{"z": 1}, {"z": 2}, {"z": 3}],
    }
)  # fmt: skip
FORMS = ("{}", "obj.{}", '(col("t") - col("u")).{}', 'col("v").{}', 'col("t").{}', 'col("s").{}', 'col("v"){}')
"""A cell is an expression, or only the call of a method."""

NO_CALLS = {"map", "str.matches"}


def cells():
    """Return the code of the third column."""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        columns = line.split("|")[1:-1]
        if len(columns) == 3 and not line.startswith("| polars"):
            yield from (code for code in re.findall(r"`([^`]+)`", columns[2]) if code not in NO_CALLS)


def fill_in(code):
    """Replace the omitted arguments by those that fit the sample."""
    filled = code.replace("create_object_from_value(...)", "create_object_from_value(frame)")
    filled = filled.replace("obj.join_where(other, ...)", 'obj.join_where(other, col("a") < col("w"))')
    filled = filled.replace("with_columns(c=...)", 'with_columns(c=col("a"))').replace(
        'obj.unnest("s")', 'obj.unnest("r")'
    )
    filled = re.sub(r"\b(cut|qcut|replace|explode)\b(?!\()", r"\1({})", filled)
    return filled.replace("qcut({})", "qcut(2)").replace("cut({})", "cut([1, 2])")


async def test_every_cell_of_the_table_runs(data, tmp_path):
    obj = await create_object_from_value(FRAME)
    other = await create_object_from_value({"k": [1, 2], "t": [datetime(2024, 1, 1)] * 2, "w": [5, 6]})  # noqa: DTZ001
    path = await obj.drop("r", "l").export(tmp_path / "x.csv")
    names = {name: getattr(aaiclick.data, name) for name in aaiclick.data.__all__}
    names |= {"obj": obj, "other": other, "frame": FRAME, "path": path, "timedelta": timedelta, "c": col("a") > 1}
    failures = [f"{code}: {error}" for code in cells() if (error := await run_cell(code, names, obj)) is not None]
    assert failures == []


async def run_cell(code, names, obj):
    """Run the code in the first of `FORMS` in which it is defined; return the first error if there is none."""
    is_choice = code.startswith(("if_else", "case"))
    both = {"a": col("a"), "b": col("b")} if is_choice else {"a": obj.select("a", "b"), "b": obj.select("a", "b")}
    errors = []
    for form in FORMS:
        try:
            compiled = compile(form.format(fill_in(code)), code, "eval", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            result = eval(compiled, {**names, **both})
            result = await result if inspect.isawaitable(result) else result
            if isinstance(result, Column):
                result = obj.select(result)
            if isinstance(result, Object):
                await result.data()
        except (NameError, SyntaxError, AttributeError, TypeError, AaiclickError) as error:
            errors.append(error)
        else:
            return None
    return errors[0]
