"""Large Objects: many rows, many chunks, long streams."""

from __future__ import annotations

import pyarrow as pa
import pytest

from aaiclick.data import View, col, create_object_from_query, create_object_from_value, row_index
from aaiclick.data.runtime.chunk_boundaries import STEP

pytestmark = pytest.mark.usefixtures("data")


async def test_more_than_a_million_rows_round_trip():
    values = list(range(1_200_000))
    obj = await create_object_from_value(values)
    assert await obj.count() == 1_200_000
    assert await obj.data() == values
    assert sum([batch.num_rows async for batch in obj.iter_batches()]) == 1_200_000


async def test_row_numbers_are_dense_and_ordered():
    obj = await create_object_from_query("SELECT cityHash64(number) AS h, number AS n FROM numbers(2000000)")
    stored_obj = await obj.filter(col("h") % 3 == 0).sort("h")
    checks = await stored_obj.select(
        dense=(col("h").cum_max() == col("h")).all(),
        last=row_index().max(),
        rows=col("h").count(),
        first=row_index().min(),
    ).data()
    assert checks["dense"] == [True]
    assert checks["first"] == [0]
    assert checks["last"][0] + 1 == checks["rows"][0] == await stored_obj.count()


async def test_filtered_chunks_use_the_chunk_index(data):
    obj = await create_object_from_query("SELECT toInt64(number) AS n FROM numbers(600000) ORDER BY number")
    view = View(obj, where="n % 3 = 0")
    chunks = await view.chunks(50_000)
    assert len(chunks) == 4
    total = pa.concat_tables([await chunk.to_arrow() for chunk in chunks])
    assert total.column("n").to_pylist() == list(range(0, 600_000, 3))
    ((_, starts),) = data.chunk_index.items()
    assert starts == [0, STEP * 3, STEP * 6, STEP * 9]
    assert (await View(obj, 199_999, 5, "n % 3 = 0").data())["n"] == [599_997]
    assert (await View(obj, 200_000, 5, "n % 3 = 0").data())["n"] == []


async def test_chunk_index_is_extended_after_an_append():
    obj = await create_object_from_query("SELECT toInt64(number) AS n FROM numbers(200000) ORDER BY number")
    assert (await View(obj, 99_999, 2, "n % 2 = 0").data())["n"] == [199_998]
    await obj.insert({"n": list(range(200_000, 400_000))})
    assert (await View(obj, 199_999, 2, "n % 2 = 0").data())["n"] == [399_998]


async def test_parts_of_many_inserts_are_read_in_order():
    async def batches():
        for start in range(0, 700_000, 70_000):
            yield pa.table({"n": pa.array(range(start, start + 70_000))})

    obj = await create_object_from_value(batches())
    assert (await obj.to_arrow()).column("n").to_pylist() == list(range(700_000))
    assert (await obj.slice(139_999, 3).data())["n"] == [139_999, 140_000, 140_001]
    doubled = await (obj["n"] * 2)
    assert await (doubled - obj["n"] == obj["n"]).all().data() is True
