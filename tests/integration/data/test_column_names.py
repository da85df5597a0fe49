"""Names of columns that have a meaning in ClickHouse."""

from __future__ import annotations

import pytest

from aaiclick.data import col, create_object_from_value, length
from aaiclick.data.errors import ColumnNameError, QueryError

NAMES = (
    {"t1": [1, None], "null": ["a", "b"], "t2": [[1], None], "size0": ["c", "d"]},
    {"t1": [{"x": 1}, {"x": 2}], "x": ["a", "b"]},
    {"x": [1, None], "x.null": ["a", "b"]},
    {"l": [[1], [2, 3]], "l.size0": ["a", "b"]},
    {"A": [1, 2], "a": [3, 4], "*": [5, 6], "count()": [7, 8], "e1": [[1], [2]], "{p0:UInt8}": [9, 10]},
)  # fmt: skip


@pytest.mark.parametrize("columns", NAMES, ids=lambda columns: next(iter(columns)))
async def test_any_name_is_a_column_of_its_own(data, columns):
    obj = await create_object_from_value(columns)
    other = obj.rename({name: f"{name}_right" for name in columns})
    key = list(columns)[1]
    assert await obj.data() == columns
    assert await obj.filter(col(key).is_not_null()).sort(key).data() == columns
    joined = await obj.join(other, left_on=key, right_on=f"{key}_right", how="left").data()
    assert {name: joined[name] for name in columns} == columns
    for name, values in columns.items():
        assert await obj.select(value=col(name)).data() == {"value": values}
        assert await obj[name].data() == values
        counted = await obj.with_columns(n=length().over(name)).data()
        assert {column: counted[column] for column in columns} == columns


@pytest.mark.parametrize("name", ["_row_exists", "_block_number"])
async def test_names_of_virtual_columns_are_refused(data, name):
    with pytest.raises(ColumnNameError, match="is reserved"):
        await create_object_from_value({name: [1]})


async def test_a_list_beside_its_namesake_before_the_dot_is_explained(data):
    with pytest.raises(QueryError, match="share the part before the dot"):
        await create_object_from_value({"n.a": [[1], [2, 3]], "n.b": [[1, 2], [3]]})
    with pytest.raises(QueryError, match="share the part before the dot"):
        await create_object_from_value({"x": [{"y": 1}], "x.y": ["a"]})


async def test_value_counts_does_not_replace_a_column(data):
    obj = await create_object_from_value({"x": [1, 1], "count": [2, 2]})
    with pytest.raises(ColumnNameError, match="Two columns are named 'count'"):
        obj.value_counts()
    assert await obj.value_counts("n").data() == {"x": [1], "count": [2], "n": [2]}
