"""docs/expressions.md: every method of expressions with its signature, an example and its result, generated.

    python -m tests.integration.data.reference

The rows of the sample have an ordinary value, an edge value (NaN, an empty text or list) and NULL, so that each result
shows the rules for them. `test_reference.py` compares the page with the results.
"""

# ruff: noqa: E501  (lines of examples and of the page)

from __future__ import annotations

import asyncio
import inspect
import math
import re
from datetime import date, datetime, timedelta
from pathlib import Path

from aaiclick.data import Column, DataContext, col, create_object_from_value
from aaiclick.data.expressions import method_namespaces
from aaiclick.data.expressions.aggregate_methods import AggregateMethods
from aaiclick.data.expressions.operators import ExpressionMethods
from aaiclick.data.expressions.window_methods import WindowMethods

PAGE = Path(__file__).parents[3] / "docs" / "expressions.md"
SAMPLE = """{
    "k": ["a", "a", "b"],
    "i": [3, -2, None],
    "f": [2.5, nan, None],
    "b": [True, False, None],
    "s": ["Ab cd", "", None],
    "d": [date(2024, 2, 29), date(1999, 12, 31), None],
    "t": [datetime(2024, 2, 29, 13, 14, 15, 678901), datetime(1999, 12, 31, 23, 59, 59), None],
    "p": [timedelta(hours=36), timedelta(0), None],
    "l": [[3, 1, None], [], None],
    "v": [[3.0, 4.0], [0.0, 0.0], [1.0, 0.0]],
    "m": [{"x": 1}, {}, {"y": 2}],
    "r": [{"x": 1, "y": "u"}, {"x": None, "y": ""}, None],
    "j": ['{"a": [1, 2], "n": 5}', "{}", None],
}"""
NAMES = {"nan": math.nan, "date": date, "datetime": datetime, "timedelta": timedelta, "col": col}

VALUES = """between(0, 3) on i; isin([3, 4]) on i; is_null() on f; is_not_null() on f; is_nan() on f; is_finite() on f
if_else("yes", "no") on b; fill_null(0) on i; fill_nan(0.0) on f; replace({3: 30}) on i; cut([0, 2]) on i
qcut(2) on i; coalesce(0) on i; null_if(3) on i; least(0) on f; greatest(0) on f; clip(-1, 1) on i; cast(str) on i
try_cast(int) on f; abs() on i; sign() on f; round(0) on f; floor() on f; ceil() on f; trunc() on f; sqrt() on f; exp() on f
log() on f; log2() on f; log10() on f; math("cbrt") on i; hash() on i; md5() on s; sha1() on s; sha256() on s"""
AGGREGATES = """sum() on i; min() on f; max() on f; mean() on i; std() on i; var(0) on i; median() on i; quantile(0.25) on i
nunique() on i; count_if() on b; any() on b; all() on b; first() on i; last() on i; argmin() on i; argmax() on i
collect() on i; corr(col("i")) on i; cov(col("i")) on i; mode() on k; approx_nunique() on k; approx_quantile(0.5) on i"""
WINDOWS = """shift() on i; diff() on i; pct_change() on i; cum_sum() on i; cum_min() on i; cum_max() on i; cum_mean() on i
cum_count() on i; rolling("sum", 2) on i; rank() on i; percent_rank() on i; ntile(2) on i; forward_fill() on i
backward_fill() on i; interpolate() on i"""
COLUMNS = """alias("x") on i; count() on i; unique() on i; filter(col("b")).sum() on i; prefix("x_") on i; suffix("_x") on i
sum().over("k") on i; isin([3]) on i"""
TEXTS = """upper() on s; lower() on s; title() on s; length() on s; byte_length() on s; strip() on s; lstrip() on s
rstrip() on s; starts_with("A") on s; ends_with("d") on s; contains("b c") on s; find("c") on s; replace("b", "x") on s
slice(-2) on s; reverse() on s; repeat(2) on s; concat("!") on s; split(" ") on s; pad_start(6, "*") on s
pad_end(6, "*") on s; matches("^A") on s; extract("(.) ") on s; extract_all("[a-d]") on s; replace_regex("[a-d]", "-") on s
count_matches("[a-d]") on s; like("A%") on s; ilike("a%") on s; similarity("Ab") on s; edit_distance("Ab") on s
strptime("%Y") on s"""
DATES = """year() on d; quarter() on d; month() on d; week() on d; iso_year() on d; day() on d; weekday() on d
ordinal_day() on d; hour() on t; minute() on t; second() on t; millisecond() on t; microsecond() on t; date() on t
truncate("month") on d; add(months=1) on d; diff(date(2024, 1, 1), "day") on d; epoch() on t; strftime("%H:%M") on t
total_seconds() on p; total_microseconds() on p; total("days") on p; in_zone("Asia/Tokyo").dt.hour() on t"""
LISTS = """len() on l; get(-1) on l; first() on l; last() on l; contains(1) on l; index_of(1) on l; sum() on l; mean() on l
min() on l; max() on l; sort() on l; reverse() on l; unique() on l; slice(1) on l; join("-") on l; concat([9]) on l
map(lambda x: x * 2) on l; filter(lambda x: x > 1) on l; cosine_distance([1.0, 0.0]) on v; l2_distance([0.0, 0.0]) on v
dot([1.0, 2.0]) on v"""
MAPS = """keys() on m; values() on m; get("x") on m; contains("x") on m"""
STRUCTS = """field("x") on r"""
JSONS = """get("n", kind="int") on j; raw("a") on j; has("a") on j; decode("Tuple(n Int64)") on j; encode() on i"""

SECTIONS = (
    ("Values", "", ExpressionMethods, VALUES),
    ("Aggregates", "", AggregateMethods, AGGREGATES),
    ("Rows before and after", "", WindowMethods, WINDOWS),
    ("Columns", "", Column, COLUMNS),
    ("Texts", ".str", method_namespaces.TextMethods, TEXTS),
    ("Dates, datetimes and durations", ".dt", method_namespaces.DateMethods, DATES),
    ("Lists", ".list", method_namespaces.ListMethods, LISTS),
    ("Maps", ".map", method_namespaces.MapMethods, MAPS),
    ("Structs", ".struct", method_namespaces.StructMethods, STRUCTS),
    ("JSON text", ".json", method_namespaces.JsonMethods, JSONS),
)
HEAD = f"""# Expressions: reference

Every method of expressions with an example and its result. `tests/integration/data/reference.py` generates this page from the methods, and a test runs the examples. [data.md](data.md#expressions)
groups the methods by purpose, [values.md](values.md) has the rules for NULL, NaN and overflow, and [tables.md](tables.md) the operations on tables.

The rows of the sample have an ordinary value, an edge value, and NULL:

```python
sample = await create_object_from_value({SAMPLE})
await sample.select(x=EXAMPLE).data()
```
"""


def public_methods(owner: type) -> dict[str, str]:
    """Return the public methods of a class with their signatures."""
    return {
        name: format_signature(method)
        for name, method in vars(owner).items()
        if inspect.isfunction(method) and not name.startswith("_")
    }


def format_signature(method, skipped: int = 1) -> str:
    """Return the name and the parameters, without the first ones, such as `self`."""
    parts: list[str] = []
    for parameter in list(inspect.signature(method).parameters.values())[skipped:]:
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        default = parameter.default
        has_text = default is None or isinstance(default, int | float | str)
        text = "" if default is parameter.empty else f"={default!r}" if has_text else "=…"
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in parts and not any(p[0] == "*" for p in parts):
            parts.append("*")
        parts.append(f"{stars}{parameter.name}{text}")
    return f"{method.__name__}({', '.join(parts)})"


def examples(text: str, namespace: str) -> dict[str, str]:
    """Return the example of each method: `year() on d` is `col("d").dt.year()`."""
    result: dict[str, str] = {}
    for entry in re.split(r";\s|\n", text):
        call, column = entry.strip().rsplit(" on ", 1)
        name = {"sum().over": "over"}.get(call.rsplit("(", 1)[0], call.split("(")[0])
        result[name] = f'col("{column}"){namespace}.{call}'
    return result


def escape(text: str) -> str:
    return text.replace("|", "\\|")


async def make_page() -> str:
    """Return the page; needs an open DataContext."""
    sample = await create_object_from_value(eval(SAMPLE, NAMES), schema={"m": "Map(String, Int64)"})
    parts = [HEAD]
    for title, namespace, owner, text in SECTIONS:
        shown = examples(text, namespace)
        rows = [f"\n## {title}\n", "| method | example | result |", "|---|---|---|"]
        for name, signature in public_methods(owner).items():
            expression = eval(shown[name], NAMES)
            result = await sample.select(expression if owner is Column else expression.alias("x")).data()
            cell = repr(result) if owner is Column else repr(result["x"])
            cell = cell.replace("datetime.", "")
            method = f"{namespace}.{signature}" if namespace else signature
            rows.append(f"| `{escape(method)}` | `{escape(shown[name])}` | `{escape(cell)}` |")
        parts.append("\n".join(rows) + "\n")
    return "".join(parts)


async def main() -> None:
    async with DataContext():
        PAGE.write_text(await make_page(), encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main())
