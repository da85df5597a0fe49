"""Windows with order_by: their functions follow this order, not the order of the rows."""

from __future__ import annotations

import pytest

from aaiclick.data import DataContext, col, create_object_from_value

ROWS = {"k": ["a", "a", "b", "b"], "t": [2, 1, 3, 4], "v": [10, None, 30, 40]}


@pytest.fixture
async def rows(data: DataContext):
    return await create_object_from_value(ROWS)


async def test_first_last_and_collect_are_in_the_order_of_the_window(rows):
    window = {"order_by": "t"}
    values = rows.select(
        first=col("v").first().over("k", **window),
        last=col("v").last().over("k", **window),
        all=col("v").collect().over("k", **window),
        down=col("v").first().over("k", order_by="t", descending=True),
        whole=col("v").collect().over("k", order_by="t", rows=(None, None)),
    )
    assert await values.data() == {
        "first": [None, None, 30, 30],
        "last": [10, None, 30, 40],
        "all": [[None, 10], [None], [30], [30, 40]],
        "down": [10, 10, 40, 40],
        "whole": [[None, 10], [None, 10], [30, 40], [30, 40]],
    }


async def test_filtered_first_and_last_are_in_the_order_of_the_window(rows):
    present = col("v").filter(col("v").is_not_null())
    values = rows.select(
        first=present.first().over(order_by="t", rows=(None, None)),
        last=present.last().over(order_by="t", rows=(None, None)),
        all=present.collect().over(order_by="t", rows=(None, None)),
        none=present.first().over("k", order_by="t"),
    )
    assert await values.data() == {
        "first": [10] * 4,
        "last": [40] * 4,
        "all": [[10, 30, 40]] * 4,
        "none": [10, None, 30, 30],
    }


async def test_first_of_lists_and_without_order_by(rows):
    listed = rows.with_columns(l=col("v").is_null().if_else(None, "x").str.split("-"))
    values = listed.select(ordered=col("l").first().over("k", order_by="t"), plain=col("v").first().over("k"))
    assert await values.data() == {"ordered": [None, None, ["x"], ["x"]], "plain": [10, 10, 30, 30]}


def test_ordered_windows_are_shown_as_they_are_written():
    window = col("v").filter(col("v") > 1).first().over("k", order_by=col("t"))
    assert repr(window) == 'col("v").filter(col("v") > 1).first().over(col("k"), order_by=col("t"))'


@pytest.mark.parametrize("descending", [False, True])
async def test_backward_fill_takes_the_next_row_of_the_window(data, descending):
    t = [1, 2, 3, 4, None]
    rows = await create_object_from_value({"t": t, "v": [1, None, 3, None, 5]})
    filled = rows.select(
        back=col("v").backward_fill().over(order_by="t", descending=descending),
        one=col("v").backward_fill(1).over(order_by="t", descending=descending),
        line=col("v").interpolate().over(order_by="t", descending=descending),
    )
    assert await filled.data() == {
        "back": [1, 1, 3, 3, 5] if descending else [1, 3, 3, 5, 5],
        "one": [1, 1, 3, 3, 5] if descending else [1, 3, 3, 5, 5],
        "line": [1.0, 2.0, 3.0, None, 5.0] if descending else [1.0, 2.0, 3.0, 4.0, 5.0],
    }
