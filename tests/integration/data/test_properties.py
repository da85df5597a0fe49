"""Random frames: what ClickHouse computes for us is what Python and polars compute."""

from __future__ import annotations

import math
from itertools import accumulate

import polars as pl
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from aaiclick.data import col, create_object_from_value, length

SETTINGS = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
NAMES = st.sampled_from(
    ["from", "a b", "`", "🦆", "select", "x'y", 'q"', "back\\slash", "ünïcode", "%d", "value", "{p0:Int8}"]
)
SMALL = st.integers(-1000, 1000)
EXTREME = st.sampled_from([2**63 - 1, -(2**63), 0, -1, 1, 2**62]) | st.integers(-(2**63), 2**63 - 1)
REAL = st.floats(allow_nan=True, allow_infinity=True, width=64)
TAME = st.floats(-1e6, 1e6, allow_nan=False, allow_subnormal=False)
TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x00"), max_size=8)


def wrap(value):
    """64-bit arithmetic wraps around, as in polars and ClickHouse."""
    return None if value is None else (value + 2**63) % 2**64 - 2**63


def each(function, *columns):
    """NULL if any argument is NULL."""
    return [None if any(v is None for v in row) else function(*row) for row in zip(*columns, strict=True)]


def same(found, expected):
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        if isinstance(a, float) and isinstance(b, float):
            assert a == b or (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9), (a, b)
        else:
            assert a == b, (a, b)
            assert type(a) is type(b), (a, b)


@st.composite
def frames(draw, *elements):
    """Columns of equal length, some with NULLs, under odd names."""
    names = draw(st.lists(NAMES, min_size=len(elements), max_size=len(elements), unique=True))
    size = draw(st.integers(0, 12))
    optional = [draw(st.booleans()) for _ in elements]
    columns = [
        draw(st.lists(st.none() | element if allow else element, min_size=size, max_size=size))
        for element, allow in zip(elements, optional, strict=True)
    ]
    return dict(zip(names, columns, strict=True))


async def run(values, **expressions):
    obj = await create_object_from_value(values)
    return await obj.select(**expressions).data()


@SETTINGS
@given(values=frames(EXTREME, SMALL))
async def test_integers(data, values):
    (a, b), (x, y) = values.keys(), values.values()
    typed = {a: pl.Series(x, dtype=pl.Int64), b: pl.Series(y, dtype=pl.Int64)}
    found = await run(
        pl.DataFrame(typed),
        add=col(a) + col(b), sub=col(a) - col(b), mul=col(a) * 3, neg=-col(a), div=col(b) / 7, floor=col(a) // col(b),
        mod=col(a) % col(b), eq=col(a) == col(b), lt=col(a) < col(b), band=col(a) & col(b), bor=col(a) | col(b),
        bnot=~col(a), inside=col(b).between(-5, 5), filled=col(a).fill_null(0), null=col(a).is_null(),
        pick=(col(a) > 0).if_else(col(a), col(b)), low=col(a).fill_null(0).least(col(b).fill_null(0)),
        some=col(b).isin([1, 2, 3]), text=col(a).cast("String"),
    )  # fmt: skip
    expected = {
        "add": each(lambda p, q: wrap(p + q), x, y), "sub": each(lambda p, q: wrap(p - q), x, y),
        "mul": each(lambda p: wrap(p * 3), x), "neg": each(lambda p: wrap(-p), x), "div": each(lambda q: q / 7, y),
        "floor": each(lambda p, q: wrap(p // q) if q else None, x, y),
        "mod": each(lambda p, q: p % q if q else None, x, y),
        "eq": each(lambda p, q: p == q, x, y), "lt": each(lambda p, q: p < q, x, y),
        "band": each(lambda p, q: p & q, x, y),
        "bor": each(lambda p, q: p | q, x, y), "bnot": each(lambda p: ~p, x), "inside": each(lambda q: -5 <= q <= 5, y),
        "filled": [0 if p is None else p for p in x], "null": [p is None for p in x],
        "pick": [p if p is not None and p > 0 else q for p, q in zip(x, y, strict=True)],
        "low": [min(p or 0, q or 0) for p, q in zip(x, y, strict=True)], "some": each(lambda q: q in (1, 2, 3), y),
        "text": each(str, x),
    }  # fmt: skip
    for name, values_expected in expected.items():
        same(found[name], values_expected)


@SETTINGS
@given(values=frames(REAL, TAME))
async def test_floats(data, values):
    (a, b), (x, y) = values.keys(), values.values()
    typed = {a: pl.Series(x, dtype=pl.Float64), b: pl.Series(y, dtype=pl.Float64)}
    found = await run(
        pl.DataFrame(typed),
        same_=col(a), add=col(a) + col(b), mul=col(a) * col(b), neg=-col(a), absolute=abs(col(a)), lt=col(a) < col(b),
        eq=col(a) == col(a), nan=col(a).is_nan(), floor=col(b) // 3, mod=col(b) % 3, low=col(b) % -2.5,
    )  # fmt: skip
    expected = {
        "same_": x, "add": each(lambda p, q: p + q, x, y), "mul": each(lambda p, q: p * q, x, y),
        "neg": each(lambda p: -p, x),
        "absolute": each(abs, x), "lt": each(lambda p, q: p < q, x, y), "eq": each(lambda p: p == p, x),
        "nan": each(math.isnan, x), "floor": each(lambda q: q // 3, y), "mod": each(lambda q: q % 3, y),
        "low": each(lambda q: q % -2.5, y),
    }  # fmt: skip
    for name, values_expected in expected.items():
        same(found[name], values_expected)


@SETTINGS
@given(values=frames(TEXT, TEXT))
async def test_strings(data, values):
    (a, b), (x, y) = values.keys(), values.values()
    typed = {a: pl.Series(x, dtype=pl.String), b: pl.Series(y, dtype=pl.String)}
    found = await run(
        pl.DataFrame(typed),
        same_=col(a), add=col(a) + col(b), eq=col(a) == col(b), size=col(a).str.length(),
        width=col(a).str.byte_length(),
        starts=col(a).str.starts_with(col(b)), ends=col(a).str.ends_with(col(b)), has=col(a).str.contains(col(b)),
        lit=col(a) == "it's \\ `", first=col(a).str.slice(0, 2), turned=col(a).str.reverse(), find=col(a).str.find("a"),
        rep=col(a).str.replace("a", "\\1'"),
    )  # fmt: skip
    expected = {
        "same_": x, "add": each(lambda p, q: p + q, x, y), "eq": each(lambda p, q: p == q, x, y), "size": each(len, x),
        "width": each(lambda p: len(p.encode()), x), "starts": each(str.startswith, x, y),
        "ends": each(str.endswith, x, y),
        "has": each(lambda p, q: q in p, x, y), "lit": each(lambda p: p == "it's \\ `", x),
        "first": each(lambda p: p[:2], x),
        "turned": each(lambda p: p[::-1], x), "find": each(lambda p: p.find("a"), x),
        "rep": each(lambda p: p.replace("a", "\\1'"), x),
    }  # fmt: skip
    for name, values_expected in expected.items():
        same(found[name], values_expected)


@SETTINGS
@given(values=frames(st.booleans(), st.booleans()))
async def test_three_valued_logic(data, values):
    (a, b) = values
    frame = pl.DataFrame({name: pl.Series(column, dtype=pl.Boolean) for name, column in values.items()})
    found = await run(frame, both=col(a) & col(b), either=col(a) | col(b), one=col(a) ^ col(b), no=~col(a))
    wanted = frame.select(
        both=pl.col(a) & pl.col(b), either=pl.col(a) | pl.col(b), one=pl.col(a) ^ pl.col(b), no=~pl.col(a)
    )
    assert found == wanted.to_dict(as_series=False)


@SETTINGS
@given(values=frames(SMALL, TAME, TEXT), cut=st.integers(-1000, 1000), offset=st.integers(0, 8), size=st.integers(0, 8))
async def test_rows(data, values, cut, offset, size):
    a, b, c = values
    frame = pl.DataFrame(
        {
            a: pl.Series(values[a], dtype=pl.Int64),
            b: pl.Series(values[b], dtype=pl.Float64),
            c: pl.Series(values[c], dtype=pl.String),
        }
    )
    obj = await create_object_from_value(frame)

    async def equal(ours, theirs):
        assert_frame_equal((await ours.to_polars()).cast(theirs.schema), theirs, check_exact=True)

    await equal(obj, frame)
    await equal(obj.filter(col(a) > cut), frame.filter(pl.col(a) > cut))
    await equal(obj.slice(offset, size), frame.slice(offset, size))
    await equal(obj.sort(a, descending=True), frame.sort(a, descending=True, nulls_last=True, maintain_order=True))
    await equal(
        obj.sort(a).slice(offset, size), frame.sort(a, nulls_last=True, maintain_order=True).slice(offset, size)
    )
    await equal(obj.distinct(a), frame.unique(a, keep="first", maintain_order=True))
    await equal(obj.drop_nulls(), frame.drop_nulls())
    await equal(obj.concat(obj.filter(col(a) > cut)), pl.concat([frame, frame.filter(pl.col(a) > cut)]))
    await equal(obj.with_columns(**{c: col(a) + 1}).drop(b), frame.with_columns(**{c: pl.col(a) + 1}).drop(b))
    await equal(await obj.filter(col(a) <= cut), frame.filter(pl.col(a) <= cut))
    mask = obj[a] > cut
    assert await obj[mask].count() == frame.filter(pl.col(a) > cut).height


@SETTINGS
@given(values=frames(st.integers(0, 3), SMALL, TAME))
async def test_groups_and_aggregates(data, values):
    k, v, f = values
    frame = pl.DataFrame(
        {
            k: pl.Series(values[k], dtype=pl.Int64),
            v: pl.Series(values[v], dtype=pl.Int64),
            f: pl.Series(values[f], dtype=pl.Float64),
        }
    )
    obj = await create_object_from_value(frame)

    def ours():
        return {
            "total": col(v).sum(), "low": col(v).min(), "high": col(f).max(), "mean": col(v).mean(),
            "n": col(v).count(),
            "rows": length(), "first": col(v).first(), "last": col(f).last(), "std": col(v).std(),
            "median": col(v).median(),
            "all": col(v).collect(),
        }  # fmt: skip

    def theirs():
        return {
            "total": pl.col(v).sum(), "low": pl.col(v).min(), "high": pl.col(f).max(), "mean": pl.col(v).mean(),
            "n": pl.col(v).count(), "rows": pl.len(), "first": pl.col(v).first(), "last": pl.col(f).last(),
            "std": pl.col(v).std(), "median": pl.col(v).median(), "all": pl.col(v).implode(),
        }  # fmt: skip

    found = await obj.select(**ours()).data()
    wanted = frame.select(**theirs()).to_dict(as_series=False)
    for name in wanted:
        same(found[name], wanted[name])
    found = await obj.group_by(k).agg(**ours()).data()
    grouped = {**theirs(), "all": pl.col(v)}
    wanted = frame.group_by(k).agg(**grouped).sort(k, nulls_last=True).to_dict(as_series=False)
    for name in wanted:
        same(found[name], wanted[name])


@SETTINGS
@given(values=frames(st.integers(0, 2), SMALL))
async def test_windows(data, values):
    k, v = values
    frame = pl.DataFrame({name: pl.Series(column, dtype=pl.Int64) for name, column in values.items()})
    obj = await create_object_from_value(frame)
    found = await obj.select(
        total=col(v).sum().over(k), before=col(v).shift(1), after=col(v).shift(-2), part=col(v).shift(1).over(k),
        high=col(v).fill_null(0).cum_max(), run=col(v).fill_null(0).cum_sum().over(k),
    ).data()  # fmt: skip
    wanted = frame.select(
        total=pl.col(v).sum().over(k), before=pl.col(v).shift(1), after=pl.col(v).shift(-2),
        part=pl.col(v).shift(1).over(k),
        high=pl.col(v).fill_null(0).cum_max(), run=pl.col(v).fill_null(0).cum_sum().over(k),
    ).to_dict(as_series=False)  # fmt: skip
    for name in wanted:
        same(found[name], wanted[name])
    assert (await obj[v].fill_null(0).cum_sum().data()) == list(accumulate(each_or_zero(values[v])))


def each_or_zero(values):
    return [value or 0 for value in values]


@SETTINGS
@given(left=frames(st.integers(0, 4), SMALL), right=frames(st.integers(0, 4), SMALL))
async def test_joins(data, left, right):
    frames_ = []
    for values, names in ((left, ("k", "x")), (right, ("k", "y"))):
        columns = dict(zip(names, values.values(), strict=True))
        frames_.append(pl.DataFrame({n: pl.Series(c, dtype=pl.Int64) for n, c in columns.items()}))
    a, b = frames_
    ours_a, ours_b = await create_object_from_value(a), await create_object_from_value(b)
    for how in ("inner", "left", "right", "full", "semi", "anti"):
        found = await ours_a.join(ours_b, "k", how).data()
        extra = {"coalesce": True} if how in ("full", "right", "left") else {}
        wanted = a.join(b, on="k", how=how, **extra)
        rows = [
            tuple(row[name] for name in wanted.columns)
            for row in (dict(zip(found, r, strict=True)) for r in zip(*found.values(), strict=True))
        ]
        assert sorted(rows, key=repr) == sorted(wanted.rows(), key=repr), how


@SETTINGS
@given(columns=st.lists(st.lists(SMALL, min_size=3, max_size=3), min_size=2, max_size=4))
async def test_separate_objects_combine_by_position(data, columns):
    objects = [await create_object_from_value(column) for column in columns]
    total = objects[0]
    for obj in objects[1:]:
        total = total * 2 + obj
    expected = [0, 0, 0]
    for number, column in enumerate(columns):
        expected = [value * 2 * (number > 0) + each_ for value, each_ in zip(expected, column, strict=True)]
    assert await total.data() == expected
