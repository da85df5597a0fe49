"""Operations of Objects return what polars returns: for tables, Views, lazy Objects and Objects without rows."""

# ruff: noqa: DTZ001  (datetimes without a time zone are tested too)

from __future__ import annotations

import asyncio
import math
from datetime import date, datetime, timedelta

import polars as pl
import pytest

from aaiclick.data import (
    case,
    col,
    create_object_from_query,
    create_object_from_value,
    exclude,
    length,
    of_type,
    row_index,
)
from aaiclick.data.errors import (
    ColumnNotFoundError,
    DataError,
    DataTypeError,
    LengthError,
    NotAwaitedError,
    QueryError,
)
from tests.integration.data.operation_cases import CASES, FRAME, C

pytestmark = pytest.mark.usefixtures("data")


def normalised(value):
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else round(value, 9) + 0.0
    if isinstance(value, list):
        return [normalised(item) for item in value]
    return {name: normalised(item) for name, item in value.items()} if isinstance(value, dict) else value


VARIANTS = {
    "table": (lambda o: o, lambda f: f),
    "view": (lambda o: o[1:6], lambda f: f.slice(1, 5)),
    "lazy": (
        lambda o: o.filter(col("v").is_null() | (col("v") < 9)).sort("s"),
        lambda f: f.filter(C("v").is_null() | (C("v") < 9)).sort("s", nulls_last=True, maintain_order=True),
    ),
    "joined": (
        lambda o: o.join(o.select("s", w=col("v")), "s", how="semi"),
        lambda f: f.join(f.select("s"), on="s", how="semi"),
    ),
    "one row": (lambda o: o.tail(1), lambda f: f.tail(1)),
    "empty": (lambda o: o[0:0], lambda f: f.head(0)),
}


@pytest.mark.filterwarnings("ignore:.*cut.*:DeprecationWarning")  # of polars
@pytest.mark.parametrize("variant", VARIANTS)
async def test_operations_equal_polars(variant):
    choose, choose_frame = VARIANTS[variant]
    obj, frame = choose(await create_object_from_value(FRAME)), choose_frame(FRAME)
    problems = []
    for name, (operation, reference) in CASES.items():
        if variant == "empty" and name == "group_by_time":
            continue  # polars cannot upsample no rows
        expected = normalised(reference(frame).to_dict(as_series=False))
        try:
            actual = normalised(await operation(obj).data())
        except DataError as error:
            actual = str(error)
        if actual != expected:
            problems.append(f"{name}: {actual}\n    is not {expected}")
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("aggregate", ["sum", "first", "len", "mean"])
async def test_pivot_equals_polars(aggregate):
    frame = FRAME.filter(C("s") != "")
    obj = await create_object_from_value(frame)
    expected = frame.pivot("s", index="k", values="v", aggregate_function=aggregate).sort("k", nulls_last=True)
    if aggregate in ("sum", "len"):
        expected = expected.with_columns(pl.exclude("k").fill_null(0).cast(pl.Int64))
    pivoted = await obj.pivot("s", index="k", values="v", aggregate=aggregate)
    assert await pivoted.data() == expected.to_dict(as_series=False)


async def test_pivot_names_columns_by_a_dict():
    obj = await create_object_from_value(FRAME)
    with pytest.raises(DataTypeError, match="columns="):
        await obj.pivot("s", index="k", values="v")
    pivoted = await obj.pivot("s", index="k", values="v", columns={"": "none", None: "null", "b": "b"}, aggregate="max")
    assert await pivoted.data() == {"k": [1, 2, 3, None], "none": [None, None, 0, None], "null": [3, None, None, None],
                                    "b": [9, None, None, None]}  # fmt: skip


async def test_nearest_rows_equal_polars():
    left = pl.DataFrame({"g": ["a", "a", "b", "b", None], "t": [10, 20, 30, None, 5], "u": [1, 2, 3, 4, 5]})
    right = pl.DataFrame({"g": ["a", "b", "a", "b", "a"], "t": [8, 25, 22, 40, 15], "w": [1.0, 2.0, None, 4.0, 5.0]})
    obj, other = await create_object_from_value(left), await create_object_from_value(right)
    rows = left.with_row_index("i").drop_nulls("t").sort("t")
    for strategy in ("backward", "forward", "nearest"):
        for tolerance in (None, 2, 5, 100):
            for by in (None, "g"):
                names = ["g", "t", "w"] if by else ["t", "w"]
                joined = rows.join_asof(
                    right.select(*names, rt="t").sort("t"), on="t", by=by, strategy=strategy, tolerance=tolerance,
                    check_sortedness=False,
                )  # fmt: skip
                expected = left.with_row_index("i").join(joined.select("i", "w", "rt"), on="i", how="left").drop("i")
                candidates = other.select(*names, rt=col("t"))
                actual = obj.join_asof(candidates, "t", by, strategy=strategy, tolerance=tolerance)
                assert await actual.select(*expected.columns).data() == expected.to_dict(as_series=False)


async def test_nearest_moments_within_a_timedelta():
    obj = await create_object_from_value({"t": [datetime(2024, 1, 1, 12), datetime(2024, 1, 2)]})
    other = await create_object_from_value({"t": [datetime(2024, 1, 1, 11, 30)], "x": [1]})
    joined = obj.join_asof(other, "t", strategy="nearest", tolerance=timedelta(hours=1))
    assert (await joined.data())["x"] == [1, None]


MOMENTS = [
    datetime(2024, 3, 31, 1, 30), datetime(2024, 3, 31, 3, 59, 59, 999999), datetime(1969, 12, 31, 23, 59, 59, 5),
    datetime(2024, 10, 27, 0, 30), datetime(1905, 5, 5, 5, 5, 5), None, datetime(2100, 2, 28, 12),
]  # fmt: skip
INTERVALS = ("7us", "100ms", "1m", "45m", "1h", "7h", "1d", "3d", "1w", "2w", "1mo", "2mo", "5mo", "1q", "1y", "3y")


async def test_intervals_start_as_in_polars():
    frame = pl.DataFrame({"t": MOMENTS, "d": [None if t is None else t.date() for t in MOMENTS]})
    obj = await create_object_from_value(frame)
    for every in INTERVALS:
        names = ["t"] if every[-1] in "hms" else ["t", "d"]
        actual = await obj.select([col(name).dt.truncate(every) for name in names]).data()
        assert actual == frame.select(C(*names).dt.truncate(every)).to_dict(as_series=False), every
    with pytest.raises(DataTypeError, match="parts of a day"):
        obj.select(col("d").dt.truncate("1h"))
    with pytest.raises(QueryError, match="1900"):
        await (await create_object_from_value([date(1900, 1, 1)])).dt.truncate("5d").data()


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Asia/Kolkata", "America/New_York"])
@pytest.mark.parametrize("start", [datetime(2024, 3, 30, 12), datetime(2024, 10, 26, 12)], ids=["spring", "autumn"])
async def test_local_intervals_start_as_in_polars(zone, start):
    moments = pl.datetime_range(start, start + timedelta(days=2), "37m", eager=True, time_zone="UTC")
    frame = pl.DataFrame({"t": moments.dt.convert_time_zone(zone)})
    obj = await create_object_from_value(frame)
    for every in ("10m", "1h", "2h", "6h", "12h", "1d", "1w", "1mo"):
        if every == "2h" and start.month == 10:
            continue  # polars splits an interval that starts at a time which occurs twice
        actual = obj.select(a=col("t").dt.truncate(every).dt.epoch("us"))
        assert (await actual.data())["a"] == frame["t"].dt.truncate(every).dt.epoch("us").to_list(), every
    for every in ("1h", "6h", "1d"):
        counted = obj.filter(row_index() % 5 == 0).group_by_time("t", every).agg(n=length())
        expected = frame.with_row_index("i").filter(C("i") % 5 == 0).group_by(C("t").dt.truncate(every)).agg(n=pl.len())
        filled = await counted.to_polars()
        assert filled.filter(C("n") > 0).sort("t").rows() == expected.sort("t").rows()
        assert filled["t"].is_sorted()
        assert filled["t"].n_unique() == filled.height


SALES = {
    "t": [datetime(2024, 1, 5), datetime(2024, 4, 9), datetime(2024, 2, 2), None, datetime(2024, 2, 3)],
    "k": ["a", "a", "b", "b", "c"],
    "v": [1, 2, 3, 4, 5],
}


async def test_time_groups_fill_the_gaps_of_each_key():
    obj = await create_object_from_value(SALES)
    monthly = obj.group_by_time("t", "1mo", "k").agg(s=col("v").sum(), m=col("v").min(), l=col("v").collect())
    assert await monthly.data() == {
        "k": ["a", "a", "a", "a", "b", "c"],
        "t": [datetime(2024, month, 1) for month in (1, 2, 3, 4, 2, 2)],
        "s": [1, 0, 0, 2, 3, 5],
        "m": [1, None, None, 2, 3, 5],
        "l": [[1], [], [], [2], [3], [5]],
    }
    assert str(monthly.schema["s"]) == "Int64"


async def test_time_groups_between_bounds_and_without_fill():
    obj = await create_object_from_value(SALES)
    bounded = obj.group_by_time("t", "1mo", start=date(2023, 12, 1), end=datetime(2024, 3, 15))
    assert await bounded.agg(s=col("v").sum() + 1).data() == {
        "t": [datetime(2023, 12, 1), *(datetime(2024, month, 1) for month in (1, 2, 3))],
        "s": [1, 2, 9, 1],
    }
    sparse = obj.group_by_time("t", "1mo", fill=False)
    assert (await sparse.sum().data())["v"] == [1, 8, 2]
    assert await obj.filter(col("v") > 9).group_by_time("t", "1d").len().data() == {"t": [], "count": []}
    with pytest.raises(DataTypeError, match="not a date"):
        obj.group_by_time("v", "1h")


async def test_time_groups_have_no_having():
    obj = await create_object_from_value(SALES)
    with pytest.raises(DataTypeError, match="Filter the result"):
        obj.group_by_time("t", "1mo").having(length() > 1)


async def test_vector_distances():
    obj = await create_object_from_value({"a": [[1, 0], [3, 4], [0, None]], "b": [[0.0, 1.0], [3.0, 4.0], [1.0, 1.0]]})
    a, b = col("a").list, col("b")
    distances = obj.select(c=a.cosine_distance(b), l=a.l2_distance([0, 0]), d=a.dot(b))
    assert await distances.data() == {"c": [1.0, 0.0, None], "l": [1.0, 5.0, None], "d": [0.0, 25.0, None]}
    with pytest.raises(QueryError, match="different lengths"):
        await obj.select(a.dot([1])).data()


async def test_json_is_decoded_to_a_type():
    obj = await create_object_from_value({"j": ['{"a": [1, 2]}', "[1, 2]", "x", None]})
    decoded = obj.select(x=col("j").json.decode("Array(Int64)"), y=col("j").json.decode("Tuple(a Array(Int64))"))
    assert await decoded.data() == {"x": [None, [1, 2], None, None], "y": [{"a": [1, 2]}, {"a": []}, None, None]}
    inner = await create_object_from_value({"j": ['{"n": 5}', "{}", '{"n": "x"}', '[1, "x", null]']})
    assert await inner.select(x=col("j").json.decode("Tuple(n Int64)")).data() == {
        "x": [{"n": 5}, {"n": None}, {"n": None}, {"n": 1}]
    }
    assert await inner.tail(1).select(x=col("j").json.decode("Array(Int64)")).data() == {"x": [[1, None, None]]}


async def test_sketches_are_close_to_the_exact_values():
    obj = await create_object_from_query("SELECT number % 50000 AS k, toFloat64(number) AS x FROM numbers(200000)")
    result = await obj.select(n=col("k").approx_nunique(), q=col("x").approx_quantile(0.25)).rows()
    assert abs(result[0]["n"] - 50_000) < 1_000
    assert abs(result[0]["q"] - 50_000) < 1_000
    empty = (
        await obj[0:0].select(n=col("k").approx_nunique(), q=col("x").approx_quantile(0.25), m=col("k").mode()).data()
    )
    assert empty == {"n": [0], "q": [None], "m": [None]}


async def test_ranges_wider_than_31_bits_need_truncated_times():
    obj = await create_object_from_value(
        {"t": [datetime(2024, 1, 1, 0, 0, 0, 5), datetime(2024, 1, 1, 1)], "v": [1, 2]}
    )
    with pytest.raises(QueryError, match="truncate"):
        await obj.select(col("v").rolling("sum", "2h", by="t")).data()
    by = col("t").dt.truncate("1ms")
    assert (await obj.select(a=col("v").rolling("sum", "2h", by=by)).data())["a"] == [1, 3]
    assert (await obj.select(a=col("v").rolling("sum", 2, by="v")).data())["a"] == [1, 3]


async def test_columns_with_quotes_and_nested_operations():
    name = "a\"`'\\ b"
    obj = await create_object_from_value({name: [3, None, 1, 1], "k": ["x", "x", "y", "y"]})
    assert await obj.select(col(name, "k")).tail(1).data() == {name: [1], "k": ["y"]}
    assert await obj.unpivot(name, index="k").head(1).data() == {"k": ["x"], "variable": [name], "value": [3]}
    assert await obj.group_by("k").head(1).select(col(name).forward_fill()).data() == {name: [3, 1]}
    pivoted = await obj.with_columns(n=row_index()).pivot("k", index="n", values=name)
    assert await pivoted.data() == {"n": [0, 1, 2, 3], "x": [3, None, None, None], "y": [None, None, 1, 1]}
    assert await obj.select(z=col(name).filter(col("k") == "x").count() + 1).data() == {"z": [2]}


MISTAKES = {
    "select number": (lambda o: o.select(5), "5"),
    "select dict": (lambda o: o.select({"a": 1}), "column"),
    "drop number": (lambda o: o.drop(5), "drop"),
    "drop missing": (lambda o: o.drop(["k", "q"]), "'q'"),
    "drop expression": (lambda o: o.drop(col("k") + 1), "names"),
    "sort number": (lambda o: o.sort(5), "5"),
    "sort directions": (lambda o: o.sort(["k"], descending=[True, False]), "1 sort keys"),
    "sort direction": (lambda o: o.sort("k", descending="yes"), "descending"),
    "group_by number": (lambda o: o.group_by(5).len(), "5"),
    "group_by nothing": (lambda o: o.group_by(), "key"),
    "distinct number": (lambda o: o.distinct([5]), "distinct"),
    "head text": (lambda o: o.head("5"), "'5'"),
    "slice float": (lambda o: o[1.5:], "1.5"),
    "step": (lambda o: o[5::-1], "negative step"),
    "rename list": (lambda o: o.rename(["a"]), "dict"),
    "cast list": (lambda o: o.cast_columns(["a"]), "dict"),
    "filter bool": (lambda o: o.filter(True), "True"),
    "filter alone": (lambda o: o.select(col("v").filter(col("b"))), "aggregate"),
    "filter inside": (lambda o: o.select((col("v").filter(col("b")) + 1).sum()), "aggregate"),
    "isin text": (lambda o: o.filter(col("s").isin("abc")), "isin"),
    "isin number": (lambda o: o.filter(col("k").isin(5)), "isin"),
    "isin table": (lambda o: o.filter(col("k").isin(o)), "one column"),
    "isin other type": (lambda o: o.filter(col("k").isin(o["s"])), "compared"),
    "column of Object": (lambda o: o.filter(col("k") > o["v"]), "Object"),
    "join list": (lambda o: o.join([1], "k"), "Object"),
    "join key": (lambda o: o.join(o, on=5), "5"),
    "join how": (lambda o: o.join(o, "k", how=["left"]), "left"),
    "join_where": (lambda o: o.join_where(o), "condition"),
    "join_where number": (lambda o: o.join_where(o, col("k") + 1), "comparison"),
    "concat number": (lambda o: o.concat(5), "Object"),
    "concat how": (lambda o: o.concat(o, how="up"), "how="),
    "union": (lambda o: o.select("k").union(o.select("k", "v")), "differ"),
    "over": (lambda o: o.select(col("v").sum().over(5)), "5"),
    "over nothing": (lambda o: o.select((col("v") + 1).over("k")), "window"),
    "over rows": (lambda o: o.select(col("v").sum().over(rows=2)), "rows of over"),
    "col nothing": (lambda o: o.select(col()), "name"),
    "col number": (lambda o: o.select(col(5)), "5"),
    "two groups of columns": (lambda o: o.select(col("k", "v") + exclude("k", "v")), "different groups"),
    "type": (lambda o: o.select(of_type("Intt64")), "Intt64"),
    "named group": (lambda o: o.select(z=col("k", "v")), "z="),
    "rolling": (lambda o: o.select(col("v").rolling("sum", "2h")), "by="),
    "rolling width": (lambda o: o.select(col("v").rolling("sum", "2 parsecs", by="t")), "parsecs"),
    "rolling months": (lambda o: o.select(col("v").rolling("sum", "1mo", by="t")), "months"),
    "cut": (lambda o: o.select(col("v").cut([2, 1])), "increasing"),
    "cut labels": (lambda o: o.select(col("v").cut([1], labels=["a"])), "labels"),
    "ntile": (lambda o: o.select(col("v").ntile(0)), "at least one"),
    "replace": (lambda o: o.select(col("v").replace([1])), "dict"),
    "replace type": (lambda o: o.select(col("v").replace({"a": 1})), "compared"),
    "list.map": (lambda o: o.select(col("l").list.map(5)), "function"),
    "list.map aggregate": (lambda o: o.select(col("l").list.map(lambda e: e.sum())), "alone"),
    "list.filter": (lambda o: o.select(col("l").list.filter(lambda e: e + 1)), "boolean"),
    "unnest": (lambda o: o.unnest("k"), "struct"),
    "unpivot types": (lambda o: o.unpivot(["k", "s"]), "String"),
    "unpivot nothing": (lambda o: o.select("k").unpivot(index="k"), "at least one"),
    "interpolate text": (lambda o: o.select(col("s").interpolate()), "number"),
    "truncate": (lambda o: o.select(col("t").dt.truncate("0h")), "longer than 0"),
    "limit": (lambda o: o.group_by("k").head(-1), "negative"),
}


@pytest.mark.parametrize("name", MISTAKES)
async def test_mistakes_are_explained(name):
    operation, text = MISTAKES[name]
    obj = await create_object_from_value(FRAME)
    with pytest.raises(DataError) as caught:
        operation(obj)
    assert text in str(caught.value)


async def test_unknown_columns_in_selectors_are_named():
    obj = await create_object_from_value(FRAME)
    for selector in (col("k", "kk"), exclude("kk")):
        with pytest.raises(ColumnNotFoundError, match="'kk'"):
            obj.select(selector)


async def test_rows_of_two_objects_are_paired_by_position():
    """A PASTE JOIN pairs rows as they come, so that unsorted parts or threads would mix them up."""
    size = 300_000
    left = await create_object_from_query(f"SELECT toInt64(number * 7 % 1000003) AS x FROM numbers({size})")
    right = await create_object_from_query(f"SELECT toInt64(number) AS y FROM numbers({size // 2})")
    for start in range(size // 2, size, size // 8):
        rows = f"SELECT toInt64(number) AS y FROM numbers({start}, {min(size // 8, size - start)})"
        await right.insert(await create_object_from_query(rows))
    total = left["x"] - right["y"] * 3
    assert "PASTE JOIN" in total.sql()
    expected = [n * 7 % 1_000_003 - n * 3 for n in range(size)]
    assert await total.data() == expected
    assert await (await total).data() == expected
    assert await (left[10:]["x"] + right[: size - 10]["y"]).data() == [
        (n + 10) * 7 % 1_000_003 + n for n in range(size - 10)
    ]
    odd = right.filter(col("y") % 2 == 1)
    assert await (odd["y"] + left[: size // 2]["x"]).data() == [2 * n + 1 + n * 7 % 1_000_003 for n in range(size // 2)]


async def test_objects_of_different_lengths_are_not_truncated():
    obj = await create_object_from_value({"x": list(range(1000))})
    for size in (0, 1, 999, 1001):
        other = await create_object_from_query(f"SELECT number AS y FROM numbers({size})")
        with pytest.raises(LengthError, match="1,000"):
            await (obj["x"] + other["y"]).data()


async def test_a_forgotten_await_is_explained():
    pending = create_object_from_value([1, 2])
    assert "not awaited" in repr(pending)
    with pytest.raises(NotAwaitedError, match="await create_object_from_value"):
        pending.filter("value > 1")
    obj = await create_object_from_value([1, 2])
    with pytest.raises(NotAwaitedError, match="data"):
        obj.data()[0]
    with pytest.raises(NotAwaitedError, match="count"):
        _ = obj.count() + 1
    assert await asyncio.gather(asyncio.create_task(obj.data()), obj.count()) == [[1, 2], 2]


async def test_conditions_with_scalar_objects():
    obj = await create_object_from_value(FRAME)
    label = case((col("v") > obj["v"].mean(), "high"), otherwise="low")
    assert (await obj.select(a=label).data())["a"] == ["high", "low", "low", "low", "low", "high", "low"]


REPEATED = {
    "difference": lambda o: o.select("k", "v").difference(o.select("k", "v").head(2)),
    "intersect": lambda o: o.select("k", "v").intersect(o.select("k", "v").head(2)),
    "join_asof": lambda o: o.select("k", "v").join_asof(o.select("v", "s"), "v", strategy="nearest", tolerance=2),
    "group_by_time": lambda o: o.group_by_time("t", "2h").agg(v=col("v").sum()),
    "join": lambda o: o.select("k", "v").join(o.select("v", "s"), left_on=col("k") + 2, right_on="v"),
    "sample": lambda o: o.select("k", "v").sample(3),
    "pasted": lambda o: o.select("v").with_columns(w=o.filter(col("k").is_null() | (col("k") > 0))["k"]),
    "top": lambda o: o.sort("v").group_by("k").head(1).select("k", "v"),
    "tail": lambda o: o.sort("v").tail(3).select("k", "v"),
}


@pytest.mark.parametrize("name", REPEATED)
async def test_results_can_be_used_twice_in_one_query(name):
    obj = REPEATED[name](await create_object_from_value(FRAME))
    rows = await obj.rows()
    assert await obj.concat(obj).rows() == rows * 2
    assert await obj.select(n=length()).data() == {"n": [len(rows)]}
    assert await (await obj).rows() == rows


async def test_distinct_keeps_lists_and_structs_of_first_rows(data):
    rows = {"k": [1, 1, 2], "x": [[1, 2], [3], []], "y": [{"a": 1}, {"a": 2}, {"a": 3}], "z": [None, ["a"], ["b"]]}
    result = await (await create_object_from_value(rows)).distinct("k").data()
    assert result == {"k": [1, 2], "x": [[1, 2], []], "y": [{"a": 1}, {"a": 3}], "z": [None, ["b"]]}


async def test_time_groups_of_a_null_key_keep_their_rows(data):
    hours = [datetime(2024, 1, 1, hour) for hour in (0, 2, 0)]
    obj = await create_object_from_value(
        {"t": hours, "k": [None, None, "a"], "f": [math.nan, -0.0, 0.0], "v": [1, 2, 3]}
    )
    groups = obj.group_by_time("t", "1h", "k").agg(n=length(), v=col("v").sum())
    assert await groups.data() == {
        "k": ["a", None, None, None],
        "t": [datetime(2024, 1, 1), datetime(2024, 1, 1), datetime(2024, 1, 1, 1), datetime(2024, 1, 1, 2)],
        "n": [1, 1, 0, 1],
        "v": [3, 1, 0, 2],
    }
    floats = obj.group_by_time("t", "1h", "f").agg(n=length())
    assert (await floats.data())["n"] == [1, 0, 1, 1]
