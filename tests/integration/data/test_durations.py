"""Durations are exact, or an error; dates and datetimes outside of 1900 to 2299 are errors."""

# ruff: noqa: DTZ001  (datetimes without a time zone are tested too)

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import polars as pl
import pytest

from aaiclick.data import col, create_object_from_file, create_object_from_value, duration, open_object
from aaiclick.data.errors import ConversionError, DataError, DataTypeError, QueryError

pytestmark = pytest.mark.usefixtures("data")
SPANS = [timedelta(hours=1), timedelta(days=-3, microseconds=5), None, timedelta(0), timedelta(days=106_000_000)]


async def test_durations_round_trip_through_every_reader():
    frame = pl.DataFrame({"d": SPANS, "n": range(5)})
    obj = await create_object_from_value(frame)
    assert str(obj.schema["d"]) == "Nullable(Duration)"
    assert (await obj.to_polars()).equals(frame)
    assert await obj["d"].data() == SPANS
    assert (await obj.to_pandas())["d"].dtype == "timedelta64[us]"
    stored = await create_object_from_value(obj, name="spans")
    assert await (await open_object("spans"))["d"].data() == SPANS
    assert str(stored.schema["d"]) == "Nullable(Duration)"


async def test_durations_in_lists_and_structs_round_trip():
    values = {"l": [[timedelta(1), None], [], None], "s": [{"a": timedelta(1)}, {"a": None}, {"a": timedelta(2)}]}
    obj = await (await create_object_from_value(values)).sort("s")
    assert await obj.sort("l").data() == {k: [v[i] for i in (1, 0, 2)] for k, v in values.items()}


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
async def test_durations_in_files_round_trip(suffix, tmp_path):
    obj = await create_object_from_value({"d": SPANS})
    path = await obj.export(tmp_path / f"spans.{suffix}")
    assert await (await create_object_from_file(path))["d"].data() == SPANS


@pytest.mark.parametrize("suffix", ["csv", "tsv", "json", "jsonl", "orc", "avro"])
async def test_formats_without_durations_refuse_the_column(suffix, tmp_path):
    obj = await create_object_from_value({"gap": SPANS})
    with pytest.raises(DataError, match="'gap'"):
        await obj.export(tmp_path / f"spans.{suffix}")


async def test_nanoseconds_and_too_long_durations_are_refused():
    with pytest.raises(ConversionError, match="'value'"):
        await create_object_from_value(pl.Series([1], dtype=pl.Duration("ns")))
    with pytest.raises(ConversionError, match="64-bit"):
        await create_object_from_value([timedelta.max])
    obj = await create_object_from_value(pl.DataFrame({"t": pl.Series([1, 1_000], dtype=pl.Datetime("ns"))}))
    with pytest.raises(QueryError, match="nanoseconds"):
        await obj.select(gap=col("t") - col("t").min()).data()


async def test_aggregates_of_durations():
    frame = pl.DataFrame({"k": [1, 1, 2, 2, 2], "d": [timedelta(1), timedelta(2), None, timedelta(5), timedelta(0)]})
    obj = await create_object_from_value(frame)
    values = {name: getattr(col("d"), name)() for name in ("sum", "min", "max", "mean", "median", "count", "first")}
    expected = {name: getattr(pl.col("d"), name)() for name in values}
    assert (await obj.group_by("k").agg(**values).to_polars()).equals(
        frame.group_by("k").agg(**expected).sort("k").with_columns(pl.col("count").cast(pl.Int64))
    )
    assert await obj.filter(col("k") > 2).select(col("d").sum(), m=col("d").mean()).data() == {
        "d": [timedelta(0)],
        "m": [None],
    }
    assert await obj["d"].cum_sum().data() == [timedelta(n) for n in (1, 3, 3, 8, 8)]
    assert await obj.group_by("k").mean().data() == {"k": [1, 2], "d": [timedelta(1.5), timedelta(2.5)]}


async def test_a_mean_is_rounded_to_the_nearest_even_microsecond():
    for values in ([1, 2], [2, 3], [-1, -2], [1, 1, 2], [-5]):
        obj = await create_object_from_value([timedelta(microseconds=v) for v in values])
        total = sum((timedelta(microseconds=v) for v in values), timedelta())
        assert await obj.mean().data() == total / len(values)


async def test_sums_that_do_not_fit_are_errors():
    obj = await create_object_from_value([timedelta(days=100_000_000)] * 2)
    for expression in (obj.sum(), obj + obj, obj * 2, obj * 2.0, -obj - obj):
        with pytest.raises(QueryError, match="does not fit"):
            await expression.data()


async def test_a_difference_of_aware_datetimes_is_elapsed_time():
    berlin = pl.Series([datetime(2024, 3, 31), datetime(2024, 4, 1)]).dt.replace_time_zone("Europe/Berlin")
    obj = await create_object_from_value(pl.DataFrame({"t": berlin}))
    assert await obj["t"].diff().data() == [None, timedelta(hours=23)]
    assert await (datetime(2024, 3, 31, tzinfo=UTC) - obj["t"]).data() == [timedelta(hours=1), timedelta(hours=-22)]
    with pytest.raises(DataTypeError, match="time zone"):
        obj.select(col("t") - datetime(2024, 1, 1))


async def test_parts_make_a_duration():
    obj = await create_object_from_value({"d": [1, None, -2]})
    spans = obj.select(x=duration(days=col("d"), hours=2, microseconds=1))
    assert (await spans.data())["x"] == [timedelta(1, 7200, 1), None, timedelta(-2, 7200, 1)]
    with pytest.raises(DataTypeError, match="month"):
        duration(months=1)
    with pytest.raises(DataTypeError, match="integers"):
        obj.select(duration(days=1.5))


EDGES = {
    "t": [datetime(1900, 1, 1), datetime(2299, 12, 31, 23, 59, 59, 999999)],
    "d": [date(1900, 1, 1), date(2299, 12, 31)],
}
BEFORE = {
    "timedelta": (lambda x: x - timedelta(days=1), lambda x: x + timedelta(days=1)),
    "days": (lambda x: x.dt.add(days=-1), lambda x: x.dt.add(days=1)),
    "weeks": (lambda x: x.dt.add(weeks=-1), lambda x: x.dt.add(weeks=1)),
    "months": (lambda x: x.dt.add(months=-1), lambda x: x.dt.add(months=1)),
    "quarters": (lambda x: x.dt.add(quarters=-1), lambda x: x.dt.add(quarters=1)),
    "years": (lambda x: x.dt.add(years=-1), lambda x: x.dt.add(years=1)),
    "many": (lambda x: x.dt.add(days=-(2**63)), lambda x: x.dt.add(years=2**63 - 1)),
    "duration": (lambda x: x - duration(hours=1), lambda x: x + duration(days=1)),
    "hours": (lambda x: x.dt.add(hours=-1), lambda x: x.dt.add(hours=24)),
    "microseconds": (lambda x: x.dt.add(microseconds=-1), lambda x: x.dt.add(hours=2**62)),
}


@pytest.mark.parametrize("name", BEFORE)
@pytest.mark.parametrize("column", ["t", "d"])
async def test_dates_outside_of_1900_to_2299_are_errors(name, column):
    obj = await create_object_from_value(EDGES)
    for row, move in enumerate(BEFORE[name]):
        one = obj[row : row + 1].select(x=move(col(column)))
        with pytest.raises(QueryError, match="1900 to 2299"):
            await one.data()
        inward = obj[1 - row : 2 - row].select(x=move(col(column)))
        if name != "many" and (name, row) != ("microseconds", 1):
            assert (await inward.data())["x"][0] is not None


async def test_whole_range_of_dates_is_reachable():
    days = (date(2299, 12, 31) - date(1900, 1, 1)).days
    obj = await create_object_from_value({"d": [date(1900, 1, 1)], "t": [datetime(1900, 1, 1)], "n": [days]})
    moved = {
        "a": col("d").dt.add(days=col("n")),
        "b": col("d") + timedelta(days=days),
        "c": col("t") + timedelta(days=days),
        "e": col("d").dt.add(months=4799),
        "f": col("t").dt.add(years=399),
    }
    assert await obj.select(**moved).data() == {
        "a": [date(2299, 12, 31)],
        "b": [date(2299, 12, 31)],
        "c": [datetime(2299, 12, 31)],
        "e": [date(2299, 12, 1)],
        "f": [datetime(2299, 1, 1)],
    }


async def test_amounts_must_be_integers():
    obj = await create_object_from_value(EDGES)
    with pytest.raises(DataTypeError, match="integer"):
        obj.select(col("t").dt.add(days=1.5))
