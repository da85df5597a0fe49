"""Exact round trips of values through pandas, NumPy and Python."""

from __future__ import annotations

import pytest

from aaiclick.data import create_object_from_value
from aaiclick.data.errors import ConversionError, DataError

IDS = [380565563033686019, None, 380565563033686021]


async def test_integers_with_nulls_stay_exact_in_pandas(data):
    obj = await create_object_from_value({"a": ["x", "y", "z"], "id": IDS, "b": [1, 2, 3]})
    frame = await obj.to_pandas()
    assert list(frame.columns) == ["a", "id", "b"]
    assert str(frame["id"].dtype) == "Int64"
    assert (await (await create_object_from_value(frame)).data())["id"] == IDS
    await obj.insert(frame)
    assert (await obj.data())["id"] == IDS * 2


async def test_numpy_refuses_large_integers_with_nulls(data):
    with pytest.raises(ConversionError, match="2\\*\\*53"):
        await (await create_object_from_value({"id": IDS})).to_numpy()
    assert (await (await create_object_from_value([1, None])).to_numpy())[0] == 1.0


async def test_a_dict_of_values_is_a_record(data):
    record = await create_object_from_value({"a": 1, "b": "x", "c": None})
    assert await record.data() == {"a": 1, "b": "x", "c": None}
    assert await record["a"].data() == [1]
    assert await record.rows() == [{"a": 1, "b": "x", "c": None}]
    await record.insert({"a": 2, "b": "y", "c": None})
    assert await record.data() == {"a": [1, 2], "b": ["x", "y"], "c": [None, None]}


async def test_insert_into_a_scalar_is_refused(data):
    with pytest.raises(DataError, match="not to a scalar"):
        await (await create_object_from_value(5)).insert(6)


async def test_insert_takes_one_batch(data):
    obj = await create_object_from_value({"a": [1]})
    with pytest.raises(ConversionError, match="a single batch"):
        await obj.insert(iter([{"a": [2]}]))
