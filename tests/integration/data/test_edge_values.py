"""Values at the edges of operations: NaN, NULL, equal keys and time zones."""

# ruff: noqa: DTZ001  (datetimes without a time zone are tested too)

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from aaiclick.data import coalesce, col, create_object_from_value, if_else
from aaiclick.data.errors import ConversionError, DataTypeError, QueryError

NAN, INF = math.nan, math.inf


async def test_asof_join_with_nan_keys_matches_numbers_only(data):
    left = await create_object_from_value({"t": [1.5, NAN, INF, None]})
    right = await create_object_from_value({"t": [1.0, NAN, 2.0, None], "v": [1, 2, 3, 4]})
    assert await left.join_asof(right, "t").select("v").data() == {"v": [1, None, 3, None]}
    assert await left.join_asof(right, "t", strategy="forward").select("v").data() == {"v": [3, None, None, None]}


async def test_asof_join_takes_the_last_equal_key_backward(data):
    left = await create_object_from_value({"t": [1, 3], "g": ["a", "a"]})
    right = await create_object_from_value({"t": [1, 1, 1, 2, 2], "g": ["a", "a", "b", "a", "a"], "v": [1, 2, 3, 4, 5]})
    assert await left.join_asof(right, "t", "g").select("v").data() == {"v": [2, 5]}
    assert await left.join_asof(right, "t").select("v").data() == {"v": [3, 5]}
    assert await left.join_asof(right, "t", tolerance=0).select("v").data() == {"v": [3, None]}


async def test_asof_join_takes_the_first_equal_key_forward(data):
    left = await create_object_from_value({"t": [0, 2]})
    right = await create_object_from_value({"t": [2, 2, 1, 1], "v": [1, 2, 3, 4]})
    assert await left.join_asof(right, "t", strategy="forward").select("v").data() == {"v": [3, 1]}


async def test_split_and_extract_all_of_null_are_null(data):
    texts = await create_object_from_value({"s": ["a,b", None, ""]})
    result = await texts.select(a=col("s").str.split(","), b=col("s").str.extract_all("a")).data()
    assert result == {"a": [["a", "b"], None, [""]], "b": [["a"], None, []]}


async def test_split_at_an_empty_text_gives_characters(data):
    texts = await create_object_from_value({"s": ["aé🦆\n", "", None]})
    assert await texts.select(x=col("s").str.split("")).data() == {"x": [["a", "é", "🦆", "\n"], [], None]}


async def test_pivot_has_a_column_for_nan(data):
    cells = await create_object_from_value({"k": [1, 1, 1], "on": [0.5, NAN, None], "v": [1, 2, 3]})
    pivoted = await cells.pivot("on", index="k", values="v")
    assert await pivoted.data() == {"k": [1], "0.5": [1], "nan": [2], "null": [3]}


@pytest.mark.parametrize("other", ["naive", "day"])
async def test_datetimes_with_and_without_zone_are_not_mixed(data, other):
    moment = datetime(2024, 1, 1, 12)
    times = await create_object_from_value(
        {"aware": [moment.replace(tzinfo=UTC)], "naive": [moment], "day": [date(2024, 1, 1)]}
    )
    for build in (
        lambda: times.filter(col("aware") == col(other)),
        lambda: times.filter(col("aware") < moment),
        lambda: times.select(x=coalesce(col("aware"), col(other))),
        lambda: times.select(x=if_else(col("aware").is_null(), col("aware"), col(other))),
        lambda: times.select(x=col("aware")).concat(times.select(x=col(other))),
        lambda: times.join(times, left_on="aware", right_on=other),
    ):
        with pytest.raises(DataTypeError):
            build()
    assert await times.filter("aware = '2024-01-01 12:00:00'").count() == 1


async def test_mean_of_decimals_is_computed_from_the_exact_sum(data):
    values = await create_object_from_value({"d": [Decimal("0.10")] * 10 + [None]})
    assert await values.select(x=col("d").mean()).data() == {"x": [0.1]}
    assert await values.filter(col("d").is_null()).select(x=col("d").mean()).data() == {"x": [None]}


async def test_json_raw_of_a_missing_path_is_null(data):
    texts = await create_object_from_value({"j": ['{"a": [1, 2]}', '{"b": 1}', "no JSON", None]})
    assert await texts.select(x=col("j").json.raw("a")).data() == {"x": ["[1,2]", None, None, None]}


async def test_schema_of_maps_applies_to_dicts_with_different_keys(data):
    values = {"m": [{"x": 1}, {}, {"y": 2}], "i": [1, 2, 3]}
    stored = await create_object_from_value(values, schema={"m": "Map(String, Int64)"})
    assert str(stored.schema["m"]) == "Map(String, Int64)"
    assert await stored.select(x=col("m").map.get("x")).data() == {"x": [1, None, None]}
    assert await stored.data() == values
    dtype = "Tuple(x Nullable(Int64), y Nullable(String))"
    fields = await create_object_from_value({"r": [{"x": 1}, {"y": "u"}]}, schema={"r": dtype})
    assert await fields.data() == {"r": [{"x": 1, "y": None}, {"x": None, "y": "u"}]}
    with pytest.raises(ConversionError, match="'y'"):
        await create_object_from_value({"r": [{"x": 1}, {"y": "u"}]}, schema={"r": "Tuple(x Nullable(Int64))"})
    with pytest.raises(ConversionError, match="Map"):
        await create_object_from_value({"m": [{"x": "u"}, {"y": 1}]}, schema={"m": "Map(String, Int64)"})


async def test_sums_and_means_of_large_integers_are_exact(data):
    values = await create_object_from_value({"k": [1, 1, 2], "i": [2**63 - 1, -(2**63), 2**63 - 1]})
    assert await values.group_by("k").agg(s=col("i").sum(), m=col("i").mean()).data() == {
        "k": [1, 2], "s": [-1, 2**63 - 1], "m": [-0.5, 2.0**63],
    }  # fmt: skip
    with pytest.raises(QueryError, match="does not fit"):
        await values.filter(col("i") > 0).select(col("i").sum()).data()
