"""Random chains of operations on Objects, compared with the same chains in polars.

    python -m tests.integration.data.chains --chains 10000 [--seed 0] [--concurrent 4]

The command prints the differences and exits with status 1 if there are any. `test_chains.py` runs a few chains of
Hypothesis's choice. Where docs/values.md has a rule of its own, the polars side spells that rule out.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import sys
from collections import Counter
from datetime import date, timedelta

import polars as pl

from aaiclick.data import DataContext, col, create_object_from_value, if_else
from aaiclick.data.errors import QueryError

NAN, INF = math.nan, math.inf
LAST = {"nulls_last": True, "maintain_order": True}


def random_frame(chance: random.Random) -> pl.DataFrame:
    """Return a frame of 0 to 12 rows with NULLs, NaN, infinities, -0.0 and extreme integers."""
    size = chance.choice([0, 1, 2, 5, 8, 12])

    def column(values, dtype):
        nulls = chance.choice([0.0, 0.3])
        return pl.Series([None if chance.random() < nulls else chance.choice(values) for _ in range(size)], dtype=dtype)

    floats = [0.0, -0.0, 1.5, -2.5, 3.0, 1e9, *chance.choice([[], [NAN, INF, -INF]])]
    return pl.DataFrame(
        {
            "k": column([0, 1, 2], pl.Int64),
            "i": column([*range(-5, 6), 1000], pl.Int64),
            "j": column([2**63 - 1, -(2**63), 0, 7, 2**53 + 1], pl.Int64),
            "f": column(floats, pl.Float64),
            "s": column(["", "a", "ab", " b\t", "é", "Zz"], pl.String),
            "b": column([True, False], pl.Boolean),
            "d": column([date(1999, 12, 31), date(2024, 2, 29), date(1960, 1, 1)], pl.Date),
        }
    )


FAMILIES = {pl.Int64: "int", pl.Float64: "float", pl.String: "text", pl.Boolean: "bool", pl.Date: "date"}


def compare_floats(left, right, operator):
    """Compare as in Python, where NaN is not greater than numbers."""
    return pl.when(left.is_nan() | right.is_nan()).then(operator == "ne").otherwise(getattr(left, operator)(right))


class Expressions:
    """Random expressions over the columns of a frame: pairs for aaiclick and polars."""

    def __init__(self, chance: random.Random, frame: pl.DataFrame) -> None:
        self.chance = chance
        self.columns = {family: [] for family in FAMILIES.values()}
        for name, dtype in frame.schema.items():
            self.columns[FAMILIES[dtype]].append(name)
        self.columns["int"] = [name for name in self.columns["int"] if not name.startswith("j")]
        self.extreme = [name for name in frame.columns if name.startswith("j")]

    def any_column(self) -> str:
        return self.chance.choice([name for names in self.columns.values() for name in names] + self.extreme)

    def leaf(self, family):
        names = self.columns[family]
        if not names:
            value = {"int": 3, "float": 0.5, "text": "x", "bool": True, "date": date(2020, 1, 1)}[family]
            some = self.any_column()
            missing, same = col(some).is_null(), pl.col(some).is_null()
            return if_else(missing, value, value), pl.when(same).then(pl.lit(value)).otherwise(pl.lit(value))
        name = self.chance.choice(names)
        return col(name), pl.col(name)

    def build(self, family, depth=2):
        if depth == 0 or self.chance.random() < 0.25:
            return self.leaf(family)
        return getattr(self, f"build_{family}")(depth - 1)

    def build_int(self, depth):
        (a, p), (b, q) = self.build("int", depth), self.build("int", depth)
        number = self.chance.choice([1, 2, 3, 7])
        choices = [
            lambda: (a + b, p + q),
            lambda: (a - b, p - q),
            lambda: ((a % 1000) * (b % 1000), (p % 1000) * (q % 1000)),
            lambda: (a // number, p // number),
            lambda: (a % number, p % number),
            lambda: ((a % 10) ** 3, (p % 10) ** 3),
            lambda: (a.abs(), p.abs()),
            lambda: (-a, -p),
            lambda: (a.fill_null(number), p.fill_null(number)),
            lambda: (a.clip(-number, number), p.clip(-number, number)),
            lambda: self.choose("int", depth),
            lambda: self.text_length(depth),
            lambda: self.date_part(depth),
        ]
        return self.chance.choice(choices)()

    def text_length(self, depth):
        t, u = self.build("text", depth)
        return t.str.length(), u.str.len_chars().cast(pl.Int64)

    def date_part(self, depth):
        d, e = self.build("date", depth)
        part = self.chance.choice(["year", "month", "day", "quarter", "weekday", "week"])
        return getattr(d.dt, part)(), getattr(e.dt, part)().cast(pl.Int64)

    def build_float(self, depth):
        (a, p), (b, q) = self.build("float", depth), self.build("float", depth)
        i, j = self.build("int", depth)
        choices = [
            lambda: (a + b, p + q),
            lambda: (a - b, p - q),
            lambda: (a * 0.5, p * 0.5),
            lambda: (i / 4, j / 4),
            lambda: (a.round(1), p.round(1)),
            lambda: (a.floor(), p.floor()),
            lambda: (a.sign(), p.sign()),
            lambda: (a.clip(-1.0, 1.0), p.clip(-1.0, 1.0)),
            lambda: (a.fill_null(0.0), p.fill_null(0.0)),
            lambda: (i.cast(float), j.cast(pl.Float64)),
            lambda: self.choose("float", depth),
        ]
        return self.chance.choice(choices)()

    def build_text(self, depth):
        (a, p), (b, q) = self.build("text", depth), self.build("text", depth)
        i, j = self.build("int", depth)
        x, y = self.build("bool", depth)
        choices = [
            lambda: (a + b, p + q),
            lambda: (a.str.upper(), p.str.to_uppercase()),
            lambda: (a.str.strip(), p.str.strip_chars()),
            lambda: (a.str.slice(0, 2), p.str.slice(0, 2)),
            lambda: (a.str.replace("a", "é"), p.str.replace_all("a", "é", literal=True)),
            lambda: (a.str.extract("(a.?)"), p.str.extract("(a.?)")),
            lambda: (i.cast(str), j.cast(pl.String)),
            lambda: (x.cast(str), y.cast(pl.String)),
            lambda: self.choose("text", depth),
        ]
        return self.chance.choice(choices)()

    def build_bool(self, depth):
        (a, p), (b, q) = self.build("bool", depth), self.build("bool", depth)
        (i, j), (f, g), (t, u) = self.build("int", depth), self.build("float", depth), self.build("text", depth)
        operator = self.chance.choice(["eq", "ne", "lt", "le", "gt", "ge"])
        other, same = self.build("int", depth)
        python = f"__{operator}__"
        choices = [
            lambda: (a & b, p & q),
            lambda: (a | b, p | q),
            lambda: (~a, ~p),
            lambda: (getattr(i, python)(other), getattr(j, operator)(same)),
            lambda: (getattr(f, python)(1.5), compare_floats(g, pl.lit(1.5), operator)),
            lambda: (f.is_nan(), g.is_nan()),
            lambda: (i.is_null(), j.is_null()),
            lambda: (i.isin([1, 2]), j.is_in([1, 2])),
            lambda: (t.str.starts_with("a"), u.str.starts_with("a")),
        ]
        return self.chance.choice(choices)()

    def build_date(self, depth):
        d, e = self.build("date", depth)
        days = self.chance.choice([-1, 1, 31])
        choices = [
            lambda: (d + timedelta(days=days), e + pl.duration(days=days)),
            lambda: (d.dt.truncate("month"), e.dt.truncate("1mo")),
            lambda: self.choose("date", depth),
        ]
        return self.chance.choice(choices)()

    def choose(self, family, depth):
        (x, y), (a, p), (b, q) = self.build("bool", depth), self.build(family, depth), self.build(family, depth)
        return if_else(x, a, b), pl.when(y).then(p).otherwise(q)


# --- steps -------------------------------------------------------------------------------------------------------

AGGREGATES = {
    "count": (lambda x: x.count(), lambda p: p.count().cast(pl.Int64), ("int", "float", "text", "bool", "date")),
    "nunique": (lambda x: x.nunique(), lambda p: p.drop_nulls().n_unique().cast(pl.Int64), ("int", "float", "text")),
    "min": (lambda x: x.min(), lambda p: p.min(), ("int", "float", "date", "text")),
    "max": (lambda x: x.max(), lambda p: p.max(), ("int", "float", "date", "text")),
    "first": (lambda x: x.first(), lambda p: p.first(), ("int", "float", "text", "date", "bool")),
    "last": (lambda x: x.last(), lambda p: p.last(), ("int", "float", "text", "date", "bool")),
    "sum": (lambda x: x.sum(), lambda p: p.sum().cast(pl.Int64), ("int", "bool")),
    "float sum": (lambda x: x.sum(), lambda p: p.sum(), ("float",)),
    "mean": (lambda x: x.mean(), lambda p: p.mean(), ("int", "float", "bool")),
    "median": (lambda x: x.median(), lambda p: p.median(), ("int",)),
    "float median": (lambda x: x.clip(-1e9).median(), lambda p: p.clip(-1e9).median(), ("float",)),
    "std": (lambda x: x.std(), lambda p: p.std(), ("int",)),
}


class Chain:
    """One random chain; `steps` describes it."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.frame = random_frame(self.chance)
        self.other = random_frame(self.chance).select("k", "i", "s").rename({"i": "oi", "s": "os"})
        self.steps: list[str] = []
        self.objects: tuple = ()

    async def run(self):
        """Return the Object and the frame that the chain gives."""
        self.objects = (await create_object_from_value(self.frame), await create_object_from_value(self.other))
        obj, frame = self.objects[0], self.frame
        for _ in range(self.chance.randint(2, 6)):
            step = self.chance.choice(STEPS)
            changed = step(self, obj, frame)
            if changed is not None:
                self.steps.append(step.__name__)
                obj, frame = changed
        return obj, frame

    def unused(self, names, prefix):
        return next(f"{prefix}{n}" for n in range(100) if f"{prefix}{n}" not in names)


def add_column(chain, obj, frame):
    family = chain.chance.choice(["int", "float", "text", "bool", "date"])
    expression, same = Expressions(chain.chance, frame).build(family)
    name = chain.unused(frame.columns, {"int": "i", "float": "f", "text": "s", "bool": "b", "date": "d"}[family])
    dtype = next(dtype for dtype, value in FAMILIES.items() if value == family)
    return obj.with_columns(**{name: expression}), frame.with_columns(same.cast(dtype).alias(name))


def keep_rows(chain, obj, frame):
    condition, same = Expressions(chain.chance, frame).build("bool")
    return obj.filter(condition), frame.filter(same)


def sort_rows(chain, obj, frame):
    names = chain.chance.sample(frame.columns, min(2, frame.width))
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
    names = chain.chance.sample(frame.columns, min(2, frame.width))
    return obj.distinct(*names), frame.unique(names, keep="first", maintain_order=True)


def aggregate_groups(chain, obj, frame):
    keys = chain.chance.sample(frame.columns, chain.chance.choice([1, 2]) if frame.width > 1 else 1)
    values, same = {}, {}
    for name, dtype in frame.schema.items():
        options = [n for n, (_, _, families) in AGGREGATES.items() if FAMILIES[dtype] in families]
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
    how = chain.chance.choice(["inner", "left", "semi", "anti"])
    order = {} if how in ("semi", "anti") else {"maintain_order": "left_right"}
    return obj.join(chain.objects[1], "k", how), frame.join(chain.other, on="k", how=how, **order)


def add_window(chain, obj, frame):
    expressions = Expressions(chain.chance, frame)
    if not expressions.columns["int"]:
        return None
    name, key = chain.chance.choice(expressions.columns["int"]), chain.chance.choice(frame.columns)
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
    key, count = chain.chance.choice(frame.columns), chain.chance.choice([1, 2])
    number = pl.int_range(pl.len()).over(key)
    if chain.chance.random() < 0.5:
        return obj.group_by(key).head(count), frame.filter(number < count)
    return obj.group_by(key).tail(count), frame.filter(number >= pl.len().over(key).cast(pl.Int64) - count)


def fill_column(chain, obj, frame):
    name, key = chain.chance.choice(frame.columns), chain.chance.choice(frame.columns)
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


STEPS = (
    take_last_rows, take_rows_of_groups, fill_column, combine_rows, filter_by_object,
    add_column, add_column, add_column, keep_rows, sort_rows, slice_rows, keep_distinct, aggregate_groups, join_other,
    add_window, add_window, append_rows, drop_column, number_rows,
)  # fmt: skip


def equals(a, b) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
    return type(a) is type(b) and a == b


async def run_chain(seed: int) -> str | None:
    """Run one chain; return a description of the first difference, or "refused", or None."""
    chain = Chain(seed)
    obj, frame = await chain.run()
    try:
        actual = await obj.data()
    except QueryError as error:
        return "refused" if "does not fit" in str(error) else f"seed {seed} {chain.steps}: {str(error)[:300]}"
    expected = frame.to_dict(as_series=False)
    if list(actual) != list(expected):
        return f"seed {seed} {chain.steps}: columns {list(actual)} are not {list(expected)}"
    for name, values in expected.items():
        if len(values) != len(actual[name]) or not all(map(equals, actual[name], values)):
            return f"seed {seed} {chain.steps}: {name} is {actual[name]}, not {values}"
    return None


async def run_chains(first: int, count: int, concurrent: int) -> tuple[Counter, list[str]]:
    seeds = iter(range(first, first + count))
    results: Counter = Counter()
    differences: list[str] = []

    async def work() -> None:
        for seed in seeds:
            outcome = await run_chain(seed)
            results["equal" if outcome is None else "refused" if outcome == "refused" else "different"] += 1
            if outcome not in (None, "refused"):
                differences.append(outcome)
                print(outcome, flush=True)
            if sum(results.values()) % 1000 == 0:
                print(dict(results), flush=True)

    async with DataContext():
        await asyncio.gather(*(work() for _ in range(concurrent)))
    return results, differences


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chains", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--concurrent", type=int, default=4)
    arguments = parser.parse_args()
    results, differences = asyncio.run(run_chains(arguments.seed, arguments.chains, arguments.concurrent))
    print(dict(results))
    sys.exit(1 if differences else 0)


if __name__ == "__main__":
    main()
