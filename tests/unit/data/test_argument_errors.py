"""Every public method × every argument × values of wrong types: accepted, or an error of aaiclick with a sentence.

The calls are those of the reference (`tests/integration/data/reference.py`) and `TABLE_CALLS`; one argument at a
time is replaced by each of `WRONG`. No query runs: expressions are bound to a schema and compiled.
"""

# ruff: noqa: DTZ001

from __future__ import annotations

import ast
import math
from datetime import date, datetime, timedelta
from decimal import Decimal

import pytest

from aaiclick.data import col, length
from aaiclick.data.types import user_type
from aaiclick.errors import AaiclickError
from tests.integration.data.reference import NAMES, SECTIONS, examples
from tests.unit.data.test_relation_compiler import table

COLUMNS = {"k": "String", "i": "Nullable(Int64)", "f": "Nullable(Float64)", "b": "Nullable(Bool)",
           "s": "Nullable(String)",
           "d": "Nullable(Date32)", "t": "Nullable(DateTime64(6))", "p": "Duration", "l": "Array(Nullable(Int64))",
           "v": "Array(Float64)", "m": "Map(String, Int64)", "r": "Tuple(x Nullable(Int64), y String)",
           "j": "Nullable(String)"}  # fmt: skip
TABLE_CALLS = """
select("i", x=col("i")) | with_columns("i", x=col("i")) | rename({"i": "x"}) | drop("i") | cast_columns({"i": float})
with_row_index("n") | filter(col("b")) | where("i > 1") | sort("i", descending=True, nulls_first=True) | slice(1, 2)
head(1) | tail(1) | limit(1) | sample(1, seed=1) | sample(fraction=0.5, seed=1) | distinct("i") | unique("i")
drop_nulls("i") | group_by("k").agg(x=col("i").sum()) | group_by("k").having(col("i").sum() > 1).agg(x=length())
group_by("k").head(1) | group_by("k").tail(1) | group_by("k").len("n") | value_counts("n")
group_by_time("t", "1h", "k", fill=True, start=date(2024, 1, 1), end=date(2024, 1, 2)).agg(x=length())
join(other, "k", "left", suffix="_x") | join(other, left_on="k", right_on="k")
join_where(other, col("i") < col("o"), suffix="_x")
join_asof(other, "i", "k", strategy="nearest", tolerance=2, suffix="_x") | explode("l", keep_empty=True) | unnest("r")
unpivot(["i", "f"], index="k", variable_name="a", value_name="z") | concat(same, how="diagonal") | union(same)
intersect(same) | difference(same) | __getitem__("i") | view(0, 1, "i > 1")
"""


class Strange:
    def __repr__(self):
        return "<strange>"


WRONG = {
    "None": None, "5": 5, "-1": -1, "1.5": 1.5, "nan": math.nan, "True": True, "text": "x", "empty": "", "bytes": b"x",
    "list": [1], "texts": ["int"], "nested": [[1]], "nothing": [], "dict": {"a": 1}, "lists": {"a": ["int"]},
    "tuple": ("x", 2), "set": {1}, "object": Strange(), "type": int, "class": Strange, "function": lambda: 1,
    "date": date(2024, 1, 1), "datetime": datetime(2024, 1, 1), "timedelta": timedelta(days=1), "large": 10**30,
    "decimal": Decimal("1.5"), "surrogate": "\ud800", "null byte": "\0", "complex": 1j, "column": col("i"),
    "missing column": col("nope"), "aggregate": col("i").sum(), "mixed": [1, "x"], "mixed keys": {1: 2, "x": None},
}  # fmt: skip


def vary_arguments(call):
    """Yield the source of a call with one argument replaced by `wrong`, and the argument's text."""
    tree = ast.parse(call, mode="eval")
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    for node in calls:
        if isinstance(node.func, ast.Name) and node.func.id in ("col", "date", "length", "CsvOptions", "timedelta"):
            continue
        for i, arg in enumerate(node.args):
            node.args[i] = ast.Name("wrong", ast.Load())
            yield ast.unparse(tree)
            node.args[i] = arg
        for keyword in node.keywords:
            value, keyword.value = keyword.value, ast.Name("wrong", ast.Load())
            yield ast.unparse(tree)
            keyword.value = value


def split_calls(text):
    return [call.strip() for line in text.strip().splitlines() for call in line.split(" | ")]


def find_raw_errors(sources, names, use):
    """Evaluate each source with each wrong value; return those that raise another error than aaiclick's."""
    problems = []
    for source in sources:
        code = compile(source, source, "eval")
        for label, wrong in WRONG.items():
            try:
                use(eval(code, {**names, "wrong": wrong}))
            except AaiclickError as error:
                if not str(error).split(".")[0].strip():
                    problems.append(f"{source} of {label}: no sentence")
            except Exception as error:  # noqa: BLE001
                problems.append(f"{source} of {label}: {type(error).__name__}: {error}")
    return problems


def report(problems):
    assert not problems, f"{len(problems)} raw errors:\n" + "\n".join(problems[:80])


@pytest.mark.parametrize(("title", "namespace", "owner", "text"), SECTIONS)
def test_arguments_of_expressions(title, namespace, owner, text):
    obj = table("t1", **COLUMNS)

    def use(value):
        repr(value)
        obj.select(value.alias("x")).sql(pretty=False)

    sources = [s for call in examples(text, namespace).values() for s in vary_arguments(call)]
    report(find_raw_errors(sources, NAMES, use))


def test_arguments_of_table_methods():
    obj, other, same = table("t1", **COLUMNS), table("t2", k="String", o="Int64", i="Int64"), table("t3", **COLUMNS)
    names = {**NAMES, "obj": obj, "other": other, "same": same, "length": length}
    sources = [s for call in split_calls(TABLE_CALLS) for s in vary_arguments(f"obj.{call}")]
    report(find_raw_errors(sources, names, lambda value: value.sql(pretty=False) if hasattr(value, "sql") else None))


def test_types_of_schemas():
    assert find_raw_errors(["user_type(wrong)"], {"user_type": user_type}, repr) == []


FORMATTED = "YymdeHIMSfpjaAbBzFTDRcxXnt%UWVGuw"
PARSED = "YymdeHIMSfpjaAbBzFTDRcxXnt%"
"""The directives of docs/values.md."""


def test_formats_accept_only_documented_directives():
    for letters, method in ((FORMATTED, col("t").dt.strftime), (PARSED, col("s").str.strptime)):
        for letter in map(chr, range(33, 127)):
            if letter in letters:
                method(f"%{letter}")
            else:
                with pytest.raises(AaiclickError, match="is not supported here"):
                    method(f"%{letter}")
