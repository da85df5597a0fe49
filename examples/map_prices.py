"""Rows by the million through Python functions, in chunks. Run it with `aaiclick run examples.map_prices.prices`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aaiclick.data import Object, create_object_from_value
from aaiclick.operators import map, reduce  # noqa: A004
from aaiclick.orchestration import job, task


@task
async def load(rows: int) -> Object:
    """Prices, made up."""
    numbers = np.arange(rows)
    return await create_object_from_value({"item": numbers, "price": (numbers % 1000) / 10})


def taxed(rows: pa.Table, rate: float) -> pa.Table:
    """One chunk: as many rows as came in."""
    return rows.append_column("gross", pc.multiply(rows["price"], 1 + rate))


def dear(rows: pa.Table) -> pa.Table:
    """One chunk: fewer rows."""
    return rows.filter(pc.greater(rows["gross"], 118))


def extremes(rows: pa.Table) -> pa.Table:
    """Takes its own results too: the cheapest and the dearest of any number of rows."""
    order = pc.sort_indices(rows["gross"])
    return rows.take(pa.concat_arrays([order[:1], order[-1:]]))


@task
async def report(found: Object, span: Object) -> dict[str, list[float]]:
    """What came of it."""
    low, high = (await span.data())["gross"]
    many = await found.count()
    print(f"{many:,} dear items, prices from {low:.2f} to {high:.2f}")
    return {"dear": [many], "low": [low], "high": [high]}


@job
def prices(rows: int = 2_000_000) -> None:
    """Load; tax each row; keep the dear ones, and find the extremes; report."""
    gross = map(taxed, load(rows), rate=0.19)
    report(map(dear, gross), reduce(extremes, gross))
