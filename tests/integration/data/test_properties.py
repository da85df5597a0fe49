"""Property tests: operations on random frames return what Python and polars return.

The expressions are those of `comparisons`; each is run as a `col(…)` expression, on columns of one Object, and on
columns of two Objects, which are combined row by row.
"""

from __future__ import annotations

import json
import math

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from aaiclick.data import col, create_object_from_value, length
from tests.integration.data import comparisons as c

SETTINGS = settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
WAYS = st.sampled_from(["expression", "column", "two objects"])


def alike(a, b):
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(alike, a, b))
    return a == b and type(a) is type(b)


def same(name, actual, expected):
    assert len(actual) == len(expected), name
    for index, (a, b) in enumerate(zip(actual, expected, strict=True)):
        assert alike(a, b), f"{name}, row {index}: {a!r} is not {b!r}"


@st.composite
def frames(draw, *elements, optional=True):
    """Columns of equal length, some with NULLs, with unusual names."""
    names = draw(st.lists(c.NAMES, min_size=len(elements), max_size=len(elements), unique=True))
    size = draw(st.integers(0, 12))
    allowed = [optional and draw(st.booleans()) for _ in elements]
    columns = [
        draw(st.lists(st.none() | element if allow else element, min_size=size, max_size=size))
        for element, allow in zip(elements, allowed, strict=True)
    ]
    return dict(zip(names, columns, strict=True))


def typed(values, *dtypes):
    return pa.table({name: pa.array(v, dtype) for (name, v), dtype in zip(values.items(), dtypes, strict=True)})


def polars(values, *dtypes):
    return pl.DataFrame(
        {name: pl.Series(v, dtype=dtype) for (name, v), dtype in zip(values.items(), dtypes, strict=True)}
    )


async def compare(table, way, cases, values=None):
    """Compare all cases of a table of row functions, in one query."""
    a, b = table.column_names
    left, right = values or [column.to_pylist() for column in table.columns]
    obj = await create_object_from_value(table)
    if way == "expression":
        x, y = col(a), col(b)
    elif way == "column":
        x, y = obj[a], obj[b]
    else:
        other = await create_object_from_value(table.select([b]))
        x, y = obj[a], other[b]
    actual = await obj.select(**{name: expression(x, y) for name, (expression, _) in cases.items()}).data()
    for name, (_, reference) in cases.items():
        back = c.READ_BACK.get(name, lambda value: value)
        rows = list(zip(left, right, strict=True))
        same(f"{name} of {rows}", [back(item) for item in actual[name]], [reference(*row) for row in rows])


@SETTINGS
@given(values=frames(c.EXTREME, c.SMALL), way=WAYS)
async def test_integers(data, values, way):
    await compare(typed(values, pa.int64(), pa.int64()), way, c.INTEGERS)


@SETTINGS
@given(values=frames(c.EXTREME, c.SMALL))
async def test_functions_of_expressions(data, values):
    await compare(typed(values, pa.int64(), pa.int64()), "expression", c.FREE)


@SETTINGS
@given(values=frames(c.REAL, c.TAME), way=WAYS)
async def test_floats(data, values, way):
    await compare(typed(values, pa.float64(), pa.float64()), way, c.FLOATS)


@SETTINGS
@given(values=frames(st.booleans(), st.booleans()), way=WAYS)
async def test_three_valued_logic(data, values, way):
    await compare(typed(values, pa.bool_(), pa.bool_()), way, c.BOOLEANS)


@SETTINGS
@given(values=frames(c.TEXT, c.TEXT), way=WAYS)
async def test_strings(data, values, way):
    await compare(typed(values, pa.string(), pa.string()), way, c.STRINGS)


@SETTINGS
@given(values=frames(c.WORDS, c.WORDS), way=WAYS)
async def test_words_and_patterns(data, values, way):
    await compare(typed(values, pa.string(), pa.string()), way, c.WORDED)


@SETTINGS
@given(values=frames(c.DATES, c.DATES), way=WAYS)
async def test_dates(data, values, way):
    await compare(typed(values, pa.date32(), pa.date32()), way, c.DATED)


@SETTINGS
@given(values=frames(c.TIMES, c.TIMES), spans=frames(c.DURATIONS, c.DURATIONS), way=WAYS)
async def test_times_and_durations(data, values, spans, way):
    await compare(typed(values, pa.timestamp("us"), pa.timestamp("us")), way, c.TIMED)
    await compare(typed(spans, pa.duration("us"), pa.duration("us")), way, c.SPANS)


LIST = st.lists(st.none() | st.integers(-3, 3), max_size=5)


@SETTINGS
@given(values=frames(LIST, LIST, optional=False), way=WAYS)
async def test_lists(data, values, way):
    await compare(typed(values, pa.list_(pa.int64()), pa.list_(pa.int64())), way, c.LISTS)


@SETTINGS
@given(values=frames(st.dictionaries(st.sampled_from(["é", "k", "'"]), c.SMALL), c.SMALL, optional=False), way=WAYS)
async def test_maps(data, values, way):
    maps, numbers = values.values()
    pairs = [list(mapping.items()) for mapping in maps]
    table = typed(dict(zip(values, (pairs, numbers), strict=True)), pa.map_(pa.string(), pa.int64()), pa.int64())
    await compare(table, way, c.MAPS, (maps, numbers))


STRUCT = st.fixed_dictionaries({"x": st.none() | c.SMALL, "a b`": c.TEXT})


@SETTINGS
@given(values=frames(STRUCT, c.SMALL, optional=False), way=WAYS)
async def test_structs(data, values, way):
    struct_type = pa.struct([("x", pa.int64()), ("a b`", pa.string())])
    await compare(typed(values, struct_type, pa.int64()), way, c.STRUCTS)


@SETTINGS
@given(values=frames(c.DOCUMENTS, c.SMALL, optional=False), way=WAYS)
async def test_json(data, values, way):
    documents, numbers = values.values()
    texts = [json.dumps(document) for document in documents]
    table = typed(dict(zip(values, (texts, numbers), strict=True)), pa.string(), pa.int64())
    await compare(table, way, c.JSONS, (documents, numbers))


@SETTINGS
@given(values=frames(c.TEXT, c.EXTREME))
async def test_hash_differs_for_different_values(data, values):
    for name, column in values.items():
        obj = await create_object_from_value(polars(values, pl.String, pl.Int64))
        hashes = await obj[name].hash().data()
        assert len(set(hashes)) == len(set(column))
        assert all(
            (p == q) == (v == w)
            for p, v in zip(hashes, column, strict=True)
            for q, w in zip(hashes, column, strict=True)
        )


# --- many rows ---------------------------------------------------------------------------------------------------


@SETTINGS
@given(values=frames(c.SMALL, c.TAME), keys=st.lists(st.none() | st.integers(0, 2), min_size=12, max_size=12))
async def test_aggregates(data, values, keys):
    a, b = values
    table = typed(values, pa.int64(), pa.float64())
    x, y = values.values()
    obj = await create_object_from_value(table)
    cases = {name: expression(col(a), col(b)) for name, (expression, _) in c.AGGREGATES.items()}
    actual = await obj.select(**cases).data()
    for name, (_, reference) in c.AGGREGATES.items():
        same(f"{name} of {x}, {y}", actual[name], [reference(x, y)])
    keys = keys[: len(x)]
    grouped = obj.with_columns(the_key=await create_object_from_value(pl.Series(keys, dtype=pl.Int64)))
    positional = ("argmin", "argmax")  # in a group these return the position in the whole Object
    actual = await grouped.group_by("the_key").agg(**{n: e for n, e in cases.items() if n not in positional}).data()
    groups = sorted(set(keys), key=lambda key: (key is None, key))
    assert actual["the_key"] == groups
    for name, (_, reference) in c.AGGREGATES.items():
        if name not in positional:
            members = [[i for i, key in enumerate(keys) if key == group] for group in groups]
            same(name, actual[name], [reference([x[i] for i in m], [y[i] for i in m]) for m in members])


@SETTINGS
@given(values=frames(st.integers(0, 2), c.SMALL))
async def test_windows(data, values):
    k, v = values
    obj = await create_object_from_value(typed(values, pa.int64(), pa.int64()))
    actual = await obj.select(**{name: expression(k, v) for name, (expression, _) in c.WINDOWS.items()}).data()
    for name, (_, reference) in c.WINDOWS.items():
        same(name, actual[name], reference(*values.values()))
    assert await obj[v].cum_sum().data() == c.running(sum)(values[v])


async def equal(obj, frame):
    assert_frame_equal((await obj.to_polars()).cast(frame.schema), frame, check_exact=True)


@SETTINGS
@given(
    values=frames(c.SMALL, c.TAME, c.TEXT),
    cut=st.integers(-1000, 1000),
    offset=st.integers(0, 8),
    size=st.integers(0, 8),
    name=st.sampled_from(sorted(c.TABLES)),
)
async def test_tables(data, values, cut, offset, size, name):
    frame = polars(values, pl.Int64, pl.Float64, pl.String)
    obj = await create_object_from_value(frame)
    for transform, reference in (c.TABLES[name], *c.TABLES.values()):
        await equal(transform(obj, *values, cut, offset, size), reference(frame, *values, cut, offset, size))


@SETTINGS
@given(values=frames(st.integers(0, 2), c.SMALL, st.booleans()))
async def test_groups(data, values):
    k, v, flag = values
    frame = polars(values, pl.Int64, pl.Int64, pl.Boolean)
    obj = await create_object_from_value(frame)
    for transform, reference in c.GROUPS.values():
        await equal(transform(obj, k, v, flag), reference(frame, k, v, flag).sort(k, nulls_last=True))


@SETTINGS
@given(left=frames(st.integers(0, 4), c.SMALL), right=frames(st.integers(0, 4), c.SMALL))
async def test_joins(data, left, right):
    names = (("k", "x"), ("k", "y"))
    sides = [dict(zip(n, v.values(), strict=True)) for n, v in zip(names, (left, right), strict=True)]
    a, b = (polars(side, pl.Int64, pl.Int64) for side in sides)
    obj_a, obj_b = await create_object_from_value(a), await create_object_from_value(b)
    for how, (join, reference) in c.JOINS.items():
        actual, expected = (await join(obj_a, obj_b).to_polars()), reference(a, b)
        assert sorted(actual.select(expected.columns).rows(), key=repr) == sorted(expected.rows(), key=repr), how


@SETTINGS
@given(
    left=frames(st.integers(0, 1), st.integers(0, 9), optional=False),
    right=frames(st.integers(0, 1), st.integers(0, 9), optional=False),
    strategy=st.sampled_from(["backward", "forward", "backward_strict", "forward_strict"]),
)
async def test_asof_joins(data, left, right, strategy):
    a = polars(dict(zip(("s", "t"), left.values(), strict=True)), pl.Int64, pl.Int64)
    b = polars(dict(zip(("s", "t"), right.values(), strict=True)), pl.Int64, pl.Int64)
    b = b.unique(["s", "t"], maintain_order=True)
    joined = (await create_object_from_value(a)).join_asof(
        await create_object_from_value(b.with_columns(u="t")), "t", by="s", strategy=strategy
    )
    direction, strict = strategy.removesuffix("_strict"), strategy.endswith("_strict")
    expected = []
    for s, t in a.rows():
        near = [
            u
            for r, u in b.rows()
            if r == s and ((u <= t if direction == "backward" else u >= t) and not (strict and u == t))
        ]
        expected.append((max if direction == "backward" else min)(near, default=None))
    assert (await joined.data())["u"] == expected


@SETTINGS
@given(columns=st.lists(st.lists(c.SMALL, min_size=3, max_size=3), min_size=2, max_size=4))
async def test_separate_objects_combine_by_position(data, columns):
    objects = [await create_object_from_value(column) for column in columns]
    total = objects[0]
    for obj in objects[1:]:
        total = total * 2 + obj
    expected = [0, 0, 0]
    for number, column in enumerate(columns):
        expected = [value * 2 * (number > 0) + each_ for value, each_ in zip(expected, column, strict=True)]
    assert await total.data() == expected


@SETTINGS
@given(values=frames(c.SMALL, c.TEXT), more=frames(c.SMALL, c.TEXT))
async def test_appended_rows_come_last(data, values, more):
    frame = polars(values, pl.Int64, pl.String)
    given_ = polars(dict(zip(values, more.values(), strict=True)), pl.Int64, pl.String)
    schema = {name: f"Nullable({type_name})" for name, type_name in zip(values, ("Int64", "String"), strict=True)}
    obj = await create_object_from_value(frame, schema=schema)
    assert await obj.insert(given_) == frame.height + given_.height
    assert await obj.insert(obj.head(2)) == frame.height + given_.height + min(2, frame.height + given_.height)
    whole = pl.concat([frame, given_])
    await equal(obj, pl.concat([whole, whole.head(2)]))
    assert await obj.select(dense=(c.row_index().max() + 1).fill_null(0)).data() == {"dense": [await obj.count()]}


@SETTINGS
@given(values=frames(c.SMALL, c.TAME, c.TEXT), way=st.sampled_from(sorted(c.READS)))
async def test_all_readers_return_the_same_rows(data, values, way):
    frame = polars(values, pl.Int64, pl.Float64, pl.String)
    obj = await create_object_from_value(frame)
    for read, expected in (c.READS[way], *c.READS.values()):
        assert await read(obj) == expected(frame)


@SETTINGS
@given(values=frames(c.SMALL, c.TAME))
async def test_summaries(data, values):
    a, b = values
    frame = polars(values, pl.Int64, pl.Float64)
    obj = await create_object_from_value(frame)
    actual = {row["statistic"]: row for row in await (await obj.describe()).rows()}
    for name, column in values.items():
        for statistic, reference in c.STATISTICS.items():
            same(f"{statistic} of {name}", [actual[statistic][name]], [reference(column)])
    matrix = await (await obj.correlation()).data()
    both = c.of_pairs(c.correlation)(*values.values())
    same("correlation", [matrix[b][0], matrix[a][1]], [both, both])
    counted = await obj.select(a).value_counts().data()
    ordered = sorted(set(values[a]), key=lambda v: (-values[a].count(v), v is None, v))
    assert counted == {a: ordered, "count": [values[a].count(v) for v in ordered]}


@SETTINGS
@given(values=frames(LIST, LIST, optional=False), keep=st.booleans())
async def test_exploded_lists(data, values, keep):
    a, b = values
    obj = await create_object_from_value(typed(values, pa.list_(pa.int64()), pa.list_(pa.int64())))
    actual = await obj.with_row_index("i").drop(b).explode(a, keep_empty=keep).data()
    rows = [(i, e) for i, items in enumerate(values[a]) for e in (items or ([None] if keep else []))]
    assert actual == {a: [e for _, e in rows], "i": [i for i, _ in rows]}


@SETTINGS
@given(values=st.lists(c.SMALL, max_size=30), n=st.integers(0, 40), seed=st.integers(0, 5))
async def test_a_sample_is_some_of_the_rows_in_order(data, values, n, seed):
    obj = await create_object_from_value(pl.Series(values, dtype=pl.Int64))
    some = await obj.rename("v").with_row_index("i").sample(n, seed=seed).data()
    assert len(some["i"]) == min(n, len(values))
    assert some["i"] == sorted(set(some["i"]))
    assert some["v"] == [values[i] for i in some["i"]]


@pytest.mark.usefixtures("data")
async def test_groups_count_rows_too():
    obj = await create_object_from_value({"k": [1, None, 1]})
    assert await obj.group_by("k").agg(n=length()).data() == {"k": [1, None], "n": [2, 1]}
