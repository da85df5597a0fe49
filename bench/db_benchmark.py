"""The 15 db-benchmark questions (h2o.ai) with Objects and with hand-written ClickHouse SQL: the ratio of CPU time.

    python -m bench.db_benchmark [--rows 10000000] [--repeat 3]

As in the original, the answer of a question is checked by its number of rows and the sums of its columns; these are
part of the measured queries. Beside them stand the CPU seconds of polars, and of DuckDB where it is installed, which
return the rows of the answer.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import sys
import time
from collections.abc import Callable, Mapping

import numpy as np
import polars as pl
import pyarrow as pa

from aaiclick.data import Column, DataContext, col, create_object_from_value, length
from aaiclick.data.object import Object
from bench.cpu_ratio import Ratios, use_tables
from bench.data import describe_machine

Tables = Mapping[str, Object]
GROUPS = 100


def texts(numbers: np.ndarray, width: int) -> pa.Array:
    """Return texts such as id042, built from the different numbers."""
    values, indices = np.unique(numbers, return_inverse=True)
    return pa.array([f"id{value:0{width}}" for value in values]).take(pa.array(indices))


def make_tables(rows: int) -> dict[str, pa.Table]:
    """Return the table of the group-by questions (`g`), and those of the joins (`x`, `small`, `medium`, `big`)."""
    rng = np.random.default_rng(7)
    many = rows // GROUPS
    sizes = {"small": max(rows // 10**6, 10), "medium": max(rows // 1000, 10), "big": rows}

    def keys(size: int, highest: int) -> np.ndarray:
        return rng.integers(1, highest + 1, size)

    def floats(size: int) -> np.ndarray:
        return np.round(rng.random(size) * 100, 6)

    grouped = pa.table(
        {
            "id1": texts(keys(rows, GROUPS), 3),
            "id2": texts(keys(rows, GROUPS), 3),
            "id3": texts(keys(rows, many), 10),
            "id4": keys(rows, GROUPS),
            "id5": keys(rows, GROUPS),
            "id6": keys(rows, many),
            "v1": keys(rows, 5),
            "v2": keys(rows, 15),
            "v3": floats(rows),
        }
    )
    small, medium, big = (rng.permutation(int(size * 1.1))[:size] + 1 for size in sizes.values())
    id4, id5, id6 = (keys(rows, int(size * 1.1)) for size in sizes.values())
    return {
        "g": grouped,
        "x": pa.table({"id1": id4, "id2": id5, "id3": id6, "id5": texts(id5, 6), "v1": floats(rows)}),
        "small": pa.table({"id1": small, "v2": floats(len(small))}),
        "medium": pa.table({"id2": medium, "id5": texts(medium, 6), "v2": floats(len(medium))}),
        "big": pa.table({"id3": big, "v2": floats(len(big))}),
    }


def aggregate(*keys: str, **values: Column) -> Callable[[Tables], Object]:
    return lambda t: t["g"].group_by(*keys).agg(**values)


def join(other: str, key: str, how: str = "inner") -> Callable[[Tables], Object]:
    return lambda t: t["x"].join(t[other].select(key, "v2"), key, how).select("v1", "v2")


QUESTIONS: dict[str, tuple[Callable[[Tables], Object], str]] = {
    "g1": (aggregate("id1", v1=col("v1").sum()), "SELECT id1, sum(v1) AS v1 FROM g GROUP BY id1"),
    "g2": (aggregate("id1", "id2", v1=col("v1").sum()), "SELECT id1, id2, sum(v1) AS v1 FROM g GROUP BY id1, id2"),
    "g3": (
        aggregate("id3", v1=col("v1").sum(), v3=col("v3").mean()),
        "SELECT id3, sum(v1) AS v1, avg(v3) AS v3 FROM g GROUP BY id3",
    ),
    "g4": (
        aggregate("id4", v1=col("v1").mean(), v2=col("v2").mean(), v3=col("v3").mean()),
        "SELECT id4, avg(v1) AS v1, avg(v2) AS v2, avg(v3) AS v3 FROM g GROUP BY id4",
    ),
    "g5": (
        aggregate("id6", v1=col("v1").sum(), v2=col("v2").sum(), v3=col("v3").sum()),
        "SELECT id6, sum(v1) AS v1, sum(v2) AS v2, sum(v3) AS v3 FROM g GROUP BY id6",
    ),
    "g6": (
        aggregate("id4", "id5", v1=col("v3").median(), v2=col("v3").std()),
        "SELECT id4, id5, quantileExactInclusive(0.5)(v3) AS v1, stddevSamp(v3) AS v2 FROM g GROUP BY id4, id5",
    ),
    "g7": (
        aggregate("id3", v1=col("v1").max() - col("v2").min()),
        "SELECT id3, max(v1) - min(v2) AS v1 FROM g GROUP BY id3",
    ),
    "g8": (
        lambda t: t["g"].sort("v3", descending=True).group_by("id6").head(2).select("id6", "v3"),
        "SELECT id6, v3 FROM g ORDER BY v3 DESC LIMIT 2 BY id6",
    ),
    "g9": (
        aggregate("id2", "id4", v1=col("v1").corr(col("v2")) ** 2),
        "SELECT id2, id4, pow(corr(v1, v2), 2) AS v1 FROM g GROUP BY id2, id4",
    ),
    "g10": (
        aggregate("id1", "id2", "id3", "id4", "id5", "id6", v3=col("v3").sum(), v1=length()),
        "SELECT id1, id2, id3, id4, id5, id6, sum(v3) AS v3, count() AS v1 FROM g "
        "GROUP BY id1, id2, id3, id4, id5, id6",
    ),
    "j1": (join("small", "id1"), "SELECT v1, v2 FROM x JOIN small ON x.id1 = small.id1"),
    "j2": (join("medium", "id2"), "SELECT v1, v2 FROM x JOIN medium ON x.id2 = medium.id2"),
    "j3": (join("medium", "id2", "left"), "SELECT v1, v2 FROM x LEFT JOIN medium ON x.id2 = medium.id2"),
    "j4": (join("medium", "id5"), "SELECT v1, v2 FROM x JOIN medium ON x.id5 = medium.id5"),
    "j5": (join("big", "id3"), "SELECT v1, v2 FROM x JOIN big ON x.id3 = big.id3"),
}

POLARS: dict[str, Callable[[Mapping[str, pl.LazyFrame]], pl.LazyFrame]] = {
    "g1": lambda t: t["g"].group_by("id1").agg(pl.sum("v1")),
    "g2": lambda t: t["g"].group_by("id1", "id2").agg(pl.sum("v1")),
    "g3": lambda t: t["g"].group_by("id3").agg(pl.sum("v1"), pl.mean("v3")),
    "g4": lambda t: t["g"].group_by("id4").agg(pl.mean("v1", "v2", "v3")),
    "g5": lambda t: t["g"].group_by("id6").agg(pl.sum("v1", "v2", "v3")),
    "g6": lambda t: t["g"].group_by("id4", "id5").agg(v1=pl.median("v3"), v2=pl.std("v3")),
    "g7": lambda t: t["g"].group_by("id3").agg(v1=pl.max("v1") - pl.min("v2")),
    "g8": lambda t: t["g"].group_by("id6").agg(pl.col("v3").top_k(2)).explode("v3"),
    "g9": lambda t: t["g"].group_by("id2", "id4").agg(v1=pl.corr("v1", "v2") ** 2),
    "g10": lambda t: t["g"].group_by("id1", "id2", "id3", "id4", "id5", "id6").agg(pl.sum("v3"), v1=pl.len()),
    "j1": lambda t: t["x"].join(t["small"], on="id1").select("v1", "v2"),
    "j2": lambda t: t["x"].join(t["medium"], on="id2").select("v1", "v2"),
    "j3": lambda t: t["x"].join(t["medium"], on="id2", how="left").select("v1", "v2"),
    "j4": lambda t: t["x"].join(t["medium"], on="id5").select("v1", "v2"),
    "j5": lambda t: t["x"].join(t["big"], on="id3").select("v1", "v2"),
}


def check_sums(answer: Object) -> Object:
    numbers = [name for name in answer.columns if name.startswith("v")]
    return answer.select(n=length(), **{name: col(name).sum() for name in numbers})


def check_sums_sql(text: str, answer: Object) -> str:
    numbers = [name for name in answer.columns if name.startswith("v")]
    return f"SELECT count(), {', '.join(f'sum({name})' for name in numbers)} FROM ({text})"


def measure_process(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return round(time.process_time() - started, 3)


async def run(rows: int, repeat: int) -> int:
    arrow = make_tables(rows)
    tables = {name: await create_object_from_value(table) for name, table in arrow.items()}
    frames = {name: pl.from_arrow(table).lazy() for name, table in arrow.items()}
    database = None
    if importlib.util.find_spec("duckdb"):
        import duckdb

        database = duckdb.connect()
        for name, table in arrow.items():
            database.register(name, table)
    ratios = Ratios(repeat)
    for name, (build, text) in QUESTIONS.items():
        checked = check_sums_sql(use_tables(text, tables), build(tables))
        await ratios.compare(name, lambda build=build: check_sums(build(tables)).to_arrow(), checked)
        peer_times = {"polars_cpu": measure_process(POLARS[name](frames).collect)}
        if database is not None and name != "g8":  # LIMIT BY is ClickHouse's
            plain = text.replace("quantileExactInclusive(0.5)", "median").replace("count()", "count(*)")
            peer_times["duckdb_cpu"] = measure_process(database.sql(plain).arrow)
        print(json.dumps({"task": name, **peer_times}), flush=True)
    print(json.dumps(ratios.summary()), flush=True)
    return 1 if ratios.different else 0


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    async with DataContext():
        await describe_machine()
        return await run(arguments.rows, arguments.repeat)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
