"""docs/objects.md: every method of Objects, Views and groups with its signature, an example and its result, generated.

    python -m tests.integration.data.reference_objects

The rows of the sample have NULL and NaN, so that each result shows the rules for them. `test_reference.py` compares the
page with the results.
"""

# ruff: noqa: E501  (datetimes without a time zone; lines of examples and of the page)

from __future__ import annotations

import ast
import asyncio
import inspect
import math
import tempfile
from datetime import date, datetime
from pathlib import Path

import aaiclick.data
from aaiclick.data import DataContext, GroupBy, Object, View, create, create_object_from_value
from aaiclick.data.fetch_methods import ReaderMethods
from aaiclick.data.io import ingest
from aaiclick.data.join_methods import JoinMethods
from aaiclick.data.relational_methods import TableMethods
from aaiclick.data.reshape_methods import ReshapeMethods
from tests.integration.data.reference import escape, format_signature, public_methods

PAGE = Path(__file__).parents[3] / "docs" / "objects.md"
ROWS = """{
    "k": ["a", "b", "a", None],
    "v": [3, None, 1, 2],
    "f": [2.5, nan, None, 0.5],
    "t": [datetime(2024, 1, 1, 1), datetime(2024, 1, 1, 3), None, datetime(2024, 1, 1, 3, 30)],
    "l": [[1, 2], [], None, [3]],
    "r": [{"x": 1}, None, {"x": None}, {"x": 4}],
}"""
OTHER = '{"k": ["a", None, "c"], "w": [10, 20, 30]}'
FILE = "k,v\\na,1\\n,2\\n"

TABLE = """obj.select("k", x=col("v") + 1) | obj.select("v").with_columns(x=col("v") * 2) | obj.select("v").rename({"v": "x"})
obj.drop("k", "t", "l", "r") | obj.select("v").cast_columns({"v": float}) | obj.select("v").with_row_index()
obj.select("k", "v").filter(col("v") > 1) | obj.select("k", "v").where("v > 1") | obj.select("v").sort("v", descending=True)
obj.select("v").reverse() | obj.select("v").slice(-2, 1) | obj.select("v").head(2) | obj.select("v").tail(2)
obj.select("v").limit(1) | obj.select("v").sample(2, seed=1) | obj.select("k").distinct() | obj.select("k", "v").unique("k")
obj.select("k", "f").drop_nulls() | obj.group_by("k").agg(x=col("v").sum(), y=col("f").max())
obj.group_by_time("t", "1h").agg(x=col("v").sum(), y=col("v").max()) | obj.select("k").value_counts()"""
JOINS = """obj.select("k", "v").join(other, "k", how="full") | obj.select("v").join_where(other, col("v") * 10 == col("w"))
obj.select("v").join_asof(other.select(v=col("w") // 10, w=col("w")), "v")"""
RESHAPES = """obj.select("v", "l").explode("l") | obj.select("r").unnest() | obj.select("k", "v", "f").unpivot(["v", "f"], index="k")
await obj.pivot("k", index="t", values="v", aggregate="sum", columns=["a", "b"]) | obj.select("v").concat(obj.select("v").head(1))
obj.select("k").union(other.select("k")) | obj.select("k").intersect(other.select("k"))
obj.select("k").difference(other.select("k"))"""
READERS = """await obj["v"].data() | await obj.select("k", "f").rows() | (await obj.select("v").to_arrow())["v"].to_pylist()
(await obj.select("v").to_pandas())["v"].to_list() | (await obj.select("f").to_polars())["f"].to_list()
await obj.select("v").fill_null(0).to_numpy() | [batch.num_rows async for batch in obj.iter_batches()] | await obj.count()
(await obj.select("k", "v").export(folder / "x.csv")).read_text() | await obj.select("v").head(0).show()
(await obj.rich(2)).row_count | "NULL" in await obj.html(2)"""
GROUPS = """obj.group_by("k").having(length() > 1).agg(n=length()) | obj.group_by("k").agg(x=col("v").mean(), y=col("v").count())
obj.select("k", "v").group_by("k").head(1) | obj.select("k", "v").group_by("k").tail(1) | obj.group_by("k").len()
obj.select("k", "v").group_by("k").sum() | obj.select("k", "v").group_by("k").mean() | obj.select("k", "f").group_by("k").min()
obj.select("k", "f").group_by("k").max() | obj.select("k", "f").group_by("k").count()"""
OBJECTS = """sorted((await obj.materialize()).to_dict()) | "SELECT" in obj.select("v").sql() | "ReadFrom" in await obj.explain()
(await obj["v"].materialize()).shape | await obj.store_literal() | obj["v"].isin([1, None]) | obj["v"].slice(1, 2)
[await chunk.count() for chunk in await obj.chunks(3)] | await (await create_object_from_value({"v": [1]})).insert({"v": [2]})
await obj.select("v", "k").describe() | await obj.select("v", "f").head(1).correlation() | obj.view(1, 2).select("v")
len(obj.tables())"""
VIEWS = """obj.view(1, 2).to_dict()["offset"] | obj.view(1, 3).slice(1, 1).select("v") | obj.view(1, 3).take_range(0, 2).select("v")
obj.view(0, 3).view(2, 1)"""
CREATE = """await create_object_from_value({"x": [1, None]}, name="kept", schema={"x": "Nullable(Float64)"})
await create_object_from_query("SELECT number AS n FROM numbers({rows:UInt8})", {"rows": 2})
await create_object_from_file(folder / "in.csv") | (await preview_file(folder / "in.csv")).rows
await (await open_object("kept")).data() | await list_objects()
await insert(await open_object("kept"), {"x": [2.5]}) | await delete_object("kept")"""

SECTIONS = (
    ("Columns and rows", TableMethods, TABLE),
    ("Joins", JoinMethods, JOINS),
    ("Rows to columns and back, several Objects", ReshapeMethods, RESHAPES),
    ("Groups", GroupBy, GROUPS),
    ("Results", ReaderMethods, READERS),
    ("Objects", Object, OBJECTS),
    ("Views", View, VIEWS),
)
FUNCTIONS = {
    name: getattr(module, name)
    for module, names in (
        (
            create,
            (
                "create_object_from_value",
                "create_object_from_query",
                "open_object",
                "list_objects",
                "insert",
                "delete_object",
            ),
        ),
        (ingest, ("create_object_from_file", "preview_file")),
    )
    for name in names
}
HEAD = f"""# Objects: reference

Every method of Objects, Views and groups with an example and its result. `tests/integration/data/reference_objects.py` generates this page from the methods, and a test runs the examples.
[tables.md](tables.md) explains the operations, [values.md](values.md) has the rules for NULL and NaN, and [expressions.md](expressions.md) the methods of expressions.

The rows of the sample have NULL and NaN:

```python
obj = await create_object_from_value({ROWS})
other = await create_object_from_value({OTHER})
```

A table is shown as the dict that `await obj.data()` returns.
"""


def split_examples(text: str) -> list[str]:
    return [code.strip() for line in text.splitlines() for code in line.split(" | ")]


def called_names(code: str) -> list[str]:
    """Return the names of the functions and methods that an example calls, the outermost first."""
    calls = [node.func for node in ast.walk(ast.parse(code, mode="eval")) if isinstance(node, ast.Call)]
    return [func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "") for func in calls]


def example_of(name: str, text: str) -> str:
    """Return the example of a method: one where it is called last, or any; raise KeyError if there is none."""
    codes = split_examples(text)
    chosen = [code for code in codes if called_names(code)[0] == name] or [c for c in codes if name in called_names(c)]
    if not chosen:
        raise KeyError(f"{name} has no example")
    return chosen[0]


async def run_example(code: str, names: dict[str, object]) -> str:
    """Return the text of the result of an example."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    result = eval(compile(code, code, "eval", flags=flags), names)
    if inspect.iscoroutine(result):
        result = await result
    if isinstance(result, Object):
        result = await result.data()
    return repr(result).replace("datetime.datetime", "datetime").replace("\n", " ")


async def make_objects_page() -> str:
    """Return the page; needs an open DataContext."""
    names = {name: getattr(aaiclick.data, name) for name in aaiclick.data.__all__}
    values = {"nan": math.nan, "date": date, "datetime": datetime}
    names |= values | {
        "obj": await create_object_from_value(eval(ROWS, values)),
        "other": await create_object_from_value(eval(OTHER)),
    }
    parts = [HEAD]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "in.csv").write_text("k,v\na,1\n,2\n")
        names["folder"] = Path(folder)
        for title, owner, text in SECTIONS:
            parts.append(await make_section(title, public_methods(owner), text, names))
        signatures = {name: format_signature(function, skipped=0) for name, function in FUNCTIONS.items()}
        parts.append(await make_section("Creation", signatures, CREATE, names))
    return "".join(parts)


async def make_section(title: str, signatures: dict[str, str], text: str, names: dict[str, object]) -> str:
    rows = [f"\n## {title}\n", "| method | example | result |", "|---|---|---|"]
    for name, signature in signatures.items():
        code = example_of(name, text)
        result = await run_example(code, names)
        rows.append(f"| `{escape(signature)}` | `{escape(code)}` | `{escape(result)}` |")
    return "\n".join(rows) + "\n"


async def main() -> None:
    async with DataContext():
        PAGE.write_text(await make_objects_page(), encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main())
