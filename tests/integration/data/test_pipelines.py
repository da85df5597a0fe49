"""Random pipelines: the fused query returns what polars returns step by step."""

from __future__ import annotations

import polars as pl
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from aaiclick.data import case, col, create_object_from_value, row_index

DTYPES = {"k": pl.Int64, "a": pl.Int64, "b": pl.Int64}
SORT = {"nulls_last": True, "maintain_order": True}


def frame(columns):
    return pl.DataFrame({name: pl.Series(columns[name], dtype=dtype) for name, dtype in DTYPES.items()})


@st.composite
def frames(draw):
    size = draw(st.integers(0, 10))
    small, key = st.none() | st.integers(-20, 20), st.none() | st.integers(0, 3)
    strategies = {"k": key, "a": small, "b": small}
    return {name: draw(st.lists(values, min_size=size, max_size=size)) for name, values in strategies.items()}


STEPS = {
    "filter": lambda o, x: o.filter(col("a") > x),
    "filter_text": lambda o, x: o.filter(f"a <= {x} OR b IS NULL"),
    "mask": lambda o, x: o[o["b"] < x],
    "sort": lambda o, x: o.sort("b"),
    "sort_down": lambda o, x: o.sort("a", descending=True),
    "slice": lambda o, x: o.slice(abs(x) % 4, 5),
    "head": lambda o, x: o.head(abs(x) % 9),
    "add": lambda o, x: o.with_columns(a=col("a") + col("b") * 2 - x),
    "by_object": lambda o, x: o.with_columns(a=o["a"] - o["b"]),
    "running": lambda o, x: o.with_columns(b=col("b").fill_null(0).cum_sum()),
    "shift": lambda o, x: o.with_columns(b=col("b").shift(1)),
    "shift_in_group": lambda o, x: o.with_columns(a=col("a").shift(1).over("k")),
    "from_least": lambda o, x: o.with_columns(a=col("a") - col("a").min()),
    "group_total": lambda o, x: o.with_columns(b=col("b").sum().over("k")),
    "above_mean": lambda o, x: o.filter(col("a") >= col("a").mean()),
    "distinct": lambda o, x: o.distinct("k"),
    "drop_nulls": lambda o, x: o.drop_nulls("a"),
    "position": lambda o, x: o.with_columns(a=row_index().cast("Int64")),
    "group": lambda o, x: o.group_by("k").agg(a=col("a").sum(), b=col("b").max()),
    "first": lambda o, x: o.group_by("k").agg(a=col("a").first(), b=col("b").last()),
    "choose": lambda o, x: o.with_columns(b=case((col("a") > x, col("b")), (col("b") > 0, 1), otherwise=None)),
    "twice": lambda o, x: o.concat(o.filter(col("b") > x)),
    "nested_windows": lambda o, x: o.with_columns(b=col("b").fill_null(0).cum_sum().cum_max() - col("a").max()),
}
THEIRS = {
    "filter": lambda f, x: f.filter(pl.col("a") > x),
    "filter_text": lambda f, x: f.filter((pl.col("a") <= x) | pl.col("b").is_null()),
    "mask": lambda f, x: f.filter(pl.col("b") < x),
    "sort": lambda f, x: f.sort("b", **SORT),
    "sort_down": lambda f, x: f.sort("a", descending=True, **SORT),
    "slice": lambda f, x: f.slice(abs(x) % 4, 5),
    "head": lambda f, x: f.head(abs(x) % 9),
    "add": lambda f, x: f.with_columns(a=pl.col("a") + pl.col("b") * 2 - x),
    "by_object": lambda f, x: f.with_columns(a=pl.col("a") - pl.col("b")),
    "running": lambda f, x: f.with_columns(b=pl.col("b").fill_null(0).cum_sum()),
    "shift": lambda f, x: f.with_columns(b=pl.col("b").shift(1)),
    "shift_in_group": lambda f, x: f.with_columns(a=pl.col("a").shift(1).over("k")),
    "from_least": lambda f, x: f.with_columns(a=pl.col("a") - pl.col("a").min()),
    "group_total": lambda f, x: f.with_columns(b=pl.col("b").sum().over("k")),
    "above_mean": lambda f, x: f.filter(pl.col("a") >= pl.col("a").mean()),
    "distinct": lambda f, x: f.unique("k", keep="first", maintain_order=True),
    "drop_nulls": lambda f, x: f.drop_nulls("a"),
    "position": lambda f, x: f.with_columns(a=pl.int_range(pl.len(), dtype=pl.Int64)),
    "group": lambda f, x: f.group_by("k").agg(a=pl.col("a").sum(), b=pl.col("b").max()).sort("k", nulls_last=True),
    "first": lambda f, x: (
        f.group_by("k", maintain_order=True).agg(a=pl.col("a").first(), b=pl.col("b").last()).sort("k", nulls_last=True)
    ),
    "choose": lambda f, x: f.with_columns(b=pl.when(pl.col("a") > x).then(pl.col("b")).when(pl.col("b") > 0).then(1)),
    "twice": lambda f, x: pl.concat([f, f.filter(pl.col("b") > x)]),
    "nested_windows": lambda f, x: f.with_columns(b=pl.col("b").fill_null(0).cum_sum().cum_max() - pl.col("a").max()),
}


@settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    values=frames(),
    steps=st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(-10, 10)), min_size=2, max_size=7),
    stored=st.integers(0, 7),
)
async def test_any_pipeline(data, values, steps, stored):
    expected = frame(values)
    obj = await create_object_from_value(expected)
    for number, (step, x) in enumerate(steps):
        obj, expected = STEPS[step](obj, x), THEIRS[step](expected, x)
        if number == stored:
            obj = await obj
    actual = (await obj.to_polars()).cast(expected.schema)
    assert_frame_equal(actual, expected, check_exact=True)
    assert await obj.count() == expected.height
    assert (await obj["a"].sum().data()) == expected["a"].sum()
    stored_obj = await obj
    assert_frame_equal((await stored_obj.to_polars()).cast(expected.schema), expected, check_exact=True)
    assert await stored_obj.select(dense=(row_index().max() + 1).fill_null(0)).data() == {"dense": [expected.height]}


def test_aaiclick_and_polars_steps_match():
    assert STEPS.keys() == THEIRS.keys()
