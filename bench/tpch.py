"""TPC-H with Objects and with hand-written ClickHouse SQL: equal results, and the ratio of CPU time per query.

    python -m bench.tpch [--scale 1] [--repeat 3] [--queries 5,13]

Prints one JSON line per query, then the geometric mean and the worst ratio. The data are those of `bench.tpch_data`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys

from aaiclick.data import DataContext, create_object_from_value
from bench import tpch_objects, tpch_sql
from bench.cpu_ratio import Ratios, use_tables
from bench.data import describe_machine
from bench.tpch_data import make_tables


async def run(scale: float, repeat: int, queries: list[int]) -> int:
    tables = {name: await create_object_from_value(rows) for name, rows in make_tables(scale).items()}
    print(json.dumps({"scale": scale, "rows": {name: await obj.count() for name, obj in tables.items()}}), flush=True)
    ratios = Ratios(repeat)
    for number in queries:
        text, build = use_tables(tpch_sql.QUERIES[number], tables), tpch_objects.QUERIES[number]
        await ratios.compare(f"q{number}", lambda build=build: build(tables).to_arrow(), text)
    print(json.dumps(ratios.summary()), flush=True)
    return 1 if ratios.different else 0


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--queries", default=",".join(map(str, tpch_sql.QUERIES)))
    arguments = parser.parse_args()
    async with DataContext():
        await describe_machine()
        return await run(arguments.scale, arguments.repeat, [int(n) for n in arguments.queries.split(",")])


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
