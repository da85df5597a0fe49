"""Operators over two million rows in chunks. Run it with `aaiclick run examples.map_prices.prices`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aaiclick.data import Object, create_object_from_value
from aaiclick.operators import map, reduce  # noqa: A004
from aaiclick.orchestration import job, task


@task
async def load(rows: int) -> Object:
    """Create an Object of generated prices."""
    numbers = np.arange(rows)
    return await create_object_from_value({"item": numbers, "price": (numbers % 1000) / 10})


def add_tax(rows: pa.Table, rate: float) -> pa.Table:
    """Add a column to a chunk."""
    return rows.append_column("gross", pc.multiply(rows["price"], 1 + rate))


def select_expensive(rows: pa.Table) -> pa.Table:
    """Filter the rows of a chunk."""
    return rows.filter(pc.greater(rows["gross"], 118))


def find_extremes(rows: pa.Table) -> pa.Table:
    """Return the rows with the lowest and the highest price; also applied to its own results."""
    order = pc.sort_indices(rows["gross"])
    return rows.take(pa.concat_arrays([order[:1], order[-1:]]))


@task
async def report(expensive: Object, extremes: Object) -> dict[str, list[float]]:
    """Print and return a summary."""
    low, high = (await extremes.data())["gross"]
    count = await expensive.count()
    print(f"{count:,} expensive items, prices from {low:.2f} to {high:.2f}")
    return {"expensive": [count], "low": [low], "high": [high]}


@job
def prices(rows: int = 2_000_000) -> None:
    """Load prices, add tax, find the expensive items and the extremes, and report them."""
    gross = map(add_tax, load(rows), rate=0.19)
    report(map(select_expensive, gross), reduce(find_extremes, gross))
