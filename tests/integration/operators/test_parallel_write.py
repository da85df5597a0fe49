"""Parallel writes to one table: only rows of accepted attempts are kept."""

from __future__ import annotations

import pyarrow as pa
import pytest

from aaiclick.data import DataContext, col, create_object_from_value
from aaiclick.data.errors import DataError
from aaiclick.data.runtime.parallel_write import Part, create_parallel_table, seal_parts, source_of, write_part


@pytest.fixture
async def data(aaiclick_clickhouse):
    async with DataContext(aaiclick_clickhouse) as context:
        yield context


def rows(*values: int) -> pa.Table:
    return pa.table({"x": list(values)})


async def keys(data: DataContext, table: str) -> list[int]:
    return (await data.client.read_text(f"SELECT aai_id FROM {table} ORDER BY aai_id")).column(0).to_pylist()


async def test_rows_of_rejected_attempts_are_dropped(data):
    target = await create_parallel_table()
    await write_part(target, rows(0, 1), source_of(0, 1), 0)
    await write_part(target, rows(-2, -3), source_of(1, 1), 2)  # crashed before it was accepted
    await write_part(target, rows(2, 3), source_of(1, 2), 2)
    sealed = await seal_parts(target, [Part(0, 1, 0, 2, 2), Part(1, 2, 2, 2, 2)])
    assert await sealed.data() == {"x": [0, 1, 2, 3]}
    assert await keys(data, sealed.table_id) == [0, 1, 2, 3]


async def test_writes_after_seal_are_ignored(data):
    target = await create_parallel_table()
    await write_part(target, rows(0, 1), source_of(0, 2), 0)
    sealed = await seal_parts(target, [Part(0, 2, 0, 2, 2)])
    await write_part(target, rows(-1, -2), source_of(0, 1), 0)
    assert await sealed.data() == {"x": [0, 1]}
    assert await (sealed * 2).data() == {"x": [0, 2]}
    assert await sealed.insert({"x": [7]}) == 3
    assert await keys(data, sealed.table_id) == [0, 1, 2]


async def test_parts_of_unexpected_size_are_renumbered(data):
    target = await create_parallel_table()
    await write_part(target, rows(10, 11, 12, 13), source_of(0, 1), 0)
    await write_part(target, rows(-1, -1, -1), source_of(1, 1), 2)
    await write_part(target, rows(20), source_of(1, 3), 2)
    await write_part(target, rows(30, 31), source_of(3, 1), 6)
    parts = [Part(0, 1, 0, 2, 4), Part(1, 3, 2, 2, 1), Part(2, 1, 4, 2, 0), Part(3, 1, 6, 2, 2)]
    sealed = await seal_parts(target, parts)
    assert await sealed.data() == {"x": [10, 11, 12, 13, 20, 30, 31]}
    assert await keys(data, sealed.table_id) == list(range(7))


async def test_large_copies_run_in_batches(data, monkeypatch):
    monkeypatch.setattr("aaiclick.data.runtime.parallel_write.ROWS_PER_COPY", 5)
    target = await create_parallel_table()
    parts = []
    for n in range(12):
        await write_part(target, rows(*(100 * n + i for i in range(n % 4))), source_of(n, 1), 2 * n)
        parts.append(Part(n, 1, 2 * n, 2, n % 4))
    sealed = await seal_parts(target, parts)
    assert (await sealed.data())["x"] == [100 * n + i for n in range(12) for i in range(n % 4)]
    assert await keys(data, sealed.table_id) == list(range(18))


async def test_missing_rows_raise_data_error(data):
    target = await create_parallel_table()
    await write_part(target, rows(0), source_of(0, 1), 0)
    with pytest.raises(DataError, match="Part 1 has 0 rows, but 5 were written"):
        await seal_parts(target, [Part(0, 1, 0, 1, 1), Part(1, 1, 1, 5, 5)])


async def test_expressions_are_written_server_side(data):
    source = await create_object_from_value({"x": [1, 2, 3], "word": ["a", "b", None]})
    target = await create_parallel_table()
    await write_part(target, source.select(y=col("x") * 2, word=col("word")), source_of(0, 1), 0)
    await write_part(target, source.view(1, 2).select(y=col("x"), word=col("word")), source_of(1, 1), 3)
    sealed = await seal_parts(target, [Part(0, 1, 0, 3, 3), Part(1, 1, 3, 2, 2)])
    assert await sealed.data() == {"y": [2, 4, 6, 2, 3], "word": ["a", "b", None, "b", None]}


async def test_type_mismatch_names_the_column(data):
    target = await create_parallel_table()
    await write_part(target, pa.table({"x": [1]}), source_of(0, 1), 0)
    with pytest.raises(DataError, match="'x'"):
        await write_part(target, pa.table({"x": ["word"]}), source_of(1, 1), 1)
