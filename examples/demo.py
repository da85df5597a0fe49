"""`make demo`: start the embedded stack, load a million rows, compute in ClickHouse, show the answer.

It runs in a home of its own below .venv, so that it touches nothing of yours, and stops what it started.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

os.environ.setdefault("AAICLICK_HOME", str(Path(__file__).parents[1] / ".venv" / "demo-home"))

from aaiclick.data import DataContext, col, create_object_from_value
from aaiclick.local import close_leases, find_both, stop_stack
from aaiclick.store.migrate import ensure_current

ROWS = 1_000_000


async def compute() -> None:
    async with DataContext():
        trips = await create_object_from_value(
            {"city": [f"city {number % 5}" for number in range(ROWS)], "km": [number % 97 for number in range(ROWS)]}
        )
        fares = trips.with_columns(fare=col("km") * 3 + 2)
        by_city = fares.group_by("city").agg(trips=col("km").count(), mean_fare=col("fare").mean()).sort("city")
        for row in (await by_city.to_arrow()).to_pylist():
            print(f"  {row['city']}: {row['trips']:,} trips, mean fare {row['mean_fare']:.2f}")


def main() -> None:
    started = time.perf_counter()
    postgres, clickhouse = find_both()
    asyncio.run(ensure_current(postgres))
    print(f"The stack is up after {time.perf_counter() - started:.1f} s:\n  {postgres}\n  {clickhouse}")
    started = time.perf_counter()
    asyncio.run(compute())
    print(f"{ROWS:,} rows loaded and grouped in {time.perf_counter() - started:.1f} s")
    close_leases()
    stop_stack()


if __name__ == "__main__":
    main()
