"""Steps of the random chains: operations on an Object and the same on a frame of polars."""

from __future__ import annotations

import polars as pl

from aaiclick.data import col
from tests.integration.data.chain_expressions import (
    DTYPES,
    FAMILIES,
    LAST,
    PREFIXES,
    Expressions,
    family_of,
    flat_columns,
)

EVERY = tuple(FAMILIES.values())
FLAT = tuple(family for family in EVERY if family != "list")
ORDERED = tuple(family for family in FLAT if family != "bool")
AGGREGATES = {
    "count": (lambda x: x.count(), lambda p: p.count().cast(pl.Int64), EVERY),
    "nunique": (lambda x: x.nunique(), lambda p: p.drop_nulls().n_unique().cast(pl.Int64), FLAT),
    "min": (lambda x: x.min(), lambda p: p.min(), ORDERED),
    "max": (lambda x: x.max(), lambda p: p.max(), ORDERED),
    "first": (lambda x: x.first(), lambda p: p.first(), EVERY),
    "last": (lambda x: x.last(), lambda p: p.last(), EVERY),
    "same sum": (lambda x: x.sum(), lambda p: p.sum(), ("duration", "decimal")),
    "sum": (lambda x: x.sum(), lambda p: p.sum().cast(pl.Int64), ("int", "bool")),
    "float sum": (lambda x: x.sum(), lambda p: p.sum(), ("float",)),
    "mean": (lambda x: x.mean(), lambda p: p.mean(), ("int", "float", "bool")),
    "median": (lambda x: x.median(), lambda p: p.median(), ("int",)),
    "float median": (lambda x: x.clip(-1e9).median(), lambda p: p.clip(-1e9).median(), ("float",)),
    "std": (lambda x: x.std(), lambda p: p.std(), ("int",)),
}


def add_column(chain, obj, frame):
    family = chain.chance.choice(FLAT)
    expression, same = Expressions(chain.chance, frame).build(family)
    name = chain.unused(frame.columns, PREFIXES[family])
    dtype = DTYPES.get(family) or next(dtype for dtype, value in FAMILIES.items() if value == family)
    return obj.with_columns(**{name: expression}), frame.with_columns(same.cast(dtype).alias(name))


def keep_rows(chain, obj, frame):
    condition, same = Expressions(chain.chance, frame).build("bool")
    return obj.filter(condition), frame.filter(same)


def sort_rows(chain, obj, frame):
    names = chain.chance.sample(flat_columns(frame), min(2, len(flat_columns(frame))))
    down = [chain.chance.random() < 0.5 for _ in names]
    first = chain.chance.random() < 0.3
    return (
        obj.sort(*names, descending=down, nulls_first=first),
        frame.sort(names, descending=down, nulls_last=not first, maintain_order=True),
    )


def slice_rows(chain, obj, frame):
    offset, length = chain.chance.randint(0, 3), chain.chance.randint(0, 9)
    return obj.slice(offset, length), frame.slice(offset, length)


def keep_distinct(chain, obj, frame):
    names = chain.chance.sample(flat_columns(frame), min(2, len(flat_columns(frame))))
    return obj.distinct(*names), frame.unique(names, keep="first", maintain_order=True)


def aggregate_groups(chain, obj, frame):
    names = flat_columns(frame)
    keys = chain.chance.sample(names, chain.chance.choice([1, 2]) if len(names) > 1 else 1)
    values, same = {}, {}
    for name, dtype in frame.schema.items():
        options = [n for n, (_, _, families) in AGGREGATES.items() if family_of(dtype) in families]
        choice = chain.chance.choice(options)
        if name in keys or (name.startswith("j") and choice in ("sum", "mean", "median", "std")):
            continue
        expression, reference, _ = AGGREGATES[choice]
        prefix = {
            "count": "i",
            "nunique": "i",
            "sum": "i",
            "mean": "f",
            "float sum": "f",
            "median": "f",
            "float median": "f",
            "std": "f",
        }
        output = chain.unused([*frame.columns, *values], prefix.get(choice, name[0]))
        values[output], same[output] = expression(col(name)), reference(pl.col(name))
    if not values:
        return None
    return (
        obj.group_by(*keys).agg(**values),
        frame.group_by(keys).agg(**same).sort(keys, **LAST),
    )


def join_other(chain, obj, frame):
    if "k" not in frame.columns or frame.schema["k"] != pl.Int64 or {"oi", "os"} & set(frame.columns):
        return None
    how = chain.chance.choice(["inner", "left", "semi", "anti", "full", "right"])
    order = {} if how in ("semi", "anti") else {"maintain_order": "right_left" if how == "right" else "left_right"}
    if how == "full":
        order["coalesce"] = True
    same = frame.join(chain.other, on="k", how=how, **order)
    names = frame.columns if how in ("semi", "anti") else [*frame.columns, "oi", "os"]
    return obj.join(chain.objects[1], "k", how), same.select(names)


def add_window(chain, obj, frame):
    expressions = Expressions(chain.chance, frame)
    if not expressions.columns["int"]:
        return None
    name, key = chain.chance.choice(expressions.columns["int"]), chain.chance.choice(flat_columns(frame))
    x, p = col(name), pl.col(name)
    rows = chain.chance.choice([1, 2, 3])
    expression, same = chain.chance.choice(
        [
            (x.sum().over(key), p.sum().over(key)),
            (x.max().over(key), p.max().over(key)),
            (x.count().over(key), p.count().over(key)),
            (x.cum_sum(), p.fill_null(0).cum_sum()),
            (x.cum_count(), p.cum_count()),
            (x.cum_max(), p.cum_max().forward_fill()),
            (x.shift(rows), p.shift(rows)),
            (x.diff(rows), p - p.shift(rows)),
            (x.rank(), p.rank("min")),
            (x.rank(dense=True, descending=True), p.rank("dense", descending=True)),
            (x.rolling("count", rows), p.is_not_null().cast(pl.Int64).rolling_sum(rows, min_samples=1)),
            (x.cum_sum().over(key), p.fill_null(0).cum_sum().over(key)),
        ]
    )
    output = chain.unused(frame.columns, "i")
    return obj.with_columns(**{output: expression}), frame.with_columns(same.cast(pl.Int64).alias(output))


def append_rows(chain, obj, frame):
    count = chain.chance.randint(0, 3)
    return obj.concat(obj.slice(0, count)), pl.concat([frame, frame.head(count)])


def drop_column(chain, obj, frame):
    if frame.width < 4:
        return None
    name = chain.chance.choice(frame.columns)
    return obj.drop(name), frame.drop(name)


def number_rows(chain, obj, frame):
    name = chain.unused(frame.columns, "i")
    return obj.with_row_index(name), frame.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias(name))


def take_last_rows(chain, obj, frame):
    count = chain.chance.randint(1, 9)
    choices = [
        lambda: (obj.tail(count), frame.tail(count)),
        lambda: (obj.head(-count), frame.head(-count)),
        lambda: (obj[-count:-1], frame.slice(max(0, frame.height - count), max(0, min(count, frame.height) - 1))),
        lambda: (obj.reverse(), frame.reverse()),
    ]
    return chain.chance.choice(choices)()


def take_rows_of_groups(chain, obj, frame):
    key, count = chain.chance.choice(flat_columns(frame)), chain.chance.choice([1, 2])
    number = pl.int_range(pl.len()).over(key)
    if chain.chance.random() < 0.5:
        return obj.group_by(key).head(count), frame.filter(number < count)
    return obj.group_by(key).tail(count), frame.filter(number >= pl.len().over(key).cast(pl.Int64) - count)


def fill_column(chain, obj, frame):
    name, key = (chain.chance.choice(flat_columns(frame)) for _ in range(2))
    x, p = col(name), pl.col(name)
    expression, same = chain.chance.choice(
        [
            (x.forward_fill(), p.forward_fill()),
            (x.backward_fill(), p.backward_fill()),
            (x.forward_fill(1), p.forward_fill(1)),
            (x.forward_fill().over(key), p.forward_fill().over(key)),
        ]
    )
    output = chain.unused(frame.columns, name[0])
    return obj.with_columns(**{output: expression}), frame.with_columns(same.alias(output))


def combine_rows(chain, obj, frame):
    count = chain.chance.randint(0, 4)
    some, same = obj.slice(0, count), frame.head(count)
    choices = [
        lambda: (obj.union(some), frame.unique(maintain_order=True)),
        lambda: (obj.intersect(some), same.unique(maintain_order=True)),
        lambda: (
            obj.difference(some),
            frame.join(same, on=frame.columns, how="anti", nulls_equal=True).unique(maintain_order=True),
        ),
        lambda: (
            obj.concat(some.drop(frame.columns[0]), how="diagonal") if frame.width > 1 else obj,
            pl.concat([frame, same.drop(frame.columns[0])], how="diagonal") if frame.width > 1 else frame,
        ),
    ]
    return chain.chance.choice(choices)()


def filter_by_object(chain, obj, frame):
    names = [name for name, dtype in frame.schema.items() if dtype == pl.Int64]
    if not names:
        return None
    name, count = chain.chance.choice(names), chain.chance.randint(0, 4)
    values = frame.head(count)[name].drop_nulls()
    return obj.filter(col(name).isin(obj.slice(0, count)[name])), frame.filter(pl.col(name).is_in(values.implode()))


def join_nearest(chain, obj, frame):
    """Join the rows of `other` that are not later; polars needs sorted keys, and takes the last of equal ones."""
    names = [name for name in ("i", "k") if name in frame.columns and frame.schema[name] == pl.Int64]
    if not names or {"oi", "os"} & set(frame.columns):
        return None
    other, name = chain.other.select("oi", "os").drop_nulls("oi"), names[0]
    strategy = chain.chance.choice(["backward", "forward"])
    number = pl.int_range(pl.len()).alias("row")
    ordered = other.sort("oi", maintain_order=True).with_columns(pl.col("oi").alias("at"))
    ordered = ordered.unique("oi", keep="last" if strategy == "backward" else "first", maintain_order=True)
    left = frame.with_columns(number)
    present = left.filter(pl.col(name).is_not_null()).sort(name, maintain_order=True)
    joined = present.join_asof(ordered, left_on=name, right_on="at", strategy=strategy, coalesce=False)
    rows = pl.concat([joined, left.filter(pl.col(name).is_null())], how="diagonal").sort("row")
    same = rows.select(*frame.columns, "oi", "os")
    right = chain.objects[1].select("oi", "os")
    return obj.join_asof(right, (name, "oi"), strategy=strategy).select(*frame.columns, "oi", "os"), same


def unpivot_columns(chain, obj, frame):
    names = [name for name, dtype in frame.schema.items() if dtype == pl.Int64]
    keys = [name for name in flat_columns(frame) if name not in names][:2]
    if not names or not keys or {"s_name", "i_value"} & set(frame.columns):
        return None
    same = frame.unpivot(names, index=keys, variable_name="s_name", value_name="i_value")
    return obj.unpivot(names, index=keys, variable_name="s_name", value_name="i_value"), same


async def pivot_columns(chain, obj, frame):
    if not {"k", "b"} <= set(frame.columns) or not frame.height:
        return None
    values = [name for name, dtype in frame.schema.items() if dtype == pl.Int64 and name != "k"][:2]
    if not values:
        return None
    aggregate = chain.chance.choice(["first", "max", "len"])
    same = frame.pivot("b", index="k", values=values, aggregate_function=aggregate, on_columns=[True, False])
    same = same.sort("k", nulls_last=True)
    pivoted = await obj.pivot("b", index="k", values=values, aggregate=aggregate, columns=[True, False])
    cells = [name for name in same.columns if name != "k"]
    same = same.with_columns(pl.col(name).cast(pl.Int64) for name in cells)
    if aggregate == "len":
        same = same.with_columns(pl.col(name).fill_null(0) for name in cells)
    names = {name: f"i{number}" for number, name in enumerate(cells)}
    return pivoted.rename(names), same.rename(names)


def group_by_hours(chain, obj, frame):
    if frame.schema.get("t") != pl.Datetime("us") or "k" not in frame.columns:
        return None
    every = chain.chance.choice(["1h", "6h"])
    same = (
        frame.filter(pl.col("t").is_not_null())
        .group_by("k", pl.col("t").dt.truncate(every))
        .agg(pl.len().cast(pl.Int64).alias("i"))
        .sort("k", "t", **LAST)
    )
    return obj.group_by_time("t", every, "k", fill=False).agg(i=col("t").count()), same


def label_numbers(chain, obj, frame):
    expressions = Expressions(chain.chance, frame)
    if not expressions.columns["int"]:
        return None
    name, output = chain.chance.choice(expressions.columns["int"]), chain.unused(frame.columns, "s")
    x, p = col(name), pl.col(name)
    low, high = pl.when(p <= -3).then(pl.lit("(-inf, -3]")), pl.when(p <= 2).then(pl.lit("(0, 2]"))
    middle = pl.when(p <= 0).then(pl.lit("(-3, 0]")).otherwise(high.otherwise(pl.lit("(2, inf]")))
    cut = pl.when(p.is_null()).then(None).otherwise(low.otherwise(middle))
    replaced, partly_replaced = {1: 10, 2: 20, None: 0}, {1: 10, 2: None}
    expression, same = chain.chance.choice(
        [
            (x.cut([-3, 0, 2]), cut),
            (x.replace(replaced).cast(str), p.replace(replaced).cast(pl.String)),
            (x.replace(partly_replaced).cast(str), p.replace(partly_replaced).cast(pl.String)),
        ]
    )
    return obj.with_columns(**{output: expression}), frame.with_columns(same.alias(output))


STEPS = (
    join_nearest, unpivot_columns, pivot_columns, group_by_hours, label_numbers,
    take_last_rows, take_rows_of_groups, fill_column, combine_rows, filter_by_object,
    add_column, add_column, add_column, keep_rows, sort_rows, slice_rows, keep_distinct, aggregate_groups, join_other,
    add_window, add_window, append_rows, drop_column, number_rows,
)  # fmt: skip
