"""Run the SQL of every operation on an old ClickHouse and compare with the embedded one.

    python -m venv old && old/bin/pip install --no-deps chdb==2.1.1      # ClickHouse 24.8 in a process
    python -m tests.compat.old_clickhouse old/bin/python

Two versions of chdb cannot be installed in one environment, so this is a script and not a test. It prints differences
and exits with status 1 if there are any.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import subprocess
import sys
import tempfile
from datetime import date, datetime
from pathlib import Path

import pyarrow as pa
from clickhouse_connect.driver.binding import format_bind_value

from aaiclick.data import DataContext, col, create_object_from_value, get_data_context
from aaiclick.data.compile.statements import compile_query
from aaiclick.data.runtime.clickhouse_client import SETTINGS
from aaiclick.data.runtime.tables import create_statement
from tests.integration.data import comparisons as c
from tests.integration.data.test_functions import AGGREGATES, CASES, FRAME

N = None
FRAMES = {
    "INTEGERS": {"a": pa.array([2**63 - 1, -(2**63), 0, N, 7]), "b": pa.array([3, -7, 0, 5, N])},
    "FREE": {"a": pa.array([2**63 - 1, -(2**63), 0, N, 7]), "b": pa.array([3, -7, 0, 5, N])},
    "FLOATS": {"a": pa.array([1.5, -2.5, math.nan, math.inf, N]), "b": pa.array([2.0, -3.25, 0.0, 1e6, N])},
    "BOOLEANS": {"a": pa.array([True, False, N, True]), "b": pa.array([N, True, False, False])},
    "STRINGS": {"a": pa.array(["a,b", "", "é🦆", N, "it's"]), "b": pa.array(["a", "x", N, "", "'s"])},
    "WORDED": {"a": pa.array(["aé bÉ", "Ж9 a", "", N]), "b": pa.array(["a", N, "b", "c"])},
    "DATED": {"a": pa.array([date(2024, 2, 29), date(1900, 1, 1), N]), "b": pa.array([date(2023, 1, 1), N, N])},
    "TIMED": {
        "a": pa.array([datetime(2024, 2, 29, 1, 2, 3, 456789), datetime(1950, 1, 1, 23, 59), N]),  # noqa: DTZ001
        "b": pa.array([datetime(2023, 1, 1), N, datetime(2100, 12, 31)]),  # noqa: DTZ001
    },
    "LISTS": {"a": pa.array([[1, 2, N], [], [3]]), "b": pa.array([[1], [N], []], pa.list_(pa.int64()))},
    "AGGREGATES": {"a": pa.array([5, N, -3, 5]), "b": pa.array([1.5, 2.5, N, -1.0])},
}
RUN = "import sys, chdb; sys.stdout.buffer.write(chdb.query(sys.stdin.read(), 'JSONCompactEachRow').bytes())"
RUN_STORED = """
import sys
from chdb.session import Session
store = Session()
for statement in sys.stdin.read().split(";"):
    answer = store.query(statement, "JSONCompactEachRow")
sys.stdout.buffer.write(answer.bytes())
"""
BEFORE_PARSING = {"max_query_size", "session_timezone"}
APPEND = """
CREATE DATABASE d;
CREATE TABLE d.t1 (aai_id UInt64 CODEC(Delta, LZ4), x Int64) ENGINE = MergeTree ORDER BY aai_id COMMENT 'c';
CREATE TABLE d.t2 (aai_id UInt64 CODEC(Delta, LZ4), x Int64) ENGINE = MergeTree ORDER BY aai_id COMMENT 'c';
INSERT INTO d.t1 SELECT 0, 5;
INSERT INTO d.t2 SELECT 1, 6;
ALTER TABLE d.t1 ADD CONSTRAINT aai_append ASSUME 1, ADD CONSTRAINT aai_append_t2 ASSUME 1;
ALTER TABLE d.t1 ATTACH PARTITION tuple() FROM d.t2;
ALTER TABLE d.t1 DROP CONSTRAINT aai_append, DROP CONSTRAINT aai_append_t2;
SELECT * FROM d.t1 ORDER BY aai_id
"""
"""The statements that `aaiclick.data.runtime.append` runs, shortened."""


class Comparison:
    def __init__(self, python: str, folder: Path) -> None:
        self.python, self.folder, self.difference_count = python, folder, 0

    async def create_table(self, columns):
        """Create an Object, and return it with the statements that create its table on the old version."""
        obj = await create_object_from_value(pa.table(columns))
        rows = await get_data_context().client.read_text(f"SELECT * FROM {obj.table_id} ORDER BY aai_id")
        path = self.folder / f"{obj.table_id}.arrow"
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
            writer.write_table(rows)
        table = obj.relation.table
        create = create_statement(table.name, table.columns, table.shape, "Memory")
        return obj, f"{create}; INSERT INTO {table.name} SELECT * FROM file('{path}', Arrow); "

    async def compare_items(self, name, setup, make, items):
        """Compare all items in one query; bisect if the results differ."""
        query = compile_query(make(items).relation)
        new_answer = await self.run_current(query)
        old_answer = self.run_old(setup + inline_parameters(query))
        if new_answer == old_answer or values_match(parse_lines(new_answer), parse_lines(old_answer)):
            return
        if len(items) > 1:
            half = len(items) // 2
            await self.compare_items(name, setup, make, items[:half])
            await self.compare_items(name, setup, make, items[half:])
            return
        self.difference_count += 1
        print(
            f"{name} {items[0]}\n  current {new_answer.strip()[:300]}\n  old     {old_answer.strip()[:300]}\n"
            f"  {query.text[:300]}"
        )

    async def run_current(self, query):
        pieces = [piece async for piece in get_data_context().client.stream_bytes(query, "JSONCompactEachRow", {})]
        return b"".join(pieces).decode(errors="replace")

    def run_old(self, script, run=RUN):
        done = subprocess.run([self.python, "-c", run], input=script.encode(), capture_output=True, check=False)
        return (done.stdout if done.returncode == 0 else done.stderr[-600:]).decode(errors="replace")


def inline_parameters(query):
    """Inline the parameters and settings of a query, which the old chdb does not support."""

    def inline_value(match):
        parameter = query.parameters[match[1]]
        text = parameter if isinstance(parameter, str) else format_bind_value(parameter)
        return f"CAST({quote_string(text)}, {quote_string(match[2])})"

    text = re.sub(r"\{(p\d+):((?:[^{}']|'[^']*')+)\}", inline_value, query.text)
    settings = {k: v for k, v in {**SETTINGS, **query.settings}.items() if k not in BEFORE_PARSING}
    chosen = ", ".join(f"{name} = {quote_string(str(setting))}" for name, setting in settings.items())
    return f"{text} SETTINGS {chosen} FORMAT JSONCompactEachRow"


def quote_string(text):
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def parse_lines(lines):
    try:
        return [json.loads(line) for line in lines.splitlines()]
    except ValueError:
        return lines


def values_match(a, b):
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(values_match, a, b))
    if isinstance(a, int | float) and isinstance(b, int | float):
        return math.isclose(a, b, rel_tol=1e-12)
    return a == b


async def compare_all(comparison):
    obj, setup = await comparison.create_table(FRAME)
    for name, cases in {"function": CASES, "aggregate": AGGREGATES}.items():
        select_cases = lambda numbers, cases=cases: obj.select(**{f"r{i}": cases[i][0] for i in numbers})  # noqa: E731
        await comparison.compare_items(name, setup, select_cases, list(range(len(cases))))
    for family, columns in FRAMES.items():
        obj, setup = await comparison.create_table(columns)
        cases = getattr(c, family)

        def select_named(names, obj=obj, cases=cases):
            return obj.select(**{name: cases[name][0](col("a"), col("b")) for name in names})

        await comparison.compare_items(family, setup, select_named, list(cases))
    obj, setup = await comparison.create_table({"k": pa.array([0, 1, 0, N, 1]), "v": pa.array([5, N, 3, -2, 5])})
    await comparison.compare_items(
        "WINDOWS", setup, lambda names: obj.select(**{n: c.WINDOWS[n][0]("k", "v") for n in names}), list(c.WINDOWS)
    )
    await compare_tables(comparison)


async def compare_tables(comparison):
    mixed = {"a": pa.array([3, 1, N, 3]), "b": pa.array([1.5, N, 2.5, 0.0]), "t": pa.array(["x", N, "é", "x"])}
    one, setup = await comparison.create_table(mixed)
    for name, (build, _) in c.TABLES.items():
        await comparison.compare_items(
            "table", setup, lambda _, build=build: build(one, "a", "b", "t", 1, 1, 2), [name]
        )
    grouped = {"k": pa.array([0, 1, 0, N]), "v": pa.array([5, N, 3, -2]), "b": pa.array([True, N, False, True])}
    two, setup = await comparison.create_table(grouped)
    for name, (build, _) in c.GROUPS.items():
        await comparison.compare_items("group", setup, lambda _, build=build: build(two, "k", "v", "b"), [name])
    left, setup_left = await comparison.create_table({"k": pa.array([0, 1, 2, N]), "x": pa.array([5, 6, 7, 8])})
    right, setup_right = await comparison.create_table({"k": pa.array([1, 2, 2, N]), "y": pa.array([6, 9, 8, 7])})
    both = setup_left + setup_right
    for name, (build, _) in c.JOINS.items():
        sorted_join = lambda _, build=build: build(left, right).sort(*build(left, right).columns)  # noqa: E731
        await comparison.compare_items("join", both, sorted_join, [name])
    await comparison.compare_items("join", both, lambda _: left.join_asof(right, ("x", "y"), by="k"), ["asof"])
    await comparison.compare_items("element-wise", both, lambda _: left["x"] + right["y"], ["+"])
    nested, setup = await comparison.create_table({"l": pa.array([[1, 2], [], [3]]), "i": pa.array([1, 2, 3])})
    for keep in (True, False):
        await comparison.compare_items(
            "explode", setup, lambda _, keep=keep: nested.explode("l", keep_empty=keep), [keep]
        )


async def main(python: str) -> int:
    with tempfile.TemporaryDirectory() as folder:
        comparison = Comparison(python, Path(folder))
        print("old version:", comparison.run_old("SELECT version() FORMAT JSONCompactEachRow").strip())
        appended = comparison.run_old(APPEND, RUN_STORED)
        if re.findall(r"\d+", appended) != ["0", "5", "1", "6"]:
            comparison.difference_count += 1
            print(f"append\n  old     {appended}")
        async with DataContext():
            await compare_all(comparison)
    print(f"{comparison.difference_count} differ")
    return 1 if comparison.difference_count else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1])))
