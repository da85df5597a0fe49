"""The same work by aaiclick, hand-written ClickHouse SQL, polars, pandas and duckdb, in one run.

    python -m bench.data [--rows 10000000] [--repeat 3]

One JSON line per measurement on stdout, then a table of ratios to the hand-written SQL. Ratios within a run are what
counts: the machine's own speed cancels out.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import resource
import statistics
import sys
import time

import numpy as np
import pyarrow as pa

from aaiclick.data import DataContext, col, create_object_from_value, get_data_context
from aaiclick.data.errors import QueryError
from aaiclick.data.object import Object
from aaiclick.data.relations import Scan
from aaiclick.data.statements import compile_query


def table_of(obj: Object) -> str:
    relation = obj.relation
    assert isinstance(relation, Scan)
    return f"`{relation.table.name}`"


class Bench:
    def __init__(self, rows: int, repeat: int) -> None:
        self.rows, self.repeat = rows, repeat
        self.results: dict[tuple[str, str], float] = {}

    async def measure(self, task: str, engine: str, work, repeat: int | None = None) -> None:
        times = []
        for _ in range(repeat or self.repeat):
            started = time.perf_counter()
            result = work()
            if asyncio.iscoroutine(result):
                await result
            times.append(time.perf_counter() - started)
        best, median = min(times), statistics.median(times)
        self.results[task, engine] = median
        line = {"task": task, "engine": engine, "rows": self.rows, "seconds": round(median, 5), "best": round(best, 5)}
        print(json.dumps(line), flush=True)

    def table(self) -> str:
        tasks = list(dict.fromkeys(task for task, _ in self.results))
        engines = list(dict.fromkeys(engine for _, engine in self.results))
        lines = ["", f"{'ratio to SQL':<28}" + "".join(f"{each:>14}" for each in engines)]
        for task in tasks:
            base = self.results.get((task, "sql")) or self.results[task, "aaiclick"]
            cells = [self.results.get((task, engine)) for engine in engines]
            lines.append(f"{task:<28}" + "".join(f"{'-' if c is None else f'{c / base:.2f}':>14}" for c in cells))
        return "\n".join(lines)


async def sql(text: str, **settings):
    client = get_data_context().client
    return await client._raw.query_arrow(
        text, settings={"session_timezone": "UTC", "join_use_nulls": 1, **settings}, use_strings=True
    )


async def fits_in(obj: Object, megabytes: int) -> bool:
    """Whether ClickHouse computes it within so much memory (the embedded server keeps no query log to ask)."""
    query = compile_query(obj.relation, arrow=True)
    settings = {**query.settings, "max_memory_usage": megabytes * 1_000_000}
    try:
        await get_data_context().client.read_text(query.text, query.parameters, settings)
    except QueryError:
        return False
    return True


async def run(rows: int, repeat: int) -> None:
    bench = Bench(rows, repeat)
    rng = np.random.default_rng(1)
    frame = pa.table({"k": pa.array(rng.integers(0, 1000, rows)), "v": pa.array(rng.integers(0, 10**6, rows))})
    small = pa.table({"k": pa.array(np.arange(1000)), "w": pa.array(rng.integers(0, 100, 1000))})
    other = pa.table({"value": pa.array(rng.integers(0, 10**6, rows))})
    f, s, o = [await create_object_from_value(each) for each in (frame, small, other)]
    a, b = await f["v"].rename("value"), o["value"]
    b = await b
    tf, ts = table_of(f), table_of(s)
    ta, tb = table_of(a), table_of(b)
    merge = {"join_algorithm": "full_sorting_merge"}

    await bench.measure("fixed overhead", "aaiclick", lambda: (s["k"] + 1).sum().data(), 200)
    await bench.measure("fixed overhead", "sql", lambda: sql(f"SELECT sum(k + 1) FROM {ts}"), 200)
    await bench.measure("chain of 5 operators", "aaiclick", lambda: (((f["k"] + f["v"]) * 2 + 1) % 97).sum().data())
    await bench.measure("chain of 5 operators", "sql", lambda: sql(f"SELECT sum(((k + v) * 2 + 1) % 97) FROM {tf}"))
    await bench.measure("chain, no %", "aaiclick", lambda: (((f["k"] + f["v"]) * 2 + 1) * 3 - f["k"]).sum().data())
    await bench.measure("chain, no %", "sql", lambda: sql(f"SELECT sum(((k + v) * 2 + 1) * 3 - k) FROM {tf}"))
    await bench.measure(
        "filter + group", "aaiclick", lambda: f.filter(col("v") > 500_000).group_by("k").agg(col("v").sum()).data()
    )
    await bench.measure(
        "filter + group", "sql", lambda: sql(f"SELECT k, sum(v) FROM {tf} WHERE v > 500000 GROUP BY k ORDER BY k")
    )
    await bench.measure("a + b, two Objects", "aaiclick", lambda: (a + b).sum().data())
    await bench.measure(
        "a + b, two Objects", "sql",
        lambda: sql(f"SELECT sum(x.value + y.value) FROM {ta} x JOIN {tb} y ON x.aai_id = y.aai_id", **merge),
    )  # fmt: skip
    await bench.measure("join", "aaiclick", lambda: f.join(s, "k").select(t=(col("v") * col("w")).sum()).data())
    await bench.measure("join", "sql", lambda: sql(f"SELECT sum(x.v * y.w) FROM {tf} x JOIN {ts} y ON x.k = y.k"))
    await bench.measure("store v * 2", "aaiclick", lambda: (f["v"] * 2).materialize())
    await bench.measure("read all", "aaiclick", f.to_arrow)
    await bench.measure("read all", "sql", lambda: sql(f"SELECT k, v FROM {tf} ORDER BY aai_id"))
    await bench.measure("store Arrow", "aaiclick", lambda: create_object_from_value(frame))
    await others(bench, frame, small, other)
    await chunks(f)
    total = (a + b).sum()
    enough = min([size for size in (50, 100, 200, 400, 800, 100_000) if await fits_in(total, size)])
    print(json.dumps({"task": "a + b, two Objects", "enough_megabytes": enough}))
    print(
        json.dumps({"task": "client memory", "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024})
    )
    print(bench.table())


async def chunks(obj: Object) -> None:
    """First and last chunk, with and without a condition, and all of them."""
    for label, where in (("plain", None), ("where", "v % 2 = 0")):
        view = obj.view(where=where)
        total = await view.count()
        size = 10_000
        await view.slice(max(0, total - size), size).to_arrow()  # finds the fences
        timed = {}
        for name, start in (("first", 0), ("last", max(0, total - size))):
            best = []
            for _ in range(7):
                started = time.perf_counter()
                await view.slice(start, size).to_arrow()
                best.append(time.perf_counter() - started)
            timed[name] = statistics.median(best)
        line = {"task": f"chunk of {size}, {label}", "first": round(timed["first"], 5), "last": round(timed["last"], 5)}
        print(json.dumps({**line, "ratio": round(timed["last"] / timed["first"], 2)}), flush=True)


async def others(bench: Bench, frame: pa.Table, small: pa.Table, other: pa.Table) -> None:
    if importlib.util.find_spec("polars"):
        import polars as pl

        p, q, r = pl.from_arrow(frame), pl.from_arrow(small), pl.from_arrow(other)
        await bench.measure(
            "chain of 5 operators", "polars", lambda: p.select((((pl.col("k") + pl.col("v")) * 2 + 1) % 97).sum())
        )
        await bench.measure(
            "chain, no %", "polars", lambda: p.select(((pl.col("k") + pl.col("v")) * 2 + 1) * 3 - pl.col("k")).sum()
        )
        await bench.measure(
            "filter + group", "polars", lambda: p.filter(pl.col("v") > 500_000).group_by("k").agg(pl.col("v").sum())
        )
        await bench.measure("a + b, two Objects", "polars", lambda: (p["v"] + r["value"]).sum())
        await bench.measure("join", "polars", lambda: p.join(q, on="k").select((pl.col("v") * pl.col("w")).sum()))
    if importlib.util.find_spec("pandas"):
        d, e, g = frame.to_pandas(), small.to_pandas(), other.to_pandas()
        await bench.measure("chain of 5 operators", "pandas", lambda: (((d.k + d.v) * 2 + 1) % 97).sum())
        await bench.measure("chain, no %", "pandas", lambda: (((d.k + d.v) * 2 + 1) * 3 - d.k).sum())
        await bench.measure("filter + group", "pandas", lambda: d[d.v > 500_000].groupby("k").v.sum())
        await bench.measure("a + b, two Objects", "pandas", lambda: (d.v + g.value).sum())
        await bench.measure("join", "pandas", lambda: (lambda m: (m.v * m.w).sum())(d.merge(e, on="k")))
    if importlib.util.find_spec("duckdb"):
        import duckdb

        db = duckdb.connect()
        db.register("f_arrow", frame), db.register("s_arrow", small), db.register("o_arrow", other)
        db.execute("CREATE TABLE f AS FROM f_arrow"), db.execute("CREATE TABLE s AS FROM s_arrow")
        await bench.measure(
            "chain of 5 operators", "duckdb", lambda: db.execute("SELECT sum(((k+v)*2+1)%97) FROM f").fetchall()
        )
        await bench.measure(
            "chain, no %", "duckdb", lambda: db.execute("SELECT sum(((k+v)*2+1)*3-k) FROM f").fetchall()
        )
        await bench.measure(
            "filter + group",
            "duckdb",
            lambda: db.execute("SELECT k, sum(v) FROM f WHERE v>500000 GROUP BY k").fetchall(),
        )
        await bench.measure("join", "duckdb", lambda: db.execute("SELECT sum(v*w) FROM f JOIN s USING (k)").fetchall())


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    async with DataContext():
        await run(arguments.rows, arguments.repeat)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
