"""Every function × type × edge value returns the exact value, or fails where docs/values.md says so."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction

import polars as pl
import pyarrow as pa
import pytest

from aaiclick.data import col, create_object_from_value
from aaiclick.data.errors import DataTypeError, QueryError
from tests.integration.data import conformance as c

BATCH = 150


def equals(actual, expected, tolerance=1e-12):
    if expected is None or actual is None:
        return actual is None and expected is None
    if isinstance(actual, datetime) and actual.tzinfo:  # Python compares datetimes of one zone by their local time
        return isinstance(expected, datetime) and actual.astimezone(UTC) == expected.astimezone(UTC)
    if isinstance(expected, Fraction):
        return (Fraction(actual) == expected) if not isinstance(actual, float) else math.isclose(actual, expected)
    if isinstance(expected, float) and isinstance(actual, float):
        return (
            actual == expected
            or (math.isnan(actual) and math.isnan(expected))
            or math.isclose(actual, expected, rel_tol=tolerance)
        )
    if isinstance(actual, bool) is not isinstance(expected, bool):
        return False
    if isinstance(actual, Decimal):
        return Fraction(actual) == Fraction(expected)
    return actual == expected


class Cases:
    """Expressions over one Object with their expected values, run in batches."""

    def __init__(self, obj) -> None:
        self.obj = obj
        self.expressions = {}
        self.failures = []

    def add(self, name, expression, expected):
        """Add an expression; where a value is FAILS, the row must raise an error and the others must not."""
        failing = [row for row, value in enumerate(expected) if value is c.FAILS]
        if failing:
            self.failures.append((name, expression, failing))
        self.expressions[name] = (expression, expected)

    async def run(self):
        problems = []
        plain = [name for name, (_, expected) in self.expressions.items() if c.FAILS not in expected]
        partial = [name for name in self.expressions if name not in set(plain)]
        for start in range(0, len(plain), BATCH):
            names = plain[start : start + BATCH]
            try:
                actual = await self.obj.select(**{name: self.expressions[name][0] for name in names}).data()
            except QueryError:
                partial += names
                continue
            problems += [line for name in names for line in self._differences(name, actual[name])]
        for name in partial:
            expression, expected = self.expressions[name]
            rows = [row for row, value in enumerate(expected) if value is not c.FAILS]
            some = self.obj.filter(col("row").isin(rows))
            try:
                actual = (await some.select(value=expression).data())["value"]
            except QueryError as error:
                problems.append(f"{name}: {error}")
                continue
            values = iter(actual)
            problems += self._differences(name, [c.FAILS if v is c.FAILS else next(values) for v in expected])
        for name, expression, rows in self.failures:
            try:
                value = await self.obj.filter(col("row") == rows[0]).select(value=expression).data()
            except QueryError as error:
                if "ClickHouse refused" in str(error) and not name.startswith("cast s "):  # those show the text
                    problems.append(f"{name}, row {rows[0]}: {error}")
            else:
                problems.append(f"{name}, row {rows[0]}: {value} instead of an error")
        return problems

    def _differences(self, name, actual):
        expected = self.expressions[name][1]
        return [
            f"{name}, row {row}: {a!r} is not {e!r}"
            for row, (a, e) in enumerate(zip(actual, expected, strict=True))
            if e not in (c.FAILS, c.ANYTHING) and not equals(a, e)
        ]


async def edges():
    return await create_object_from_value(c.edge_table())


def pairs(left, right):
    return [(p, q) for p in c.edge_values(left) for q in c.edge_values(right)]


def report(problems):
    assert not problems, f"{len(problems)} differences:\n" + "\n".join(problems[:150])


@pytest.mark.usefixtures("data")
async def test_arithmetic_and_comparison_of_all_number_types():
    obj = await edges()
    cases = Cases(obj)
    for left in c.NUMBERS:
        for right in c.NUMBERS:
            for name, (expression, reference) in c.BINARY.items():
                node = expression(col(f"a_{left.name}"), col(f"b_{right.name}"))
                dtype = str(obj.select(x=node).schema["x"].as_required())
                expected = [
                    None if p is None or q is None else reference(p, q, left, right, dtype)
                    for p, q in pairs(left, right)
                ]
                if name == "pow" and dtype == "Int64":  # both sides are read as Int64, also if the other is NULL
                    large = [any((v or 0) >= 2**63 for v in pair) for pair in pairs(left, right)]
                    expected = [c.FAILS if is_large else e for is_large, e in zip(large, expected, strict=True)]
                if dtype.startswith("Decimal"):
                    expected = [overflow(value, dtype) for value in expected]
                cases.add(f"{left.name} {name} {right.name}", node, expected)
    report(await cases.run())


def overflow(value, dtype):
    """A Decimal that does not fit its storage is an error."""
    if value is None:
        return None
    precision, scale = map(int, dtype[8:-1].split(","))
    limit = {9: 2**31, 18: 2**63, 38: 2**127, 76: 2**255}[precision]
    return value if abs(value * 10**scale) < limit else c.FAILS


@pytest.mark.usefixtures("data")
async def test_casts_between_all_types():
    obj = await edges()
    cases = Cases(obj)
    for source in c.TYPES:
        values = [p for p, _ in pairs(source, source)]
        for target in c.TYPES:
            if not c.is_castable(source, target):
                continue
            column = col(f"a_{source.name}")
            if target.family == "text":
                expected = [None if value is None else c.text_of(value) for value in values]
            else:
                expected = [None if value is None else c.cast_reference(value, source, target) for value in values]
            cases.add(f"try_cast {source.name} {target.name}", column.try_cast(target.clickhouse), expected)
            strict = [
                c.FAILS if result is None and value is not None else result
                for value, result in zip(values, expected, strict=True)
            ]
            cases.add(f"cast {source.name} {target.name}", column.cast(target.clickhouse), strict)
    report(await cases.run())


UNARY = {
    "neg": lambda x: -x,
    "abs": lambda x: x.abs(),
    "sign": lambda x: x.sign(),
    "round": lambda x: x.round(),
    "floor": lambda x: x.floor(),
    "ceil": lambda x: x.ceil(),
    "trunc": lambda x: x.trunc(),
    "is_nan": lambda x: x.is_nan(),
    "is_finite": lambda x: x.is_finite(),
    "is_null": lambda x: x.is_null(),
    "sqrt": lambda x: x.sqrt(),
}


def unary_reference(name, value, edge):
    if name == "is_null":
        return value is None
    if value is None:
        return None
    is_special = isinstance(value, float) and not math.isfinite(value)
    if name in ("is_nan", "is_finite"):
        return (isinstance(value, float) and math.isnan(value)) if name == "is_nan" else not is_special
    if name == "sqrt":
        return math.nan if value < 0 or (is_special and math.isnan(value)) else math.sqrt(value)
    if name == "sign":
        return value if is_special and math.isnan(value) else type(value)((value > 0) - (value < 0)) * 1
    if name == "neg":
        number = -value
    elif name == "abs":
        number = abs(value)
    elif is_special:
        return value
    else:
        number = {"round": round, "floor": math.floor, "ceil": math.ceil, "trunc": math.trunc}[name](value)
        return Fraction(number) if edge.family == "decimal" else type(value)(number)
    if edge.name == "i64":
        return c.wrap(number, -(2**63), 2**63 - 1)
    if edge.name == "u64" and not -(2**63) <= number < 2**63 and name == "neg":
        return c.FAILS
    return number


@pytest.mark.usefixtures("data")
async def test_functions_of_one_number_of_all_types():
    obj = await edges()
    cases = Cases(obj)
    for edge in c.NUMBERS:
        values = [p for p, _ in pairs(edge, edge)]
        for name, function in UNARY.items():
            expected = [unary_reference(name, value, edge) for value in values]
            if edge.family == "bool":
                expected = [int(v) if isinstance(v, bool) and not name.startswith("is_") else v for v in expected]
            cases.add(f"{name} {edge.name}", function(col(f"a_{edge.name}")), expected)
        column, other = col(f"a_{edge.name}"), col(f"b_{edge.name}")
        both = pairs(edge, edge)
        for name, choose in (("least", min), ("greatest", max)):
            expected = [None if None in pair else c.extreme(choose)(*pair) for pair in both]
            cases.add(f"{name} {edge.name}", getattr(column, name)(other), expected)
        cases.add(f"coalesce {edge.name}", column.coalesce(other), [q if p is None else p for p, q in both])
        cases.add(
            f"isin {edge.name}",
            column.isin([edge.values[0], edge.values[2]]),
            [None if p is None else p in (edge.values[0] + 0, edge.values[2]) and p == p for p in values],
        )
    report(await cases.run())


@pytest.mark.usefixtures("data")
async def test_choices_of_two_number_types_keep_every_value():
    """UInt64 with signed integers is Int64, or fails for larger values; nothing becomes Int128."""
    obj = await edges()
    cases = Cases(obj)
    for left in c.NUMBERS:
        for right in c.NUMBERS:
            a, b = col(f"a_{left.name}"), col(f"b_{right.name}")
            try:
                dtype = str(obj.select(x=a.coalesce(b)).schema["x"].as_required())
            except DataTypeError:
                continue
            assert dtype not in ("Int128", "UInt128", "Int256"), (left.name, right.name)
            expected = [q if p is None else p for p, q in pairs(left, right)]
            if dtype.startswith("Float"):
                expected = [None if value is None else c.to_float(value) for value in expected]
            if dtype == "Int64" and "u64" in (left.name, right.name):
                low_high = [
                    c.FAILS if any(v is not None and v >= 2**63 for v in pair) else value
                    for pair, value in zip(pairs(left, right), expected, strict=True)
                ]
                expected = low_high
            cases.add(f"coalesce {left.name} {right.name}", a.coalesce(b), expected)
    report(await cases.run())


# --- many rows ---------------------------------------------------------------------------------------------------


def drop(values):
    return [value for value in values if value is not None]


def ordered(values):
    """Sort numbers as docs/values.md says: NaN is greater than every number."""
    return sorted(drop(values), key=lambda v: (v != v, 0 if v != v else c.exact(v)))


def quantile(values, q):
    present = ordered(values)
    if not present:
        return None
    rank = (len(present) - 1) * q
    low, high = present[math.floor(rank)], present[math.ceil(rank)]
    low, high = c.to_float(low), c.to_float(high)
    return low if low == high or rank == int(rank) else low + (high - low) * (rank - math.floor(rank))


def total(values, edge):
    present = drop(values)
    if edge.family == "float":
        return math.fsum(present) if all(map(math.isfinite, present)) else sum(present)
    number = sum(map(Fraction, present)) if edge.family == "decimal" else sum(map(int, present))
    limits = {"u64": (0, 2**64 - 1)}.get(edge.name, (-(2**63), 2**63 - 1))
    if edge.family == "decimal":
        return number if abs(number) * 10**10 < 2**127 else c.FAILS
    return number if limits[0] <= number <= limits[1] else c.FAILS


def mean(values, edge):
    present = drop(values)
    if not present:
        return None
    if edge.family == "float":
        return sum(present) / len(present)
    return c.to_float(sum(map(Fraction, present)) / len(present))


def without_nan(values):
    present = drop(values)
    return [v for v in present if not (isinstance(v, float) and math.isnan(v))] or present


def distinct(values):
    return len({("nan",) if isinstance(v, float) and math.isnan(v) else v for v in drop(values)})


AGGREGATES = {
    "sum": (lambda x: x.sum(), total),
    "mean": (lambda x: x.mean(), mean),
    "min": (lambda x: x.min(), lambda v, e: min(without_nan(v), default=None)),
    "max": (lambda x: x.max(), lambda v, e: max(without_nan(v), default=None)),
    "median": (lambda x: x.median(), lambda v, e: quantile(v, 0.5)),
    "quantile": (lambda x: x.quantile(0.25), lambda v, e: quantile(v, 0.25)),
    "count": (lambda x: x.count(), lambda v, e: len(drop(v))),
    "nunique": (lambda x: x.nunique(), lambda v, e: distinct(v)),
    "argmin": (lambda x: x.argmin(), lambda v, e: v.index(min(without_nan(v))) if drop(v) else None),
    "argmax": (lambda x: x.argmax(), lambda v, e: v.index(max(without_nan(v))) if drop(v) else None),
    "first": (lambda x: x.first(), lambda v, e: v[0] if v else None),
    "last": (lambda x: x.last(), lambda v, e: v[-1] if v else None),
}
GENERAL = ("min", "max", "count", "nunique", "argmin", "argmax", "first", "last")


def series(edge):
    """Return columns of one type: all edge values, without NULL, one, none, only NULL, NaN first, twice the largest."""
    values = list(edge.values)
    return {
        "all": [*values, None],
        "present": values,
        "one": values[:1],
        "empty": [],
        "nulls": [None, None],
        "twice": [values[1]] * 2,
        "tame": [values[2], None, values[4], values[4]],
    }


@pytest.mark.usefixtures("data")
async def test_aggregates_of_all_types():
    problems = []
    for name in ("all", "present", "one", "empty", "nulls", "twice", "tame"):
        data = {edge.name: series(edge)[name] for edge in c.TYPES}
        size = max(map(len, data.values()))
        table = {e.name: pa.array([*data[e.name], *[None] * (size - len(data[e.name]))], e.arrow) for e in c.TYPES}
        obj = await create_object_from_value(pa.table(table))
        cases = {}
        for edge in c.TYPES:
            values = table[edge.name].to_pylist()
            for function, (expression, reference) in AGGREGATES.items():
                if edge in c.OTHERS and function not in GENERAL:
                    continue
                cases[f"{function} {edge.name}"] = (expression(col(edge.name)), reference(values, edge))
        good = {key: expression for key, (expression, expected) in cases.items() if expected is not c.FAILS}
        for select in (obj.select(**good), obj.with_columns(k=col("i8").is_null() & True).select(**good)):
            (actual,) = await select.rows()
            problems += [
                f"{key} of {name}: {actual[key]!r} is not {cases[key][1]!r}"
                for key in good
                if not equals(actual[key], cases[key][1], 1e-9)
            ]
        for key in cases.keys() - good.keys():
            with pytest.raises(QueryError, match=r"does not fit|too many digits"):
                await obj.select(value=cases[key][0]).data()
    report(problems)


@pytest.mark.usefixtures("data")
async def test_order_groups_and_joins_of_all_types():
    problems = []
    for edge in c.TYPES:
        values = [*series(edge)["all"], *series(edge)["tame"]]
        if edge.family == "float":
            values += [0.0, math.nan]
        obj = await create_object_from_value(pa.table({"x": pa.array(values, edge.arrow), "i": range(len(values))}))
        frame = pl.DataFrame({"x": pl.from_arrow(pa.array(values, edge.arrow)), "i": range(len(values))})
        comparisons = {
            f"sort {down} {first}": (
                obj.sort("x", descending=down, nulls_first=first)["i"],
                frame.sort("x", descending=down, nulls_last=not first, maintain_order=True)["i"].to_list(),
            )
            for down in (False, True)
            for first in (False, True)
        }
        comparisons["distinct"] = (
            obj.distinct("x")["i"],
            frame.unique("x", keep="first", maintain_order=True)["i"].to_list(),
        )
        comparisons["groups"] = (
            obj.group_by("x").agg(n=col("i").count())["n"],
            frame.group_by("x").len().sort("x", nulls_last=True)["len"].to_list(),
        )
        comparisons["join"] = (
            obj.join(obj.rename({"i": "j"}), "x").sort("i", "j").select(y=col("i") * 100 + col("j"))["y"],
            frame.join(frame.rename({"i": "j"}), "x")
            .select(y=pl.col("i") * 100 + pl.col("j"))
            .sort("y")["y"]
            .to_list(),
        )
        comparisons["partition"] = (
            obj.select(n=col("i").count().over("x"))["n"],
            frame.select(n=pl.len().over("x"))["n"].to_list(),
        )
        for name, (actual, expected) in comparisons.items():
            actual = await actual.data()
            if actual != expected:
                problems.append(f"{name} of {edge.name}: {actual} is not {expected}")
    report(problems)


@pytest.mark.usefixtures("data")
async def test_join_keys_of_different_number_types_match_exactly():
    obj = await edges()
    problems = []
    for left in c.NUMBERS[:9]:
        for right in c.NUMBERS[:9]:
            a = obj.filter(col("row") % c.SIZE == 0).select(k=col(f"a_{left.name}"), p=col("row") // c.SIZE)
            b = obj.filter(col("row") < c.SIZE).select(k=col(f"b_{right.name}"), q=col("row"))
            joined = a.join(b, "k").select("p", "q")
            expected = sorted(
                (i, j)
                for i, p in enumerate(left.values)
                for j, q in enumerate(right.values)
                if c.exact(p) == c.exact(q) or (p != p and q != q)
            )
            actual = sorted((row["p"], row["q"]) for row in await joined.rows())
            if actual != expected:
                problems.append(f"{left.name} with {right.name}: {actual} is not {expected}")
    report(problems)
