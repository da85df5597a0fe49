"""Views of Views."""

from __future__ import annotations

import pytest

from aaiclick.data import col, create_object_from_value, open_reference
from aaiclick.data.errors import ConversionError, DataError


async def test_a_view_of_a_view_is_a_part_of_its_rows(data):
    obj = await create_object_from_value({"x": list(range(20))})
    view = obj.view(2, 10)
    assert await view.view(3, 2).data() == {"x": [5, 6]}
    assert await view.view(8, 5).data() == {"x": [10, 11]}
    assert await view.view(3).view(1, 1).data() == {"x": [6]}
    assert (await (await open_reference(view.view(3, 2).to_dict())).data()) == {"x": [5, 6]}


async def test_conditions_of_views_are_combined(data):
    obj = await create_object_from_value({"x": list(range(20))})
    odd = obj.view(where="x % 2 = 1")
    assert await odd.view(1, 2).data() == {"x": [3, 5]}
    assert await odd.view(0, 2, "x > 10").data() == {"x": [11, 13]}
    assert await odd.view(where=col("x") < 4).data() == {"x": [1, 3]}
    with pytest.raises(DataError, match="A View of a range of rows has no further condition"):
        obj.view(1, 5).view(where="x > 2")
    with pytest.raises(ConversionError, match="limit must be an integer of at least 0"):
        odd.view(0, -1)
