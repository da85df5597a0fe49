"""Random frames and expressions of the random chains: pairs for aaiclick and polars."""

# ruff: noqa: DTZ001  (datetimes without a time zone are tested too)

from __future__ import annotations

import math
import random
from datetime import date, datetime, timedelta
from decimal import Decimal

import polars as pl

from aaiclick.data import col, if_else

NAN, INF = math.nan, math.inf
TIMES = [
    datetime(1999, 12, 31, 23, 59, 59, 999999), datetime(2024, 2, 29, 12), datetime(2024, 2, 29, 14, 30),
    datetime(1960, 1, 1, 0, 0, 0, 1),
]  # fmt: skip
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
            "t": column(TIMES, pl.Datetime("us")),
            "p": column([timedelta(0), timedelta(hours=-1), timedelta(days=40, microseconds=1)], pl.Duration("us")),
            "c": column([Decimal("0.00"), Decimal("-1.50"), Decimal("99.99")], pl.Decimal(18, 2)),
            "u": column([0, 1, 7, 2**63, 2**64 - 1], pl.UInt64),
            "l": column([[], [1], [3, 1, 2], [None, 5]], pl.List(pl.Int64)),
        }
    )


FAMILIES = {
    pl.Int64: "int", pl.Float64: "float", pl.String: "text", pl.Boolean: "bool", pl.Date: "date",
    pl.Datetime: "datetime", pl.Duration: "duration", pl.Decimal: "decimal", pl.UInt64: "unsigned", pl.List: "list",
}  # fmt: skip
PREFIXES = {"int": "i", "float": "f", "text": "s", "bool": "b", "date": "d", "datetime": "t", "duration": "p",
            "decimal": "c", "unsigned": "u", "list": "l"}  # fmt: skip
"""First letter of the names of columns."""

DTYPES = {"datetime": pl.Datetime("us"), "duration": pl.Duration("us"), "decimal": pl.Decimal(38, 2),
          "list": pl.List(pl.Int64)}  # fmt: skip
CONSTANTS = {"int": 3, "float": 0.5, "text": "x", "bool": True, "date": date(2020, 1, 1),
             "datetime": datetime(2020, 1, 1, 5), "duration": timedelta(minutes=3), "decimal": Decimal("0.25"),
             "unsigned": 5}  # fmt: skip


def family_of(dtype) -> str:
    return FAMILIES[dtype.base_type()]


def flat_columns(frame: pl.DataFrame) -> list[str]:
    """Return the columns that can be keys: all but lists."""
    return [name for name, dtype in frame.schema.items() if family_of(dtype) != "list"]


def compare_floats(left, right, operator):
    """Compare as in Python, where NaN is not greater than numbers."""
    return pl.when(left.is_nan() | right.is_nan()).then(operator == "ne").otherwise(getattr(left, operator)(right))


class Expressions:
    """Random expressions over the columns of a frame: pairs for aaiclick and polars."""

    def __init__(self, chance: random.Random, frame: pl.DataFrame) -> None:
        self.chance = chance
        self.columns = {family: [] for family in FAMILIES.values()}
        for name, dtype in frame.schema.items():
            self.columns[family_of(dtype)].append(name)
        self.columns["int"] = [name for name in self.columns["int"] if not name.startswith("j")]
        self.extreme = [name for name in frame.columns if name.startswith("j")]

    def any_column(self) -> str:
        return self.chance.choice([name for names in self.columns.values() for name in names] + self.extreme)

    def leaf(self, family):
        names = self.columns[family]
        if not names:
            value = CONSTANTS[family]
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
            lambda: self.list_number(depth),
            lambda: self.time_number(depth),
        ]
        return self.chance.choice(choices)()

    def list_number(self, depth):
        names = self.columns["list"]
        if not names:
            return self.leaf("int")
        name, rows = self.chance.choice(names), self.chance.choice([0, -1, 2])
        x, p = col(name).list, pl.col(name).list
        choices = [
            (x.len(), p.len().cast(pl.Int64)),
            (x.get(rows), p.get(rows, null_on_oob=True)),
            (x.max(), p.max()),
            (x.reverse().list.get(0), p.reverse().list.get(0, null_on_oob=True)),
            (x.slice(1, 1).list.max(), p.slice(1, 1).list.max()),
        ]
        return self.chance.choice(choices)

    def time_number(self, depth):
        t, u = self.build("datetime", depth)
        part = self.chance.choice(["hour", "minute", "second", "microsecond", "year", "ordinal_day"])
        if part == "microsecond":
            return t.dt.microsecond(), u.dt.microsecond().cast(pl.Int64)
        return getattr(t.dt, part)(), getattr(u.dt, part)().cast(pl.Int64)

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
            lambda: self.seconds(depth),
            lambda: self.choose("float", depth),
        ]
        return self.chance.choice(choices)()

    def seconds(self, depth):
        t, u = self.build("duration", depth)
        return t.dt.total_seconds(), u.dt.total_microseconds() / 1e6

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
            lambda: self.comparison(depth, operator),
        ]
        return self.chance.choice(choices)()

    def comparison(self, depth, operator):
        family = self.chance.choice(["datetime", "duration", "decimal", "unsigned", "date"])
        (a, p), (b, q) = self.build(family, depth), self.build(family, depth)
        return getattr(a, f"__{operator}__")(b), getattr(p, operator)(q)

    def build_datetime(self, depth):
        (t, u), (p, q) = self.build("datetime", depth), self.build("duration", depth)
        every, same = self.chance.choice([("hour", "1h"), ("15m", "15m"), ("month", "1mo"), ("1d", "1d")])
        choices = [
            lambda: (t + p, u + q),
            lambda: (t - timedelta(hours=1), u - pl.duration(hours=1)),
            lambda: (t.dt.truncate(every), u.dt.truncate(same)),
            lambda: (t.fill_null(TIMES[1]), u.fill_null(TIMES[1])),
            lambda: self.choose("datetime", depth),
        ]
        return self.chance.choice(choices)()

    def build_duration(self, depth):
        (a, p), (b, q) = self.build("duration", depth), self.build("duration", depth)
        (t, u), (v, w) = self.build("datetime", 0), self.build("datetime", 0)
        (d, e), (g, h) = self.build("date", 0), self.build("date", 0)
        choices = [
            lambda: (a + b, p + q),
            lambda: (a - b, p - q),
            lambda: (-a, -p),
            lambda: (a.abs(), p.abs()),
            lambda: (a * 3, p * 3),
            lambda: (t - v, u - w),
            lambda: (d - g, (e - h).cast(pl.Duration("us"))),
            lambda: self.choose("duration", depth),
        ]
        return self.chance.choice(choices)()

    def build_decimal(self, depth):
        (a, p), (b, q) = self.build("decimal", depth), self.build("decimal", depth)
        choices = [
            lambda: (a + b, p + q),
            lambda: (a - b, p - q),
            lambda: (-a, -p),
            lambda: (a.abs(), p.abs()),
            lambda: (a.fill_null(Decimal("0.25")), p.fill_null(pl.lit(Decimal("0.25")))),
            lambda: self.choose("decimal", depth),
        ]
        return self.chance.choice(choices)()

    def build_unsigned(self, depth):
        a, p = self.build("unsigned", depth)
        number = self.chance.choice([1, 2, 7])
        choices = [
            lambda: (a // number, p // number),
            lambda: (a % number, p % number),
            lambda: (a.fill_null(number), p.fill_null(number)),
            lambda: self.choose("unsigned", depth),
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
