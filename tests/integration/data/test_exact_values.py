"""Exact round trips of values through pandas, NumPy and Python."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal

import polars as pl
import pyarrow as pa
import pytest

from aaiclick.data import case, col, create_object_from_file, create_object_from_value, if_else
from aaiclick.data.errors import ConversionError, DataError, DataTypeError, IngestError, QueryError

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


@pytest.mark.parametrize(
    ("dtype", "largest"),
    [
        ("Int128", 2**127 - 1),
        ("UInt128", 2**128 - 1),
        ("Int256", 2**255 - 1),
        ("UInt256", 2**256 - 1),
        ("Decimal(76, 0)", Decimal("9" * 76)),
        ("Decimal(76, 10)", Decimal("9" * 66)),
    ],
)
async def test_sums_of_wide_numbers_are_exact_or_errors(data, dtype, largest):
    texts = await create_object_from_value([str(largest)] * 6)
    wide = texts.cast(dtype).select(x=col("value"))
    for total in (wide["x"].sum(), wide.select(x=col("x").cum_sum())):
        with pytest.raises(QueryError, match=r"does not fit|too many digits"):
            await total.data()
    assert await wide.head(1)["x"].sum().cast(str).data() == str(largest)
    if not dtype.startswith("U"):
        cancelled = wide.head(1).concat(wide.head(1).select(x=-col("x")), wide.head(1))
        assert await cancelled["x"].sum().cast(str).data() == str(largest)
    assert await wide["x"].mean().data() == pytest.approx(float(largest))


async def test_describe_shows_large_integers_exactly(data):
    large = [2**53 + 1, 2**63 - 1, 5]
    obj = await create_object_from_value({"i": large, "small": [1, 2, 3], "d": [Decimal("0.1")] * 3})
    summary = await (await obj.describe()).data()
    rows = dict(zip(summary["statistic"], zip(summary["i"], summary["small"], summary["d"], strict=True), strict=True))
    assert rows["max"] == (str(2**63 - 1), 3.0, 0.1)
    assert rows["min"] == ("5", 1.0, 0.1)
    assert rows["50%"][0] == str(float(2**53 + 1))


SHORT = "1.5\n" * 300_000
LONG = "0.12345678901234567"
"""A fraction of 17 digits that is not what its Float64 shows."""


async def test_csv_fractions_after_the_sample_are_exact_or_errors(data, tmp_path):
    path = tmp_path / "x.csv"
    path.write_text(f"x\n{SHORT}0.30000000000000004\n")
    assert (await (await create_object_from_file(path)).tail(1).data())["x"] == [0.30000000000000004]
    path.write_text(f"x\n{SHORT}{LONG}\n")
    with pytest.raises(IngestError, match=LONG):
        await create_object_from_file(path)


@pytest.mark.parametrize("number", [LONG, str(2**53 + 1), "12345678901234567.5"])
async def test_json_numbers_are_exact_or_errors(data, tmp_path, number):
    path = tmp_path / "x.jsonl"
    lines = ['{"id": 123456789012345678, "f": 1.5, "l": [0.1], "s": {"y": 0.5}}\n'] * 16_500  # more than the sample
    path.write_text("".join(lines))
    obj = await create_object_from_file(path)
    assert (await obj.head(1).rows())[0] == json.loads(lines[0])
    for name, value in (("f", number), ("l", f"[{number}]"), ("s", f'{{"y": {number}}}')):
        fields = {"f": "1.5", "l": "[0.1]", "s": '{"y": 0.5}'} | {name: value}
        last = ", ".join(f'"{key}": {text}' for key, text in fields.items())
        path.write_text("".join([*lines, f'{{"id": 1, {last}}}\n']))
        with pytest.raises(IngestError):
            await create_object_from_file(path)


@pytest.mark.parametrize("suffix", ["csv", "json", "jsonl"])
async def test_decimals_in_text_files(data, tmp_path, suffix):
    """As text, short Decimals are what other programs write for floats: schema= reads them as Decimals."""
    values = [Decimal("1.50"), None, Decimal("-0.10")]
    obj = await create_object_from_value(pa.table({"x": pa.array(values, pa.decimal128(18, 2)), "k": [1, 2, 3]}))
    path = await obj.export(tmp_path / f"x.{suffix}")
    read = await create_object_from_file(path)
    assert str(read.schema["x"].as_required()) == "Float64"
    assert (await read.data())["x"] == [1.5, None, -0.1]
    exact = await create_object_from_file(path, schema={"x": "Nullable(Decimal(18, 2))"})
    assert (await exact.data())["x"] == values


async def test_order_of_a_full_join_after_nulls_first(data):
    left = pl.DataFrame({"k": [2, None, 1, 3], "x": [1, 2, 3, 4]})
    right = pl.DataFrame({"k": [3, None, 9], "y": [10, 20, 30]})
    a, b = await create_object_from_value(left), await create_object_from_value(right)
    joined = a.join(b, "k", "full").sort("k", nulls_first=True)
    expected = left.join(right, on="k", how="full", coalesce=True, maintain_order="left_right")
    assert await joined.rows() == expected.sort("k", nulls_last=False, maintain_order=True).to_dicts()
    sorted_first = a.sort("k", nulls_first=True).join(b, "k", "full")
    ordered = left.sort("k", nulls_last=False, maintain_order=True)
    expected = ordered.join(right, on="k", how="full", coalesce=True, maintain_order="left_right")
    assert await sorted_first.rows() == expected.to_dicts()


async def test_pivot_of_several_values(data):
    frame = pl.DataFrame({"k": [1, 1, 2], "c": ["a", "b", "a"], "v": [1, 2, 3], "w": [4, 5, 6]})
    obj = await create_object_from_value(frame)
    pivoted = await obj.pivot("c", index="k", values=["v", "w"])
    assert await pivoted.data() == frame.pivot("c", index="k", values=["v", "w"]).to_dict(as_series=False)


async def test_bounds_of_time_groups_are_dates_too(data):
    times = pl.datetime_range(pl.datetime(2024, 1, 1, 5), pl.datetime(2024, 1, 1, 6), "1h", eager=True)
    obj = await create_object_from_value(pl.DataFrame({"t": times}))
    grouped = obj.group_by_time("t", "6h", start=date(2024, 1, 1), end=date(2024, 1, 2)).agg(n=col("t").count())
    assert (await grouped.data())["n"] == [1, 1, 0, 0, 0]


async def test_null_lists_in_choices_and_aggregates(data):
    frame = pl.DataFrame({"k": [1, 1, 2, 2], "l": [[1], None, [], [2, None]], "m": [[9], [8], None, None]})
    obj = await create_object_from_value(frame)
    chosen = obj.select(
        a=(col("k") == 1).if_else(col("l"), col("m")),
        b=(col("k") == 1).if_else(col("m"), None),
        c=case((col("k") > 1, col("l")), (col("l").list.len() > 0, [7]), otherwise=None),
        d=if_else(col("k") > 5, [1], col("l")).is_null(),
        e=(col("k") == 2).if_else(None, col("m")).list.len(),
    )
    assert await chosen.data() == {
        "a": [[1], None, None, None],
        "b": [[9], [8], None, None],
        "c": [[7], None, [], [2, None]],
        "d": [False, True, False, False],
        "e": [1, 1, None, None],
    }
    grouped = obj.group_by("k").agg(n=col("l").count(), u=col("m").nunique(), all=col("l").collect())
    assert await grouped.data() == {"k": [1, 2], "n": [1, 2], "u": [2, 0], "all": [[[1], None], [[], [2, None]]]}
    structs = await create_object_from_value({"r": [{"x": 1}, None], "b": [True, None]})
    result = structs.select(x=if_else(col("b"), None, col("r")), y=if_else(col("b"), col("r"), None).struct.field("x"))
    assert await result.data() == {"x": [None, None], "y": [1, None]}


async def test_asof_keys_without_an_exact_common_type_are_refused(data):
    a, b = await create_object_from_value({"k": [1]}), await create_object_from_value({"k": [1.0]})
    for left, right in ((a, b), (b, a)):
        with pytest.raises(DataTypeError, match="join_asof cannot compare"):
            left.join_asof(right, "k")


@pytest.mark.parametrize("how", ["left", "right", "full", "asof", "nearest"])
async def test_lists_of_rows_without_a_match_are_null(data, how):
    a = await create_object_from_value({"k": [1, 2], "l": [[1], []], "r": [{"x": 1}, {"x": 2}]})
    b = await create_object_from_value({"k": [2, 3], "m": [[5], []], "z": [{"y": 1}, {"y": 2}]})
    if how in ("asof", "nearest"):
        joined = a.join_asof(
            b, "k", strategy="backward" if how == "asof" else how, tolerance=None if how == "asof" else 0
        )
        assert await joined.select("m", "z").data() == {"m": [None, [5]], "z": [None, {"y": 1}]}
        return
    joined = a.join(b, "k", how).sort("k")
    rows = {1: ([1], None, {"x": 1}, None), 2: ([], [5], {"x": 2}, {"y": 1}), 3: (None, [], None, {"y": 2})}
    keys = {"left": (1, 2), "right": (2, 3), "full": (1, 2, 3)}[how]
    expected = [dict(zip(("k", "l", "m", "r", "z"), (key, *rows[key]), strict=True)) for key in keys]
    assert await joined.select("k", "l", "m", "r", "z").rows() == expected
    by_expression = a.join(b, col("k") + 0, how).select("l", "m").rows()
    assert sorted(map(repr, await by_expression)) == sorted(repr({"l": r["l"], "m": r["m"]}) for r in expected)
