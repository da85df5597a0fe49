"""Lists and structs as keys of joins and values of isin."""

from __future__ import annotations

import pytest

from aaiclick.data import col, create_object_from_value, length, lit
from aaiclick.data.errors import DataTypeError


async def test_null_lists_join_with_nothing(data):
    left = await create_object_from_value({"l": [[1, None], None, [], [2]], "v": [1, 2, 3, 4]})
    right = await create_object_from_value({"l": [None, [], [1, None]], "w": [10, 20, 30]})
    assert await left.join(right, "l").data() == {"l": [[1, None], []], "v": [1, 3], "w": [30, 20]}
    assert (await left.join(right, "l", how="left").data())["w"] == [30, None, 20, None]
    assert (await left.join(right, "l", how="anti").data())["v"] == [2, 4]
    assert (await left.join(right, "l", how="semi").data())["v"] == [1, 3]
    assert await left.join(right, "l", how="full").data() == {
        "l": [[1, None], None, [], [2], None],
        "v": [1, 2, 3, 4, None],
        "w": [30, None, 20, None, 10],
    }


async def test_lists_with_and_without_null_join(data):
    left = await create_object_from_value({"l": [[1], [2]]}, schema={"l": "Array(Int8)"})
    right = await create_object_from_value({"l": [None, [2]], "w": [10, 20]})
    assert await left.join(right, "l").data() == {"l": [[2]], "w": [20]}
    other = await create_object_from_value({"l": [None, [2.0]], "w": [10, 20]})
    with pytest.raises(DataTypeError, match="are of different types"):
        left.join(other, "l")


async def test_null_structs_join_with_nothing(data):
    left = await create_object_from_value({"r": [{"x": 1, "y": "a"}, None], "v": [1, 2]})
    right = await create_object_from_value({"r": [None, {"x": 1, "y": "a"}], "w": [10, 20]})
    assert await left.join(right, "r").data() == {"r": [{"x": 1, "y": "a"}], "v": [1], "w": [20]}


async def test_distinct_keeps_the_types_of_the_other_columns(data):
    obj = await create_object_from_value({"k": [1, 1, 2], "l": [[1, 2], [3], []], "b": [True, False, True]})
    distinct = obj.distinct("k")
    assert {name: dtype.nullable for name, dtype in distinct.schema.items()} == {"k": False, "l": False, "b": False}
    joined = distinct.join(obj.select("k", w=col("l").list.len()), "k", how="left")
    assert await joined.select("k", "l", "b", n=col("l").list.len()).data() == {
        "k": [1, 1, 2],
        "l": [[1, 2], [1, 2], []],
        "b": [True, True, True],
        "n": [2, 2, 0],
    }


async def test_a_constant_key_has_no_group_without_rows(data):
    obj = (await create_object_from_value({"x": [1, 2]})).head(0)
    constant = obj.select(k=lit(1))
    assert await constant.distinct().data() == {"k": []}
    assert await obj.group_by(k=lit(1)).agg(n=length()).data() == {"k": [], "n": []}
    assert await constant.value_counts().data() == {"k": [], "count": []}
