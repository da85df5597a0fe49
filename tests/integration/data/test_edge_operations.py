"""Edge cases of casts, patterns, literals and conditions that once returned another value or ClickHouse's error."""

# ruff: noqa: DTZ001  (datetimes without a time zone are tested too)

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from aaiclick.data import col, create_object_from_value, length, lit
from aaiclick.data.errors import ConversionError, DataTypeError, QueryError


@pytest.mark.parametrize(
    "moment",
    [
        datetime(2290, 1, 1, 1, 1, 1, 123457, tzinfo=UTC),
        datetime(2250, 7, 1, 1, 1, 1, 987653, tzinfo=ZoneInfo("Europe/Berlin")),
        datetime(1949, 10, 2, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=0),
        datetime(1949, 10, 2, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
    ],
    ids=str,
)
async def test_aware_literals_are_the_same_instant(data, moment):
    obj = await create_object_from_value([1])
    (value,) = (await obj.select(x=lit(moment)).data())["x"]
    assert value.astimezone(UTC) == moment.astimezone(UTC)


async def test_replace_regex_inserts_groups_for_plain_patterns_too(data):
    obj = await create_object_from_value({"s": ["abc", "x.y", None]})
    result = obj.select(
        whole=col("s").str.replace_regex("b", r"[\0]"),
        group=col("s").str.replace_regex("(b)", r"<\1>"),
        plain=col("s").str.replace_regex("b", "[0]"),
    )
    assert await result.data() == {
        "whole": ["a[b]c", "x.y", None],
        "group": ["a<b>c", "x.y", None],
        "plain": ["a[0]c", "x.y", None],
    }


@pytest.mark.parametrize("method", ["extract_all", "count_matches"])
def test_patterns_that_match_between_characters_are_refused(method):
    with pytest.raises(DataTypeError, match="matches an empty text"):
        getattr(col("s").str, method)(r"\b")


@pytest.mark.parametrize(
    ("method", "pattern"),
    [("matches", "("), ("matches", "["), ("matches", "(?=a)"), ("extract_all", "("), ("extract_all", "a(?=b)")],
)
async def test_invalid_patterns_are_explained(data, method, pattern):
    obj = await create_object_from_value({"s": ["a"]})
    with pytest.raises(QueryError, match="The regular expression is not valid"):
        await obj.select(getattr(col("s").str, method)(pattern)).data()


async def test_casts_to_decimal_drop_no_digit_unasked(data):
    moments = await create_object_from_value({"t": [datetime(2299, 12, 31, 23, 59, 59, 999999), None]})
    with pytest.raises(QueryError, match="cannot be cast"):
        await moments.select(col("t").cast("Decimal(18, 2)")).data()
    result = moments.select(
        cut=col("t").cast("Decimal(18, 2)", truncate=True),
        tried=col("t").try_cast("Decimal(18, 2)"),
        exact=col("t").cast("Decimal(18, 6)"),
    )
    assert await result.data() == {
        "cut": [Decimal("10413791999.99"), None],
        "tried": [None, None],
        "exact": [Decimal("10413791999.999999"), None],
    }
    days = await create_object_from_value({"d": [date(1970, 1, 2), date(1900, 1, 1)]})
    assert await days.select(col("d").cast("Decimal(18, 2)")).data() == {"d": [Decimal(1), Decimal(-25567)]}
    floats = await create_object_from_value({"f": [123456789.125, 9.223372036854775e18, 0.1]})
    assert (await floats.select(col("f").cast("Decimal(38, 10)")).data())["f"] == [
        Decimal("123456789.125"),
        Decimal(9223372036854775000),
        Decimal("0.1"),
    ]


async def test_casts_from_decimal_to_datetime_drop_no_digit_unasked(data):
    obj = await create_object_from_value({"d": [Decimal("1.0000000001")]})
    assert await obj.select(col("d").try_cast(datetime)).data() == {"d": [None]}
    assert await obj.select(col("d").cast(datetime, truncate=True)).data() == {"d": [datetime(1970, 1, 1, 0, 0, 1)]}


@pytest.mark.parametrize("dtype", [date, datetime])
async def test_booleans_are_not_cast_to_dates(data, dtype):
    obj = await create_object_from_value({"b": [True]})
    for method in ("cast", "try_cast"):
        with pytest.raises(DataTypeError, match="Bool cannot be cast to"):
            obj.select(getattr(col("b"), method)(dtype))


async def test_isin_compares_dates_with_datetimes(data):
    obj = await create_object_from_value(
        {"d": [date(2024, 1, 1), None], "t": [datetime(2024, 1, 1), datetime(2024, 1, 1, 1)]}
    )
    result = obj.select(
        a=col("d").isin([datetime(2024, 1, 1), datetime(1990, 1, 1, 1)]),
        b=col("d").isin([datetime(2024, 1, 1, 1)]),
        c=col("t").isin([date(2024, 1, 1)]),
    )
    assert await result.data() == {"a": [True, None], "b": [False, None], "c": [True, False]}


async def test_numpy_values_are_literals_and_arrays_are_refused(data):
    obj = await create_object_from_value({"x": [1, 2, 3]})
    result = obj.select(a=col("x").isin(np.array([1, 3])), b=np.int32(5) * col("x"))
    assert await result.data() == {"a": [True, False, True], "b": [5, 10, 15]}
    for build in (lambda: col("x") + np.array([1, 2, 3]), lambda: np.array([1, 2, 3]) * col("x")):
        with pytest.raises(ConversionError, match="ndarray cannot be used in an expression"):
            build()


async def test_join_where_follows_the_rules_of_comparisons(data):
    left = await create_object_from_value({"x": [1.0, math.nan, -0.0]})
    right = await create_object_from_value({"y": [math.nan, 1.0, 0.0]})
    expected = {"x": [1.0, 0.0], "y": [1.0, 0.0]}
    assert await left.join_where(right, col("x") == col("y")).data() == expected
    assert await left.join_where(right, col("x") * 1 == col("y")).data() == expected
    assert await left.join(right, how="cross").filter(col("x") == col("y")).data() == expected
    marked = left.join(right, how="cross").with_columns(same=col("x") == col("y")).filter(col("same")).drop("same")
    assert await marked.data() == expected
    assert await (await left.join(right, how="cross").materialize()).filter(col("x") == col("y")).data() == expected


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda o: o.group_by(by="k"), "by='k' is a text that all rows share"),
        (lambda o: o.group_by("k").agg(x="sum"), "x='sum' is a text, not an aggregate"),
        (lambda o: o.select(col("v").sum().sum()), "An aggregate is inside of sum"),
        (lambda o: o.select(col("v").sum().over("k", rows=(-1, 0))), "must lie between 0 and"),
        (lambda o: o.join(o), "A join of type inner needs at least one key"),
        (lambda o: o.join(o, "k", how="cross"), "A cross join takes no keys"),
        (lambda o: o.join_asof(o, "k"), "takes numbers, dates, datetimes or durations"),
    ],
)
async def test_mistakes_are_explained_before_a_query_runs(data, build, message):
    obj = await create_object_from_value({"k": ["a"], "v": [1]})
    with pytest.raises(DataTypeError, match=message):
        build(obj)


async def test_texts_are_keys_and_results_if_they_are_literals(data):
    obj = await create_object_from_value({"k": ["a", "b"]})
    assert await obj.group_by(x=lit("all")).agg(n=length(), y=lit("t")).data() == {"x": ["all"], "n": [2], "y": ["t"]}


async def test_shifts_by_negative_numbers_are_explained(data):
    obj = await create_object_from_value({"x": [1], "n": [-1]})
    with pytest.raises(QueryError, match="A number of bits to shift is negative"):
        await obj.select(col("x") << col("n")).data()


@pytest.mark.parametrize("method", ["contains", "index_of"])
async def test_floats_are_not_looked_up_in_lists_of_decimals(data, method):
    obj = await create_object_from_value({"d": [[Decimal("1.5")]], "f": [[1.5]]})
    for expression in (getattr(col("d").list, method)(1.5), getattr(col("f").list, method)(Decimal("1.5"))):
        with pytest.raises(DataTypeError, match="floats are not looked up among Decimals"):
            obj.select(expression)


async def test_isin_of_a_column_of_another_type_truncates_nothing(data):
    left = await create_object_from_value(
        {
            "i": [1, 2, None],
            "d": [Decimal("1.50"), Decimal("2.00"), None],
            "f": [1.5, -0.0, 2.0**63],
            "t": [datetime(2024, 1, 1, 1), datetime(2024, 1, 2), None],
        }
    )
    right = await create_object_from_value(
        {"i": [1, 0, 2], "b": [True, True, True], "d": [date(2024, 1, 1), date(2024, 1, 2), None]}
    )
    large = await create_object_from_value([2**63, 0])
    result = left.select(
        int_bool=col("i").isin(right["b"]),
        decimal_int=col("d").isin(right["i"]),
        decimal_bool=col("d").isin(right["b"]),
        float_int=col("f").isin(right["i"]),
        float_unsigned=col("f").isin(large),
        datetime_date=col("t").isin(right["d"]),
    )
    assert await result.data() == {
        "int_bool": [True, False, None],
        "decimal_int": [False, True, None],
        "decimal_bool": [False, False, None],
        "float_int": [False, True, False],
        "float_unsigned": [False, True, True],
        "datetime_date": [False, True, None],
    }


async def test_isin_of_a_list_of_another_type_is_exact(data):
    obj = await create_object_from_value(
        {"i": [1, 2, None], "d": [Decimal("1.50"), Decimal("2.00"), None], "f": [1.5, -0.0, 2.0]}
    )
    result = obj.select(
        int_decimal=col("i").isin([Decimal("1.00"), Decimal("2.5")]),
        decimal_int=col("d").isin([2, 2**63 - 1, -(2**63)]),
        decimal_unsigned=col("d").isin([2, 2**64 - 1]),
        decimal_bool=col("d").isin([True]),
        float_int=col("f").isin([0, 2]),
    )
    assert await result.data() == {
        "int_decimal": [True, False, None],
        "decimal_int": [False, True, None],
        "decimal_unsigned": [False, True, None],
        "decimal_bool": [False, False, None],
        "float_int": [False, True, True],
    }


async def test_floats_join_with_unsigned_integers(data):
    left = await create_object_from_value({"k": [2.0**63, -1.0, 1.5, 1.0]})
    right = await create_object_from_value({"k": [2**63, 1]})
    assert await left.join(right, "k").data() == {"k": [2.0**63, 1.0]}
    assert await right.join(left, "k").data() == {"k": [2**63, 1]}


async def test_decimals_become_and_equal_the_nearest_float(data):
    texts = ["123456789.125", "9007199254740993", "0.1", "-123456789.125", "1234567890123456789.0123456789"]
    columns = {"d": [*map(Decimal, texts), None], "f": [*map(float, texts), None]}
    for dtype in ("Nullable(Decimal(38, 10))", "Nullable(Decimal(76, 20))"):
        obj = await create_object_from_value(columns, schema={"d": dtype})
        result = obj.select(cast=col("d").cast(float), same=col("d") == col("f"), less=col("f") < col("d"))
        assert await result.data() == {
            "cast": columns["f"],
            "same": [True] * 5 + [None],
            "less": [False] * 5 + [None],
        }
