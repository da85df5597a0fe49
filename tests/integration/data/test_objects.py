"""Objects: values in and out, expressions, groups, joins, windows."""

# ruff: noqa: DTZ001  (datetimes without a time zone are tested too)

from __future__ import annotations

import asyncio
import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from ipaddress import IPv4Address
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from aaiclick.data import (
    View,
    case,
    coalesce,
    col,
    create_object_from_query,
    create_object_from_value,
    delete_object,
    insert,
    length,
    list_objects,
    open_object,
    open_reference,
    row_index,
    row_number,
)
from aaiclick.data.errors import (
    ColumnNameError,
    ColumnNotFoundError,
    ConversionError,
    DataError,
    DataTypeError,
    LengthError,
    ObjectExistsError,
    ObjectNotFoundError,
)

pytestmark = pytest.mark.usefixtures("data")

BERLIN = ZoneInfo("Europe/Berlin")

EXACT = [
    5,
    -1.5,
    "text",
    "",
    "tab\t quote ' back\\slash ` newline\n é 🦆",
    b"\x00\xff",
    True,
    None,
    date(2024, 2, 29),
    datetime(2024, 2, 29, 1, 2, 3, 456789),
    datetime(2024, 7, 1, 1, 2, 3, 4, tzinfo=BERLIN),
    Decimal("12345678901234567890.123456789"),
    UUID("61f0c404-5cb3-41e7-907b-a6006ad3dba0"),
    [1, None, 3],
    [],
    [None, None],
    [True, None, False],
    [1.5, None, math.inf, -math.inf],
    [2**63 - 1, -(2**63)],
    [2**64 - 1, 0],
    ["a", None, ""],
    [b"\xff\x00", b""],
    [date(1900, 1, 1), date(2299, 12, 31), None],
    [datetime(1900, 1, 1), datetime(2299, 12, 31, 23, 59, 59, 999999)],
    [datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=0), datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=1)],
    [datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=30)))],
    [Decimal("1.10"), Decimal(-2), None],
    [UUID(int=0), UUID(int=2**128 - 1), None],
    [[1, 2], [], [3]],
    [[1, None], [None]],
    [["a"], ["b", "c"]],
    [[[1]], [[], [2, 3]]],
    [[1], None, [2]],
    [{"a": 1}, {"b": 2}],
    [{"x": {"y": [1, 2], "z": {"w": "v"}}}, {"x": {"y": [], "z": {"w": None}}}],
    {"a": [1, 2], "b": ["x", None]},
    {"nested": [{"k": 1}, {"k": 2}]},
    {"odd": [{"k": 1}, None, {"k": 1, "l": [1]}, [1, "two"]]},
    {"empty": []},
]


@pytest.mark.parametrize("value", EXACT, ids=lambda value: repr(value)[:40])
async def test_values_round_trip(value):
    obj = await create_object_from_value(value)
    expected = value
    if isinstance(value, list) and value and isinstance(value[0], dict):
        names = list(dict.fromkeys(name for row in value for name in row))
        expected = {name: [row.get(name) for row in value] for name in names}
    actual = await obj.data()
    assert actual == expected


async def test_nan_and_null_are_distinct():
    first, second, third = await (await create_object_from_value([math.nan, None, 1.0])).data()
    assert math.isnan(first)
    assert second is None
    assert third == 1.0


async def test_time_zone_name_is_preserved():
    (value,) = await (await create_object_from_value([datetime(2024, 7, 1, tzinfo=BERLIN)])).data()
    assert value.tzinfo.key == "Europe/Berlin"


@pytest.mark.parametrize(
    "name", ["from", "a b", "`", "a`b\\", "\\", "'", '"', "🦆", "select", "x;--", "a.b", "{p0:Int8}", "%s", "1", "$a$"]
)
async def test_any_column_name_works(name):
    obj = await create_object_from_value({name: [1, 2, 3], "other": ["x", "y", "z"]})
    assert await obj[name].sum().data() == 6
    assert await obj.filter(col(name) > 1).data() == {name: [2, 3], "other": ["y", "z"]}
    assert await obj.group_by("other").agg(col(name).max()).data() == {"other": ["x", "y", "z"], name: [1, 2, 3]}
    sorted_obj = await obj.sort(name, descending=True)
    assert await sorted_obj[name].data() == [3, 2, 1]


@pytest.mark.parametrize("name", ["aai_id", "aai_x", "", "a\x00"])
async def test_reserved_names_are_refused(name):
    with pytest.raises(ColumnNameError):
        await create_object_from_value({name: [1]})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1, "a"], "mixes number and str"),
        ([True, 2], "mixes bool and number"),
        ([datetime(2024, 1, 1), datetime(2024, 1, 1, tzinfo=UTC)], "mixes datetime and datetime with a time zone"),
        ([2**64], "cannot be stored"),
        ([2**53 + 1, 0.5], "beyond 2**53"),
        ([date(1899, 12, 31)], "1900 to 2299"),
        ([datetime(2400, 1, 1)], "1900 to 2299"),
        ([timedelta.max], "64-bit"),
        ({"a": [1], "b": [1, 2]}, "'a' 1, 'b' 2"),
        ({}, "no columns"),
        (object(), "cannot become an Object"),
        ([{"a": {1: 2}}, {"a": {"b": 3}}], "JSON cannot store"),
    ],
)
async def test_inexact_values_are_refused(value, message):
    with pytest.raises(ConversionError, match=message.replace("*", r"\*")):
        await create_object_from_value(value)


async def test_element_wise_between_objects():
    a = await create_object_from_value([3, 1, 2])
    b = await create_object_from_value([10, 30, 20])
    assert await (a + b).data() == [13, 31, 22]
    assert await (a + b * a - b).data() == [23, 1, 22]
    assert await (a < b).data() == [True, True, True]


async def test_filtered_objects_combine_by_position():
    a = await create_object_from_value([3, 1, 2, 9])
    b = await create_object_from_value([10, 30, 20])
    assert await (a[a > 1] + b).data() == [13, 32, 29]
    assert await (a[1:] + b).data() == [11, 32, 29]
    assert await a[1:][b > 10].data() == [2, 9]


async def test_length_mismatch_error_names_the_lengths():
    a = await create_object_from_value([1, 2, 3])
    b = await create_object_from_value([1, 2])
    empty = a.filter(a > 9)
    for wrong in (a + b, b + a, a + empty, empty + a):
        with pytest.raises(LengthError, match="rows cannot be combined"):
            await wrong.data()
    with pytest.raises(LengthError, match="3 and 2 rows"):
        await (a + b)


async def test_python_semantics_of_floor_division_and_modulo():
    values = [-7, 7, -6, 6, 0, 2**62, -(2**63), 2**63 - 1]
    a = await create_object_from_value(values)
    for divisor in (2, -2, 3, -3, 1, -1):
        wrapped = [(v // divisor + 2**63) % 2**64 - 2**63 for v in values]
        assert await (a // divisor).data() == wrapped
        assert await (a % divisor).data() == [v % divisor for v in values]
    assert await (a // 0).data() == [None] * len(values)
    x = await create_object_from_value([-7.5, 7.5, 0.25])
    assert await (x // 2).data() == [v // 2 for v in (-7.5, 7.5, 0.25)]
    assert await (x % -3).data() == [v % -3 for v in (-7.5, 7.5, 0.25)]
    assert await (7 // (await create_object_from_value([2, -2]))).data() == [3, -4]


async def test_scalars_are_inlined_and_broadcast():
    a = await create_object_from_value([1, 2, 3])
    top = await a.max()
    assert await (a - a.mean()).data() == [-1.0, 0.0, 1.0]
    assert await (a * top).data() == [3, 6, 9]
    assert await (top - a.min()).data() == 2
    assert await (10 - a).data() == [9, 8, 7]
    assert "JOIN" not in (a - a.mean()).sql()


async def test_the_same_rows_need_no_join():
    f = await create_object_from_value({"k": [1, 2], "v": [10, 20]})
    total = ((f["k"] + f["v"]) * 2 + 1).sum()
    assert total.sql(pretty=False).count("SELECT") == 1
    assert "JOIN" not in total.sql()
    assert await total.data() == 68
    mask = f["v"] > 10
    assert "JOIN" not in f[mask].sql()
    assert await f[mask].data() == {"k": [2], "v": [20]}
    assert await f.with_columns(z=f["k"] * f["v"])["z"].data() == [10, 40]


async def test_repeated_self_addition_compiles_to_a_small_query():
    x = await create_object_from_value([1])
    for _ in range(40):
        x = x + x
    assert len(x.sql()) < 100_000
    assert await x.data() == [2**40]


async def test_long_chains_of_steps():
    x = await create_object_from_value([1])
    y = x
    for _ in range(200):
        y = y + 1
    assert await y.data() == [201]
    assert await (await y).data() == [201]
    z = x
    for _ in range(249):
        z = z.filter(col("value") > 0)
    assert await z.data() == [1]
    with pytest.raises(DataError, match="more than 250 steps"):
        z.filter(col("value") > 0)


async def test_select_filter_sort_slice():
    f = await create_object_from_value({"k": ["b", "a", "c", "a"], "v": [1, 2, None, 4]})
    assert await f.select("v", double=col("v") * 2).data() == {"v": [1, 2, None, 4], "double": [2, 4, None, 8]}
    assert await f.filter(col("v") > 1, col("k") == "a").data() == {"k": ["a", "a"], "v": [2, 4]}
    assert await f.filter("v > 1 AND k = 'a'").data() == {"k": ["a", "a"], "v": [2, 4]}
    assert await f.sort("k", col("v"), descending=[False, True]).data() == {
        "k": ["a", "a", "b", "c"],
        "v": [4, 2, 1, None],
    }
    assert await f.sort("v", nulls_first=True)["v"].data() == [None, 1, 2, 4]
    assert await f.slice(1, 2).data() == {"k": ["a", "c"], "v": [2, None]}
    assert await f.sort("v").head(2).filter(col("v") > 1)["v"].data() == [2]
    assert await f.drop("k").rename({"v": "w"}).data() == {"w": [1, 2, None, 4]}
    assert await f["v"].fill_null(0).data() == [1, 2, 0, 4]
    assert await f.drop_nulls().count() == 3
    assert await f.distinct("k").data() == {"k": ["b", "a", "c"], "v": [1, 2, None]}
    assert await f["k"].unique().data() == ["b", "a", "c"]
    assert await f.with_row_index().filter(col("index") % 2 == 1)["v"].data() == [2, 4]
    assert await f.sort("v", descending=True).with_row_index()["index"].data() == [0, 1, 2, 3]
    assert await f.cast_columns({"v": "Float64"}).select(col("v") / 4)["v"].data() == [0.25, 0.5, None, 1.0]


async def test_column_replaced_under_its_own_name_is_filtered_by_the_old_value():
    f = await create_object_from_value({"x": [1, 2, 3]})
    changed = f.filter(col("x") > 1).with_columns(x=col("x") * 10)
    assert await changed.data() == {"x": [20, 30]}
    assert await changed.filter(col("x") > 20).data() == {"x": [30]}


async def test_groups():
    f = await create_object_from_value({"k": ["b", "a", "b", None], "v": [1, 2, 3, 4], "w": [1.0, None, 3.0, 4.0]})
    actual = (
        await f.group_by("k")
        .agg(total=col("v").sum(), n=length(), first=col("w").first(), every=col("v").collect())
        .data()
    )
    assert actual == {
        "k": ["a", "b", None],
        "total": [2, 4, 4],
        "n": [1, 2, 1],
        "first": [None, 1.0, 4.0],
        "every": [[2], [1, 3], [4]],
    }
    big = f.group_by("k").having(col("v").sum() > 2).agg(total=col("v").sum())
    assert await big.data() == {"k": ["b", None], "total": [4, 4]}
    assert await f.group_by(odd=col("v") % 2).len().data() == {"odd": [0, 1], "count": [2, 2]}
    assert await f.group_by("k").agg(f["v"].sum()).filter(col("v") > 2).data() == {"k": ["b", None], "v": [4, 4]}
    assert await f["k"].value_counts().data() == {"k": ["b", "a", None], "count": [2, 1, 1]}
    with pytest.raises(DataTypeError, match="per row"):
        f.group_by("k").agg(col("v"))


async def test_aggregates():
    a = await create_object_from_value([4, None, 1, 3])
    expected = {
        "sum": 8,
        "min": 1,
        "max": 4,
        "mean": 8 / 3,
        "median": 3.0,
        "nunique": 3,
        "first": 4,
        "last": 3,
        "argmin": 2,
        "argmax": 0,
    }
    for name, value in expected.items():
        assert await getattr(a, name)().data() == value, name
    assert await a.quantile(0.25).data() == 2.0
    assert await a.std().data() == pytest.approx(1.5275252316519468)
    assert await a.var(ddof=0).data() == pytest.approx(1.5555555555555556)
    assert await (a > 1).any().data() is True
    assert await (a > 1).all().data() is False
    assert await (a > 1).count_if().data() == 2
    empty = a.filter(a > 9)
    for name in ("min", "max", "mean", "median", "std", "first", "last", "argmin"):
        assert await getattr(empty, name)().data() is None, name
    assert await empty.sum().data() == 0
    table = await create_object_from_value({"x": [1, 2], "s": ["a", "b"]})
    assert await table.sum().data() == {"x": [3]}
    assert await table.max().data() == {"x": [2], "s": ["b"]}
    assert await table.select(col("x").sum(), n=length()).data() == {"x": [3], "n": [2]}


async def test_windows():
    f = await create_object_from_value({"k": ["a", "b", "a", "b"], "v": [4, 3, 2, 1]})
    actual = await f.select(
        col("v").sum().over("k").alias("total"),
        col("v").cum_sum().alias("run"),
        col("v").cum_sum().over("k").alias("run_k"),
        col("v").shift().alias("before"),
        col("v").shift(-1).over("k").alias("after_k"),
        col("v").rank().alias("rank"),
        row_number().over("k").alias("nth"),
        col("v").rolling("sum", 2).alias("two"),
        col("v").sum().over("k", order_by="v").alias("by_v"),
        row_index().alias("i"),
        col("v").diff().alias("d"),
    ).data()
    assert actual == {
        "total": [6, 4, 6, 4], "run": [4, 7, 9, 10], "run_k": [4, 3, 6, 4], "before": [None, 4, 3, 2], "after_k": [2,
        1, None, None],
        "rank": [4, 3, 2, 1], "nth": [1, 1, 2, 2], "two": [4, 7, 5, 3], "by_v": [6, 4, 2, 1], "i": [0, 1, 2, 3],
        "d": [None, -1, -1, -1],
    }  # fmt: skip
    assert await f.with_columns(c=col("v").cum_sum()).filter(col("c") > 4)["c"].data() == [7, 9, 10]
    assert await f.with_columns(c=col("v").cum_sum()).with_columns(d=col("c").cum_sum())["d"].data() == [4, 11, 20, 30]
    assert await f.sort("v")["v"].cum_sum().data() == [1, 3, 6, 10]
    assert await f["v"].cum_sum().cum_sum().data() == [4, 11, 20, 30]
    assert await f["v"].diff().fill_null(0).cum_sum().sum().data() == -6
    assert await f.select(x=(col("v").cum_max() == 4).all(), y=col("v").diff().cum_sum().max()).data() == {
        "x": [True],
        "y": [0],
    }
    assert await f.group_by("k").agg(m=col("v").shift().max()).data() == {"k": ["a", "b"], "m": [3, 4]}
    assert await f.head(3).group_by("k").agg(m=col("v").cum_sum().max()).data() == {"k": ["a", "b"], "m": [9, 7]}
    assert await f.filter(col("v") > col("v").mean())["v"].data() == [4, 3]


async def test_joins():
    left = await create_object_from_value({"k": [1, 2, 3, None], "x": ["a", "b", "c", "d"]})
    right = await create_object_from_value({"k": [2, 3, 3, None], "x": ["B", "C", "D", "E"]})
    assert await left.join(right, "k").data() == {"k": [2, 3, 3], "x": ["b", "c", "c"], "x_right": ["B", "C", "D"]}
    assert await left.join(right, "k", "left").data() == {
        "k": [1, 2, 3, 3, None], "x": ["a", "b", "c", "c", "d"], "x_right": [None, "B", "C", "D", None],
    }  # fmt: skip
    assert await left.join(right, "k", "right").data() == {
        "k": [2, 3, 3, None], "x": ["b", "c", "c", None], "x_right": ["B", "C", "D", "E"],
    }  # fmt: skip
    assert await left.join(right, "k", "full").count() == 6
    assert await left.join(right, "k", "semi").data() == {"k": [2, 3], "x": ["b", "c"]}
    assert await left.join(right, "k", "anti").data() == {"k": [1, None], "x": ["a", "d"]}
    assert await left.join(right, how="cross").count() == 16
    renamed = left.join(right, left_on="k", right_on="k", suffix="_r").sort("x_r", descending=True)
    assert await renamed["x_r"].data() == ["D", "C", "B"]
    with pytest.raises(DataTypeError, match="cannot be compared"):
        left.join(right, left_on="k", right_on="x")
    assert await left.join(right, "k").join(left, "k", suffix="_again").select("x", "x_again").count() == 3


async def test_asof_join():
    trades = await create_object_from_value({"s": ["a", "a", "b"], "t": [3, 7, 5]})
    quotes = await create_object_from_value({"s": ["a", "a", "b"], "t": [1, 6, 9], "price": [10.0, 11.0, 12.0]})
    assert (await trades.join_asof(quotes, "t", by="s").data())["price"] == [10.0, 11.0, None]
    assert (await trades.join_asof(quotes, "t", by="s", strategy="forward").data())["price"] == [11.0, None, 12.0]
    assert (await trades.join_asof(quotes, "t").data())["price"] == [10.0, 11.0, 10.0]


async def test_concat_explode_and_insert():
    a = await create_object_from_value([1, 2])
    b = await create_object_from_value([2.5, None])
    assert await a.concat(b, a).data() == [1.0, 2.0, 2.5, None, 1.0, 2.0]
    f = await create_object_from_value({"k": ["x", "y", "z"], "v": [[1, 2], [], [3]]})
    assert await f.explode("v").data() == {"k": ["x", "x", "z"], "v": [1, 2, 3]}
    assert await f.explode("v", keep_empty=True).data() == {"k": ["x", "x", "y", "z"], "v": [1, 2, None, 3]}
    assert await insert(a, [7, 8]) == 4
    assert await insert(a, a.filter(a > 7)) == 5
    assert await a.data() == [1, 2, 7, 8, 8]
    assert await a[3:].data() == [8, 8]
    with pytest.raises(ConversionError):
        await insert(a, ["text"])
    assert await a.count() == 5


async def test_conditionals():
    f = await create_object_from_value({"x": [1, None, 3], "y": [9, 8, 7]})
    assert await f.select(r=(col("x") > 1).if_else("big", "small")).data() == {"r": ["small", "small", "big"]}
    banded = case((col("x") > 2, "c"), (col("x") > 0, "a"), otherwise=None)
    assert await f.select(r=banded).data() == {"r": ["a", None, "c"]}
    assert await f.select(r=coalesce(col("x"), col("y"), 0)).data() == {"r": [1, 8, 3]}
    assert await f.select(r=col("x").isin([1, 3])).data() == {"r": [True, None, True]}
    assert await f.select(r=col("x").isin([])).data() == {"r": [False, None, False]}
    assert await f.select(r=col("x").between(1, 2)).data() == {"r": [True, None, False]}
    assert await f.select(r=col("y").clip(8, 8)).data() == {"r": [8, 8, 8]}
    assert await f.select(a=col("x").is_null(), b=~(col("x") > 1)).data() == {
        "a": [False, True, False],
        "b": [True, None, False],
    }


async def test_long_lists_and_texts_are_bound_in_pieces():
    a = await create_object_from_value([3, 1, 200_001])
    assert await a.isin(range(200_000)).data() == [True, True, False]
    text = "ab'\\é\n" * 50_000
    s = await create_object_from_value([text, "x"])
    assert await (s == text).data() == [True, False]
    assert await s.isin(["x", *(str(i) * 20 for i in range(10_000))]).data() == [False, True]
    x = await create_object_from_value([1.5, 2.0, None])
    assert await x.isin([1, 2]).data() == [False, True, None]
    assert await a.isin([1.0, 1.5]).data() == [False, True, False]


async def test_export_to_arrow_pandas_polars_and_numpy():
    f = await create_object_from_value({"x": [1, 2, None], "s": ["a", "b", None]})
    assert (await f.to_arrow()).to_pydict() == {"x": [1, 2, None], "s": ["a", "b", None]}
    assert (await f.to_polars()).to_dict(as_series=False) == {"x": [1, 2, None], "s": ["a", "b", None]}
    assert list((await f.to_pandas()).columns) == ["x", "s"]
    assert (await f["x"].fill_null(0).to_numpy()).tolist() == [1, 2, 0]
    assert await f.rows() == [{"x": 1, "s": "a"}, {"x": 2, "s": "b"}, {"x": None, "s": None}]
    assert [batch.num_rows async for batch in f.iter_batches()] == [3]
    assert (await f.filter(col("x") > 9).to_pandas()).columns.tolist() == ["x", "s"]
    assert "<td>NULL</td>" in await f.html()
    assert "Int64" in f._repr_html_()
    assert (await f.rich(2)).row_count == 2


async def test_create_from_frames():
    import numpy as np
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    for value in (
        pl.DataFrame({"x": [1, 2], "s": ["a", None]}),
        pd.DataFrame({"x": [1, 2], "s": ["a", None]}),
        pa.table({"x": [1, 2], "s": ["a", None]}),
        [{"x": 1, "s": "a"}, {"x": 2, "s": None}],
    ):
        assert await (await create_object_from_value(value)).data() == {"x": [1, 2], "s": ["a", None]}
    assert await (await create_object_from_value(np.array([1.5, 2.5]))).data() == [1.5, 2.5]
    assert await (await create_object_from_value(pl.Series([1, None]))).data() == [1, None]
    assert await (await create_object_from_value(np.float64(1.5))).data() == 1.5
    twice = pa.table([pa.array([1]), pa.array([2])], names=["x", "x"])
    for value in (twice, pd.DataFrame([[1, 2]], columns=["x", "x"])):
        with pytest.raises(ColumnNameError, match="Two columns"):
            await create_object_from_value(value)
    mixed = pl.DataFrame(
        {
            "c": pl.Series(["a", None], dtype=pl.Categorical),
            "l": [[1], [2, None]],
            "st": [{"a": 1, "b": "x"}, {"a": 2, "b": None}],
            "de": [Decimal("1.5"), None],
            "bin": [b"\xff", None],
            "at": [datetime(2020, 1, 1), None],
        }
    )
    assert await (await create_object_from_value(mixed)).data() == mixed.to_dict(as_series=False)


async def test_create_from_batches():
    async def later():
        for start in range(0, 200_000, 1000):
            yield {"x": list(range(start, start + 1000))}

    obj = await create_object_from_value(later())
    assert await obj.count() == 200_000
    assert await obj.slice(199_998).data() == {"x": [199_998, 199_999]}
    assert await obj.select(ok=(col("x") == row_index()).all()).data() == {"ok": [True]}
    assert await (await create_object_from_value(iter([[1], [None, 2]]))).data() == [1, None, 2]
    with pytest.raises(ConversionError, match="Batch 1"):
        await create_object_from_value(iter([{"x": [1]}, {"y": [1]}]))


async def test_named_objects_outlive_their_context(clickhouse_endpoint):
    from aaiclick.data import DataContext

    awkward = "weird `name' \\ 🦆"
    async with DataContext(clickhouse_endpoint):
        await create_object_from_value([1, 2], name=awkward)
        with pytest.raises(ObjectExistsError):
            await create_object_from_value([3], name=awkward)
    async with DataContext(clickhouse_endpoint):
        assert await list_objects() == [awkward]
        assert await (await open_object(awkward)).data() == [1, 2]
        await create_object_from_value([3], name=awkward, replace=True)
        assert await (await open_object(awkward)).data() == [3]
        with pytest.raises(ObjectNotFoundError, match="Did you mean"):
            await open_object(awkward[:-1])
        await delete_object(awkward)
        assert await list_objects() == []
        with pytest.raises(ObjectNotFoundError):
            await delete_object(awkward)


async def test_named_copy_is_independent():
    obj = await create_object_from_value([1, 2])
    copy = await create_object_from_value(obj, name="copy")
    assert await obj.data() == await copy.data() == [1, 2]
    assert obj.table_id != copy.table_id
    assert await (await create_object_from_value(obj * 2, name="copy", replace=True)).data() == [2, 4]
    assert await create_object_from_value(obj) is obj


async def test_concurrent_operations():
    async def work(number):
        obj = await create_object_from_value(list(range(number)))
        return await (obj + 1).sum().data()

    assert await asyncio.gather(*(work(i) for i in range(60))) == [i * (i + 1) // 2 for i in range(60)]


async def test_from_query():
    obj = await create_object_from_query(
        "SELECT number AS n, toString(number) AS s FROM numbers({k:UInt64}) ORDER BY n DESC -- why", {"k": "3"}
    )
    assert await obj.data() == {"n": [2, 1, 0], "s": ["2", "1", "0"]}


EXOTIC = {
    "CAST('a', 'Enum8(\\'a\\' = 1)')": "a",
    "toIPv4('1.2.3.4')": IPv4Address("1.2.3.4"),
    "toDateTime('2020-01-01 00:00:00', 'Europe/Berlin')": datetime(2020, 1, 1, tzinfo=BERLIN),
    "toDateTime('2020-01-01 00:00:00')": datetime(2020, 1, 1),
    "toLowCardinality('x')": "x",
    "toInt128('-170141183460469231731687303715884105728')": -(2**127),
    "toFixedString('ab', 2)": b"ab",
    "map('a', [1, 2])": {"a": [1, 2]},
    "toDate('2020-01-01')": date(2020, 1, 1),
    "CAST((1, 2), 'Tuple(a Int8, `b c` Nullable(Int8))')": {"a": 1, "b c": 2},
    "toFloat32(1.5)": 1.5,
}


@pytest.mark.parametrize(("expression", "value"), EXOTIC.items(), ids=range(len(EXOTIC)))
async def test_types_that_only_clickhouse_has(expression, value):
    obj = await create_object_from_query(f"SELECT {expression} AS x")
    assert await obj["x"].data() == [value]
    assert await (await obj.sort("x"))["x"].data() == [value]


async def test_views_and_their_forms():
    obj = await create_object_from_value(list(range(100)))
    view = View(obj, 10, 5)
    form = {"object_type": "view", "table_id": obj.table_id, "offset": 10, "limit": 5, "where": None}
    assert view.to_dict() == form
    assert await view.data() == [10, 11, 12, 13, 14]
    assert await view.count() == 5
    assert await (await open_reference(form)).data() == [10, 11, 12, 13, 14]
    filtered = View(obj, 1, 2, "value % 10 = 3")
    assert await filtered.data() == [13, 23]
    again = await open_reference(filtered.to_dict())
    assert again.to_dict() == filtered.to_dict()
    assert await again.data() == [13, 23]
    by_expression = obj.view(where=(col("value") % 10 == 3) & (col("value") // 10 > 5))
    assert await by_expression.data() == [63, 73, 83, 93]
    assert await (await open_reference(by_expression.to_dict())).data() == [63, 73, 83, 93]
    assert await view[1:3].data() == [11, 12]
    assert [await chunk.data() for chunk in await View(obj, where="value >= 95").chunks(2)] == [
        [95, 96],
        [97, 98],
        [99],
    ]
    assert [await chunk.count() for chunk in await (obj + 1).chunks(40)] == [40, 40, 20]
    assert await view.sum().data() == 60
    assert await (view + view).data() == [20, 22, 24, 26, 28]
    assert obj.to_dict() == {"object_type": "object", "table_id": obj.table_id}
    assert await (await open_reference(obj.to_dict())).count() == 100
    assert await (await open_reference({"object_type": "view", "table_id": obj.table_id})).count() == 100
    with pytest.raises(ObjectNotFoundError):
        await open_reference({"object_type": "object", "table_id": "t1"})
    with pytest.raises(DataError):
        (obj + 1).to_dict()


async def test_summaries():
    f = await create_object_from_value(
        {"x": [1, 2, 3, None], "y": [2.0, 4.0, 6.0, 0.0], "s": ["a", "b", None, "c"], "l": [[1]] * 4}
    )
    actual = await (await f.describe()).rows()
    by_name = {row["statistic"]: row for row in actual}
    assert by_name["count"] == {"statistic": "count", "x": 3.0, "y": 4.0, "s": "3"}
    assert by_name["null_count"]["x"] == 1.0
    assert by_name["50%"] == {"statistic": "50%", "x": 2.0, "y": 3.0, "s": None}
    assert by_name["max"] == {"statistic": "max", "x": 3.0, "y": 6.0, "s": "c"}
    matrix = await (await f.correlation()).data()
    assert matrix["column"] == ["x", "y"]
    assert matrix["x"] == pytest.approx([1.0, 1.0])


async def test_sampling_is_repeatable():
    numbers = await create_object_from_value(list(range(10_000)))
    some = await numbers.sample(100, seed=1).data()
    assert some == await numbers.sample(100, seed=1).data() == sorted(set(some))
    assert len(some) == 100
    assert some != await numbers.sample(100, seed=2).data()
    assert 800 < await numbers.sample(fraction=0.1).count() < 1200
    assert await numbers.sample(fraction=0).count() == 0
    assert await numbers.sample(fraction=1).count() == 10_000


async def test_errors_suggest_a_remedy():
    f = await create_object_from_value({"price": [1], "name": ["x"]})
    with pytest.raises(ColumnNotFoundError, match="Did you mean 'price'"):
        f["prise"]
    with pytest.raises(ColumnNotFoundError, match="Did you mean 'name'"):
        f.filter(col("nam") == "x")
    with pytest.raises(DataTypeError, match=r"column 'name' is String, .*1 is UInt8"):
        f["name"] + 1
    with pytest.raises(DataTypeError, match=r"truth value.*\n.*is not None"):
        bool(f["price"] > 1)
    with pytest.raises(DataTypeError, match="Nullable"):
        await create_object_from_value([1, None], schema={"value": "Nullabel(Int64)"})


async def test_expression_used_twice_is_computed_once(data):
    f = await create_object_from_value({"k": [1, 1, 2], "v": [1, 2, 3]})
    grouped = f.group_by("k").agg(col("v").sum())
    assert await grouped.data() == await grouped.data()
    assert grouped.table_id.startswith("t")
    assert await grouped.concat(grouped).count() == 4
