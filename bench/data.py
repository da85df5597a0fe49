"""Compare aaiclick, hand-written ClickHouse SQL, polars, pandas and DuckDB in one run.

    python -m bench.data [--rows 10000000] [--repeat 3]
    python -m bench.data --stream 50000000

Prints one JSON line per measurement (medians), then a table of ratios to the hand-written SQL. Compare only ratios of
one run. `--stream` writes and reads the given number of rows in batches and prints the peak memory of this process.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import platform
import resource
import statistics
import sys
import time
from importlib.metadata import version

import numpy as np
import polars as pl
import pyarrow as pa

from aaiclick.data import DataContext, col, create_object_from_value, get_data_context
from aaiclick.data.compile.relation_nodes import Scan
from aaiclick.data.compile.statements import compile_query
from aaiclick.data.errors import QueryError
from aaiclick.data.object import Object


def table_of(obj: Object) -> str:
    relation = obj.relation
    assert isinstance(relation, Scan)
    return f"`{relation.table.name}`"


class Bench:
    def __init__(self, rows: int, repeat: int) -> None:
        self.rows, self.repeat = rows, repeat
        self.results: dict[tuple[str, str], float] = {}

    async def compare(self, task: str, repeat: int | None = None, **engines) -> None:
        """Time the engines interleaved, so that other load affects all of them."""
        times: dict[str, list[float]] = {engine: [] for engine in engines}
        for _ in range(repeat or self.repeat):
            for engine, work in engines.items():
                started = time.perf_counter()
                result = work()
                if asyncio.iscoroutine(result):
                    await result
                times[engine].append(time.perf_counter() - started)
        for engine, taken in times.items():
            median = statistics.median(taken)
            self.results[task, engine] = median
            line = {"task": task, "engine": engine, "rows": self.rows, "seconds": round(median, 5)}
            print(json.dumps({**line, "best": round(min(taken), 5)}), flush=True)

    def table(self) -> str:
        tasks = list(dict.fromkeys(task for task, _ in self.results))
        engines = list(dict.fromkeys(engine for _, engine in self.results))
        lines = ["", f"{'ratio to SQL':<28}" + "".join(f"{engine:>14}" for engine in engines)]
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


async def fits_in_memory(obj: Object, megabytes: int) -> bool:
    """Return whether ClickHouse computes it within this memory limit (the embedded server has no query log)."""
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
    f, s, o = [await create_object_from_value(table) for table in (frame, small, other)]
    a, b = await f["v"].rename("value"), o["value"]
    b = await b
    tf, ts = table_of(f), table_of(s)
    ta, tb = table_of(a), table_of(b)
    merge = {"join_algorithm": "full_sorting_merge"}

    p, q, r, d, e, g = dataframes(frame, small, other)
    chain, plain, group = "chain of 5 operators", "chain, no %", "filter + group"
    await bench.compare(
        "fixed overhead",
        200,
        aaiclick=lambda: (s["k"] + 1).sum().data(),
        sql=lambda: sql(f"SELECT sum(k + 1) FROM {ts}"),
    )
    await bench.compare(
        chain,
        aaiclick=lambda: (((f["k"] + f["v"]) * 2 + 1) % 97).sum().data(),
        sql=lambda: sql(f"SELECT sum(((k + v) * 2 + 1) % 97) FROM {tf}"),
        polars=lambda: p.select((((pl.col("k") + pl.col("v")) * 2 + 1) % 97).sum()),
        pandas=lambda: (((d.k + d.v) * 2 + 1) % 97).sum(),
    )
    await bench.compare(
        plain,
        aaiclick=lambda: (((f["k"] + f["v"]) * 2 + 1) * 3 - f["k"]).sum().data(),
        sql=lambda: sql(f"SELECT sum(((k + v) * 2 + 1) * 3 - k) FROM {tf}"),
        polars=lambda: p.select((((pl.col("k") + pl.col("v")) * 2 + 1) * 3 - pl.col("k")).sum()),
        pandas=lambda: (((d.k + d.v) * 2 + 1) * 3 - d.k).sum(),
    )
    await bench.compare(
        group,
        aaiclick=lambda: f.filter(col("v") > 500_000).group_by("k").agg(col("v").sum()).data(),
        sql=lambda: sql(f"SELECT k, sum(v) FROM {tf} WHERE v > 500000 GROUP BY k ORDER BY k"),
        polars=lambda: p.filter(pl.col("v") > 500_000).group_by("k").agg(pl.col("v").sum()),
        pandas=lambda: d[d.v > 500_000].groupby("k").v.sum(),
    )
    await bench.compare(
        "a + b, two Objects",
        aaiclick=lambda: (a + b).sum().data(),
        sql=lambda: sql(f"SELECT sum(x.value + y.value) FROM {ta} x JOIN {tb} y ON x.aai_id = y.aai_id", **merge),
        polars=lambda: (p["v"] + r["value"]).sum(),
        pandas=lambda: (d.v + g.value).sum(),
    )
    await bench.compare(
        "join",
        aaiclick=lambda: f.join(s, "k").select(t=(col("v") * col("w")).sum()).data(),
        sql=lambda: sql(f"SELECT sum(x.v * y.w) FROM {tf} x JOIN {ts} y ON x.k = y.k"),
        polars=lambda: p.join(q, on="k").select((pl.col("v") * pl.col("w")).sum()),
        pandas=lambda: (lambda m: (m.v * m.w).sum())(d.merge(e, on="k")),
    )
    await bench.compare("read all", 3, aaiclick=f.to_arrow, sql=lambda: sql(f"SELECT k, v FROM {tf} ORDER BY aai_id"))
    await bench.compare("store v * 2", 3, aaiclick=lambda: (f["v"] * 2).materialize())
    await bench.compare("store Arrow", 3, aaiclick=lambda: create_object_from_value(frame))
    if importlib.util.find_spec("duckdb"):
        await compare_duckdb(bench, frame, small, other)
    await chunks(f)
    total = (a + b).sum()
    enough = min([size for size in (50, 100, 200, 400, 800, 100_000) if await fits_in_memory(total, size)])
    print(json.dumps({"task": "a + b, two Objects", "enough_megabytes": enough}))
    print(json.dumps({"task": "client memory", "megabytes": peak_megabytes()}))
    print(bench.table())


async def chunks(obj: Object) -> None:
    """Time the first, the last and all chunks, with and without a condition."""
    for label, where in (("plain", None), ("where", "v % 2 = 0")):
        view = obj.view(where=where)
        total = await view.count()
        size = 10_000
        await view.slice(max(0, total - size), size).to_arrow()  # builds the chunk index
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


def dataframes(*tables: pa.Table):
    return *(pl.from_arrow(table) for table in tables), *(table.to_pandas() for table in tables)


async def compare_duckdb(bench: Bench, frame: pa.Table, small: pa.Table, other: pa.Table) -> None:
    import duckdb

    db = duckdb.connect()
    for name, table in {"f": frame, "s": small, "o": other}.items():
        db.register(f"{name}_arrow", table)
        db.execute(f"CREATE TABLE {name} AS FROM {name}_arrow")
    for task, text in {
        "chain of 5 operators": "SELECT sum(((k + v) * 2 + 1) % 97) FROM f",
        "chain, no %": "SELECT sum(((k + v) * 2 + 1) * 3 - k) FROM f",
        "filter + group": "SELECT k, sum(v) FROM f WHERE v > 500000 GROUP BY k",
        "a + b, two Objects": "SELECT sum(v + value) FROM f POSITIONAL JOIN o",
        "join": "SELECT sum(v * w) FROM f JOIN s USING (k)",
    }.items():
        await bench.compare(task, duckdb=lambda text=text: db.execute(text).fetchall())


async def stream(rows: int, size: int = 250_000) -> None:
    """Write and read rows in batches, and record the peak memory of this process after each tenth."""
    rng = np.random.default_rng(1)
    peaks: list[int] = []

    def record_peak(done: int) -> None:
        if done * 10 // rows > len(peaks) % 10:
            peaks.append(peak_megabytes())

    async def batches():
        for start in range(0, rows, size):
            n = min(size, rows - start)
            keys = pa.array(np.arange(start, start + n))
            yield pa.table({"n": keys, "x": pa.array(rng.random(n)), "s": keys.cast(pa.string())})
            record_peak(start + n)

    before = peak_megabytes()
    started = time.perf_counter()
    obj = await create_object_from_value(batches())
    written, peaks_in = time.perf_counter() - started, list(peaks)
    peaks.clear()
    rows_read = 0
    async for batch in obj.iter_batches():
        rows_read += batch.num_rows
        record_peak(rows_read)
    assert rows_read == rows
    read = time.perf_counter() - started - written
    line = {"task": "stream", "rows": rows, "in_seconds": round(written, 2), "out_seconds": round(read, 2)}
    print(json.dumps({**line, "megabytes_before": before, "in": peaks_in, "out": peaks}), flush=True)


def peak_megabytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


async def describe_machine() -> None:
    """Describe the describe_machine and the versions."""
    names = ("polars", "pandas", "duckdb", "pyarrow", "clickhouse-connect")
    installed = {name: version(name) for name in names if importlib.util.find_spec(name.replace("-", "_"))}
    server = (await get_data_context().client.read_text("SELECT version()")).column(0)[0].as_py()
    line = {"machine": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version()}
    print(json.dumps({**line, "clickhouse": server, **installed}), flush=True)


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--stream", type=int, default=0, metavar="ROWS")
    arguments = parser.parse_args()
    async with DataContext():
        await describe_machine()
        if arguments.stream:
            await stream(arguments.stream)
        else:
            await run(arguments.rows, arguments.repeat)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
