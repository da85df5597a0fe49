"""Operations on one frame, as pairs: for an Object and for the same polars frame.

Where docs/values.md or docs/tables.md has a rule of its own, the polars side spells that rule out.
"""

# ruff: noqa: DTZ001  (datetimes without a time zone are tested too)

from __future__ import annotations

import math
from datetime import datetime, timedelta

import polars as pl

from aaiclick.data import all_columns, col, exclude, length, of_type, row_number

C = pl.col
LAST = {"nulls_last": True, "maintain_order": True}
FRAME = pl.DataFrame(
    {
        "k": [1, 2, 1, None, 2, 1, 3],
        "v": [5, None, 3, 4, None, 9, 0],
        "x": [1.5, math.nan, None, -0.0, 0.0, math.inf, 2.0],
        "s": ["a", "b", None, "a'b", 'q"', "b", ""],
        "t": [datetime(2024, 1, 1, hour) if hour is not None else None for hour in (0, 1, 5, None, 5, 9, 2)],
        "l": [[1, 2], [], [3, None], [4], [5, 6, 7], [0], [9]],
        "z": [{"p": 1, "q": "x"}] * 7,
        "b": [True, False, None, True, True, False, False],
    }
)


def sliced(frame, bounds):
    return pl.DataFrame(frame.rows()[bounds], schema=frame.schema, orient="row")


def rolled(frame, hours, function):
    """Apply a function to the values of the last hours, without those exactly that old."""
    results = []
    for end in frame["t"]:
        values = [
            value
            for value, moment in zip(frame["v"], frame["t"], strict=True)
            if end is not None and moment is not None and value is not None
            if end - timedelta(hours=hours) < moment <= end
        ]
        results.append(None if end is None else function(values))
    return pl.Series(results, dtype=pl.Int64)


def tiled(series, groups):
    """Number the groups of sorted values; the first groups are larger by one."""
    rows = [i for i, value in enumerate(series) if value is not None]
    rows.sort(key=lambda i: (series[i] != series[i], 0 if series[i] != series[i] else series[i], i))
    numbers, start = [None] * len(series), 0
    for group in range(groups):
        size = len(rows) // groups + (group < len(rows) % groups)
        for row in rows[start : start + size]:
            numbers[row] = group + 1
        start += size
    return pl.Series(numbers, dtype=pl.Int64)


def mapped(row):
    return [None if e is None or row["k"] is None else e * 2 + row["k"] for e in row["l"]]


def share_of_rank(**options):
    return (C("v").rank("min", **options) - 1) / pl.max_horizontal(C("v").count().cast(pl.Int64) - 1, 1)


SLICES = [
    slice(-3, None), slice(-3, -1), slice(1, -1), slice(None, -2), slice(-3, 4), slice(None, None, 2),
    slice(1, None, 3), slice(None, None, -1), slice(-2, 2), slice(2, 1), slice(-100, 3), slice(-1, -5),
]  # fmt: skip
CASES = {
    "tail": (lambda o: o.tail(2), lambda f: f.tail(2)),
    "tail 0": (lambda o: o.tail(0), lambda f: f.tail(0)),
    "tail all": (lambda o: o.tail(100), lambda f: f.tail(100)),
    "head -2": (lambda o: o.head(-2), lambda f: f.head(-2)),
    "tail -2": (lambda o: o.tail(-2), lambda f: f.tail(-2)),
    **{f"{s.start}:{s.stop}:{s.step}": (lambda o, s=s: o[s], lambda f, s=s: sliced(f, s)) for s in SLICES},
    "slice": (lambda o: o.slice(-3, 2), lambda f: f.slice(-3, 2)),
    "tail of tail": (lambda o: o.tail(4).tail(2).head(1), lambda f: f.tail(4).tail(2).head(1)),
    "reverse": (lambda o: o.reverse(), lambda f: f.reverse()),
    "forward_fill": (
        lambda o: o.select(a=col("v").forward_fill(), b=col("x").forward_fill(), c=col("s").forward_fill(1)),
        lambda f: f.select(a=C("v").forward_fill(), b=C("x").forward_fill(), c=C("s").forward_fill(1)),
    ),
    "backward_fill": (
        lambda o: o.select(a=col("v").backward_fill(), b=col("b").backward_fill(), c=col("s").backward_fill(1)),
        lambda f: f.select(a=C("v").backward_fill(), b=C("b").backward_fill(), c=C("s").backward_fill(1)),
    ),
    "forward_fill over": (
        lambda o: o.select(a=col("v").forward_fill().over("k")),
        lambda f: f.select(a=C("v").forward_fill().over("k")),
    ),
    "interpolate": (
        lambda o: o.select(a=col("v").interpolate(), b=col("v").interpolate().over("k")),
        lambda f: f.select(a=C("v").interpolate(), b=C("v").interpolate().over("k")),
    ),
    "pct_change": (
        lambda o: o.select(a=col("v").pct_change(), b=col("v").pct_change(2).over("k")),
        lambda f: f.select(a=C("v") / C("v").shift(1) - 1, b=(C("v") / C("v").shift(2) - 1).over("k")),
    ),
    "diff over": (
        lambda o: o.select(a=col("v").diff().over(["k"])),
        lambda f: f.select(a=C("v").diff().over("k")),
    ),
    "filtered aggregates": (
        lambda o: o.group_by("k").agg(
            a=col("v").filter(col("v") > 3).sum(),
            c=col("s").filter(col("b"), col("v") > 0).collect(),
            d=col("v").filter(col("b")).count(),
            e=col("x").filter(col("b")).max(),
            g=col("v").filter(col("b")).first(),
            h=col("l").filter(col("b")).last(),
        ),
        lambda f: (
            f.group_by("k")
            .agg(
                a=C("v").filter(C("v") > 3).sum(),
                c=C("s").filter(C("b") & (C("v") > 0)),
                d=C("v").filter(C("b")).count().cast(pl.Int64),
                e=C("x").filter(C("b")).max(),
                g=C("v").filter(C("b")).first(),
                h=C("l").filter(C("b")).last(),
            )
            .sort("k", nulls_last=True)
        ),
    ),
    "filtered window": (
        lambda o: o.select(a=col("v").filter(col("b")).sum().over("k")),
        lambda f: f.select(a=C("v").filter(C("b")).sum().over("k")),
    ),
    "unpivot": (lambda o: o.unpivot(["v", "x"], index="k"), lambda f: f.unpivot(["v", "x"], index="k")),
    "unpivot by type": (
        lambda o: o.unpivot(of_type("numeric"), index=["s"], variable_name="n", value_name="w"),
        lambda f: f.unpivot(["k", "v", "x"], index="s", variable_name="n", value_name="w"),
    ),
    "unnest": (lambda o: o.unnest("z"), lambda f: f.unnest("z")),
    "rolling by time": (
        lambda o: o.select(
            a=col("v").rolling("sum", "3h", by="t"), b=col("v").rolling("count", timedelta(hours=5), by="t")
        ),
        lambda f: f.select(a=rolled(f, 3, sum), b=rolled(f, 5, len)),
    ),
    "several columns": (lambda o: o.select(col("k", "v") * 2), lambda f: f.select(C("k", "v") * 2)),
    "all but": (
        lambda o: o.select(exclude("l", "z", "t").is_null().suffix("_n")),
        lambda f: f.select(pl.exclude("l", "z", "t").is_null().name.suffix("_n")),
    ),
    "all columns": (
        lambda o: o.select("k", "v").select(all_columns().max()),
        lambda f: f.select("k", "v").select(pl.all().max()),
    ),
    "by type": (
        lambda o: o.with_columns(of_type(int, "Bool").is_null()),
        lambda f: f.with_columns(C("k", "v", "b").is_null()),
    ),
    "several aggregates": (
        lambda o: o.group_by(["k"]).agg([col("v", "x").count().prefix("n_")]),
        lambda f: f.group_by("k").agg(C("v", "x").count().cast(pl.Int64).name.prefix("n_")).sort("k", nulls_last=True),
    ),
    "several conditions": (
        lambda o: o.filter([col("k", "v") > 0]),
        lambda f: f.filter(C("k") > 0, C("v") > 0),
    ),
    "lists of columns": (
        lambda o: o.select(["k", "v"]).sort(["k", "v"], descending=[True, False]).distinct(["k"]).drop(["v"]),
        lambda f: (
            f.select("k", "v")
            .sort("k", "v", descending=[True, False], **LAST)
            .unique("k", keep="first", maintain_order=True)
            .drop("v")
        ),
    ),
    "top k per group": (
        lambda o: o.sort("v", descending=True).group_by("k").head(2),
        lambda f: f.sort("v", descending=True, **LAST).filter(pl.int_range(pl.len()).over("k") < 2),
    ),
    "last per group": (
        lambda o: o.group_by(["k"]).tail(1),
        lambda f: f.filter(pl.int_range(pl.len()).over("k") == pl.len().over("k").cast(pl.Int64) - 1),
    ),
    "isin Object": (
        lambda o: o.filter(col("k").isin(o.filter(col("v") > 4)["k"])),
        lambda f: f.filter(C("k").is_in(f.filter(C("v") > 4)["k"].drop_nulls().implode())),
    ),
    "isin other type": (
        lambda o: o.select(a=col("k").isin(o["x"]), b=~col("s").isin(o.filter(col("v") > 3)["s"])),
        lambda f: f.select(
            a=C("k").cast(pl.Float64).is_in(f["x"].drop_nulls().implode()),
            b=~C("s").is_in(f.filter(C("v") > 3)["s"].drop_nulls().implode()),
        ),
    ),
    "isin of a column": (
        lambda o: o[o["k"].isin(o.filter(col("v") > 4)["k"])],
        lambda f: f.filter(C("k").is_in(f.filter(C("v") > 4)["k"].drop_nulls().implode())),
    ),
    "scalar Object": (lambda o: o.filter(col("v") > o["v"].mean()), lambda f: f.filter(C("v") > C("v").mean())),
    "union": (
        lambda o: o.select("k", "s").union(o.select("k", "s")[2:], [o.select("s", "k")]),
        lambda f: f.select("k", "s").unique(maintain_order=True),
    ),
    "intersect": (
        lambda o: o.select("k", "s").intersect(o.select("k", "s").filter(col("k").is_null() | (col("k") > 1))),
        lambda f: f.select("k", "s").filter(C("k").is_null() | (C("k") > 1)).unique(maintain_order=True),
    ),
    "difference": (
        lambda o: o.select("k", "x").difference(o.select("k", "x").filter(col("k") > 1)),
        lambda f: f.select("k", "x").filter(~(C("k") > 1).fill_null(False)).unique(maintain_order=True),
    ),
    "diagonal": (
        lambda o: o.select("k", "v").concat(o.select("v", "s", "l"), how="diagonal"),
        lambda f: pl.concat([f.select("k", "v"), f.select("v", "s", "l")], how="diagonal"),
    ),
    "list.map": (
        lambda o: o.select(a=col("l").list.map(lambda e: e * 2 + col("k")), b=o["l"].list.map(lambda e: e > 2)),
        lambda f: f.select(
            a=pl.struct("l", "k").map_elements(mapped, return_dtype=pl.List(pl.Int64)),
            b=C("l").list.eval(pl.element() > 2),
        ),
    ),
    "list.filter": (
        lambda o: o.select(a=col("l").list.filter(lambda e: e > 2), b=col("l").list.filter(lambda e: e.is_null())),
        lambda f: f.select(
            a=C("l").list.eval(pl.element().filter(pl.element() > 2)),
            b=C("l").list.eval(pl.element().filter(pl.element().is_null())),
        ),
    ),
    "mode": (
        lambda o: o.group_by("k").agg(a=col("s").mode(), b=col("v").mode(), c=col("b").mode()),
        lambda f: (
            f.group_by("k").agg(
                a=C("s").drop_nulls().mode().sort().first(),
                b=C("v").drop_nulls().mode().sort().first(),
                c=C("b").drop_nulls().mode().sort().first(),
            )
        ).sort("k", nulls_last=True),
    ),
    "cut": (
        lambda o: o.select(a=col("v").cut([2, 4.5]), b=col("x").cut([0, 1], labels=["lo", "mid", "hi"])),
        lambda f: f.select(
            a=C("v").cut([2, 4.5]).cast(pl.String),
            b=pl.when(C("x").is_nan())
            .then(pl.lit("hi"))
            .otherwise(C("x").cut([0, 1], labels=["lo", "mid", "hi"]).cast(pl.String)),
        ),
    ),
    "qcut": (
        lambda o: o.select(a=col("v").qcut(2), b=col("v").qcut([0.25, 0.5], labels=["x", "y", "z"])),
        lambda f: f.select(
            a=C("v").qcut([0.5], labels=["0", "1"]).cast(pl.String).cast(pl.Int64),
            b=C("v").qcut([0.25, 0.5], labels=["x", "y", "z"], allow_duplicates=True).cast(pl.String),
        ),
    ),
    "replace": (
        lambda o: o.select(
            a=col("v").replace({5: 50, 3: None}),
            b=col("s").replace({"a": "A", None: "none"}, default="?"),
            c=col("v").replace({9: 1.5}, default=None),
        ),
        lambda f: f.select(
            a=C("v").replace({5: 50, 3: None}),
            b=C("s").replace_strict({"a": "A", None: "none"}, default="?"),
            c=C("v").replace_strict({9: 1.5}, default=None, return_dtype=pl.Float64),
        ),
    ),
    "fill_nan": (lambda o: o.select(a=col("x").fill_nan(7.0)), lambda f: f.select(a=C("x").fill_nan(7.0))),
    "percent_rank": (
        lambda o: o.select(a=col("v").percent_rank(), b=col("v").percent_rank(descending=True).over("k")),
        lambda f: f.select(a=share_of_rank(), b=share_of_rank(descending=True).over("k")),
    ),
    "ntile": (
        lambda o: o.select(a=col("v").ntile(2), b=col("x").ntile(3)),
        lambda f: f.select(a=tiled(f["v"], 2), b=tiled(f["x"], 3)),
    ),
    "directions": (
        lambda o: o.select(a=row_number(order_by=["k", "v"], descending=[True, False])),
        lambda f: (
            f.with_row_index("i")
            .sort("k", "v", descending=[True, False], **LAST)
            .with_columns(a=pl.int_range(1, pl.len() + 1))
            .sort("i")
            .select("a")
        ),
    ),
    "join on expressions": (
        lambda o: o.select("k", "v").join(o.select("v", "s"), left_on=col("k") + 2, right_on="v"),
        lambda f: f.select("k", "v").join(
            f.select("v", "s"), left_on=C("k") + 2, right_on="v", maintain_order="left_right", coalesce=False
        ),
    ),
    "left join on expressions": (
        lambda o: o.select("k", "v").join(o.select("v", "s"), left_on=[col("k") + 2], right_on=["v"], how="left"),
        lambda f: f.select("k", "v").join(
            f.select("v", "s"), left_on=C("k") + 2, right_on="v", how="left", maintain_order="left_right",
            coalesce=False,
        ),
    ),
    "join_where": (
        lambda o: o.select("k", "v").join_where(
            o.select("k", "v"), col("k") == col("k_right"), col("v") < col("v_right")
        ),
        lambda f: (
            f.select("k", "v")
            .join(f.select("k", "v"), on="k", how="inner", maintain_order="left_right")
            .with_columns(k_right="k")
            .filter(C("v") < C("v_right"))
            .select("k", "v", "k_right", "v_right")
        ),
    ),
    "join_where of inequalities": (
        lambda o: o.select("k", "v").join_where(o.select("v"), (col("k") > col("v_right")) & (col("v") > 0)),
        lambda f: f.select("k", "v").join(f.select("v"), how="cross").filter(C("k") > C("v_right"), C("v") > 0),
    ),
    "group_by_time": (
        lambda o: o.group_by_time("t", "2h").agg(n=length(), s=col("v").sum(), m=col("v").max(), c=col("s").first()),
        lambda f: (
            f.drop_nulls("t")
            .sort("t")
            .group_by_dynamic("t", every="2h")
            .agg(n=pl.len().cast(pl.Int64), s=C("v").sum(), m=C("v").max(), c=C("s").first())
            .upsample("t", every="2h")
            .with_columns(n=C("n").fill_null(0), s=C("s").fill_null(0))
        ),
    ),
}  # fmt: skip
