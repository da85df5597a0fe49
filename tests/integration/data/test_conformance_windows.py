"""Window functions of all types and edge values, compared with exact Python; docs/values.md has the rules."""

# ruff: noqa: DTZ001  (datetimes without a time zone are tested too)

from __future__ import annotations

from datetime import datetime, timedelta
from fractions import Fraction

import pyarrow as pa
import pytest

from aaiclick.data import col, create_object_from_value
from aaiclick.data.errors import DataTypeError, QueryError
from tests.integration.data import conformance as c
from tests.integration.data.test_conformance import (
    BATCH,
    distinct,
    drop,
    equals,
    mean,
    quantile,
    report,
    total,
    without_nan,
)
from tests.integration.data.test_conformance_operators import deviation, variance

SPAN = c.EdgeType(
    "span", "Duration", pa.duration("us"),
    (
        timedelta(microseconds=1), timedelta(microseconds=2**62), timedelta(0), timedelta(days=-1, microseconds=1),
        timedelta(days=1), timedelta(hours=2),
    ),
    "span",
)  # fmt: skip
NANOSECONDS = c.EdgeType("ns", "Int64", pa.int64(), tuple(1_700_000_000_000_000_000 + n for n in range(6)), "int")
TYPES = (*c.TYPES, NANOSECONDS, SPAN)
HOURS = (0, 1, 1, None, 4, 9, 5, 6, 6, 30, 2, None, 3)
"""Times of the rows, with ties and NULL, not sorted."""

ANY = frozenset({"int", "float", "decimal", "bool", "text", "date", "datetime", "span"})
NUMBER = frozenset({"int", "float", "decimal", "bool"})


def first_fail(values):
    return c.FAILS if any(value is c.FAILS for value in values) else values


def framed(function, before):
    """Apply an aggregate to the rows up to each row, and not more than `before` earlier ones."""

    def reference(values, edge):
        starts = [0 if before is None else max(0, i - before) for i in range(len(values))]
        return first_fail([function(values[start : i + 1], edge) for i, start in enumerate(starts)])

    return reference


def timed(function, hours):
    """Apply an aggregate to the rows of the last hours; a row that is exactly that old does not belong to it."""

    def reference(values, edge):
        def window(end):
            return [v for v, t in zip(values, HOURS, strict=False) if t is not None and end - hours < t <= end]

        times = HOURS[: len(values)]
        return first_fail([None if end is None else function(window(end), edge) for end in times])

    return reference


def total_of(values, edge):
    if edge.family != "span":
        return total(values, edge)
    micros = sum((v // timedelta(microseconds=1) for v in drop(values)), 0)
    return timedelta(microseconds=micros) if -(2**63) <= micros < 2**63 else c.FAILS


def mean_of(values, edge):
    if edge.family != "span":
        return mean(values, edge)
    present = [v // timedelta(microseconds=1) for v in drop(values)]
    return timedelta(microseconds=round(Fraction(sum(present), len(present)))) if present else None


def median_of(values, edge):
    if edge.family != "span":
        return quantile(values, 0.5)
    micros = sorted(v // timedelta(microseconds=1) for v in drop(values))
    middle = [micros[(len(micros) - 1) // 2], micros[len(micros) // 2]] if micros else []
    return timedelta(microseconds=round(Fraction(sum(middle), 2))) if middle else None


def least(values, _):
    return min(without_nan(values), default=None)


def greatest(values, _):
    return max(without_nan(values), default=None)


def counted(values, _):
    return len(drop(values))


AGGREGATES = {
    "sum": (lambda x: x.sum(), total_of, NUMBER | {"span"}),
    "mean": (lambda x: x.mean(), mean_of, NUMBER | {"span"}),
    "min": (lambda x: x.min(), least, ANY),
    "max": (lambda x: x.max(), greatest, ANY),
    "count": (lambda x: x.count(), counted, ANY),
    "std": (lambda x: x.std(), lambda v, e: deviation(1)(v), NUMBER),
    "var": (lambda x: x.var(), lambda v, e: variance(1)(v), NUMBER),
    "median": (lambda x: x.median(), lambda v, e: median_of(v, e), NUMBER | {"span"}),
}


def sort_key(value):
    return (value != value, 0 if value != value else value)


def ranks(values, dense=False, descending=False):
    keys = [None if v is None else sort_key(v) for v in values]
    present = [k for k in keys if k is not None]
    below = [[p for p in present if (p > k if descending else p < k)] if k is not None else None for k in keys]
    return [None if smaller is None else 1 + len(set(smaller) if dense else smaller) for smaller in below]


def percent_ranks(values, _):
    count = max(counted(values, _) - 1, 1)
    return [None if rank is None else (rank - 1) / count for rank in ranks(values)]


def tiles(groups):
    def reference(values, _):
        rows = sorted((i for i, v in enumerate(values) if v is not None), key=lambda i: (sort_key(values[i]), i))
        numbers, start = [None] * len(values), 0
        for group in range(groups):
            end = start + len(rows) // groups + (group < len(rows) % groups)
            for row in rows[start:end]:
                numbers[row] = group + 1
            start = end
        return numbers

    return reference


def shifted(values, rows):
    return [values[i - rows] if 0 <= i - rows < len(values) else None for i in range(len(values))]


def subtract(p, q, edge):
    if edge.family == "float":
        return c.to_float(p) - c.to_float(q)
    if edge.family == "decimal":
        number = Fraction(p) - Fraction(q)
        return number if abs(number) * 10 ** (2 if edge.name == "d9" else 10) < 2**127 else c.FAILS
    if edge.family == "span":
        return p - q
    if edge.family == "datetime" or edge.family == "date":
        return p - q
    number = int(p) - int(q)
    if edge.name == "u64":
        return number if 0 <= number < 2**64 else c.FAILS
    return c.wrap(number, -(2**63), 2**63 - 1)


def differences(rows):
    def reference(values, edge):
        pairs = zip(values, shifted(values, rows), strict=True)
        return first_fail([None if p is None or q is None else subtract(p, q, edge) for p, q in pairs])

    return reference


def changes(values, edge):
    micros = timedelta(microseconds=1)
    values = [v // micros if v is not None and edge.family == "span" else v for v in values]
    pairs = zip(values, shifted(values, 1), strict=True)
    return [None if p is None or q is None else c.divide(p, q) - 1 for p, q in pairs]


def filled(values, limit=None):
    result = []
    for i, value in enumerate(values):
        earlier = values[0 if limit is None else max(0, i - limit) : i + 1]
        result.append(value if value is not None else next((v for v in reversed(earlier) if v is not None), None))
    return result


def interpolated(values, _):
    rows, result = [i for i, v in enumerate(values) if v is not None], []
    for i, value in enumerate(values):
        low, high = max((r for r in rows if r < i), default=None), min((r for r in rows if r > i), default=None)
        if value is not None or low is None or high is None:
            result.append(None if value is None else c.to_float(value))
            continue
        start, end = c.to_float(values[low]), c.to_float(values[high])
        result.append(start + (end - start) * ((i - low) / (high - low)))
    return result


def functions():
    """Return (expression, reference, families) by name; a reference takes the values and their type."""
    table = {
        f"rolling {name} {rows}": (lambda x, n=name, r=rows: x.rolling(n, r), framed(reference, rows - 1), families)
        for name, (_, reference, families) in AGGREGATES.items()
        for rows in (3,)
    }
    table |= {
        f"rolling {name} 3h": (lambda x, n=name: x.rolling(n, "3h", by="at"), timed(reference, 3), families)
        for name, (_, reference, families) in AGGREGATES.items()
    }
    table |= {
        f"{name} ordered": (lambda x, e=expression: e(x).over(order_by="row"), framed(reference, None), families)
        for name, (expression, reference, families) in AGGREGATES.items()
    }
    table |= {
        f"{name} over": (
            lambda x, e=expression: e(x).over(),
            lambda v, e, r=reference: first_fail([r(v, e)] * len(v)),
            families,
        )
        for name, (expression, reference, families) in AGGREGATES.items()
    }
    table |= {
        f"cum_{name}": (
            lambda x, n=name: getattr(x, f"cum_{n}")(),
            framed(AGGREGATES[name][1], None),
            AGGREGATES[name][2],
        )
        for name in ("sum", "mean", "min", "max", "count")
    }
    return table | {
        "first over": (lambda x: x.first().over(order_by="row"), lambda v, e: v[:1] * len(v), ANY),
        "nunique over": (lambda x: x.nunique().over(), lambda v, e: [distinct(v)] * len(v), ANY),
        "shift": (lambda x: x.shift(2), lambda v, e: shifted(v, 2), ANY),
        "shift back": (lambda x: x.shift(-1), lambda v, e: shifted(v, -1), ANY),
        "shift 0": (lambda x: x.shift(0), lambda v, e: v, ANY),
        "shift far": (lambda x: x.shift(100), lambda v, e: [None] * len(v), ANY),
        "diff": (lambda x: x.diff(), differences(1), ANY - {"text"}),
        "diff back": (lambda x: x.diff(-2), differences(-2), ANY - {"text"}),
        "pct_change": (lambda x: x.pct_change(), changes, NUMBER | {"span"}),
        "forward_fill": (lambda x: x.forward_fill(), lambda v, e: filled(v), ANY),
        "forward_fill 1": (lambda x: x.forward_fill(1), lambda v, e: filled(v, 1), ANY),
        "backward_fill": (lambda x: x.backward_fill(), lambda v, e: filled(v[::-1])[::-1], ANY),
        "backward_fill 1": (lambda x: x.backward_fill(1), lambda v, e: filled(v[::-1], 1)[::-1], ANY),
        "interpolate": (lambda x: x.interpolate(), interpolated, NUMBER),
        "rank": (lambda x: x.rank(), lambda v, e: ranks(v), ANY),
        "rank descending": (lambda x: x.rank(descending=True), lambda v, e: ranks(v, descending=True), ANY),
        "rank dense": (lambda x: x.rank(dense=True), lambda v, e: ranks(v, dense=True), ANY),
        "percent_rank": (lambda x: x.percent_rank(), percent_ranks, ANY),
        "ntile 3": (lambda x: x.ntile(3), tiles(3), ANY),
        "ntile 20": (lambda x: x.ntile(20), tiles(20), ANY),
    }


def samples(edge):
    """Return columns: all values, values that do not overflow, one, none, only NULL."""
    values = list(edge.values)
    tame = [None, values[2], values[4], None, None, values[4], values[5], values[2], None, values[3]]
    tame = [None if v is not None and edge.name == "u64" and v >= 2**62 else v for v in tame]
    return {"all": [*values, None, values[0]], "tame": tame, "one": values[:1], "nulls": [None, None], "empty": []}


@pytest.mark.usefixtures("data")
async def test_window_functions_of_all_types():
    problems, table = [], functions()
    for name in ("all", "tame", "one", "nulls", "empty"):
        size = len(samples(TYPES[0])[name])
        times = [None if h is None else datetime(2024, 1, 1) + timedelta(hours=h) for h in HOURS[:size]]
        values = {edge.name: pa.array(samples(edge)[name], edge.arrow) for edge in TYPES}
        obj = await create_object_from_value(
            pa.table({"row": pa.array(range(size), pa.int64()), "at": pa.array(times, pa.timestamp("us")), **values})
        )
        cases = {
            f"{label} {edge.name}": (expression(col(edge.name)), reference(values[edge.name].to_pylist(), edge))
            for edge in TYPES
            for label, (expression, reference, families) in table.items()
            if edge.family in families
        }
        problems += [f"{name}: {problem}" for problem in await compare(obj, cases)]
    problems += check_types(obj, table)
    report(problems)


def check_types(obj, table):
    """Return the types that a function accepts without a reference, or refuses with one."""
    problems = []
    for label, (expression, _, families) in table.items():
        for edge in TYPES:
            try:
                is_accepted = bool(obj.select(x=expression(col(edge.name))).schema)
            except DataTypeError:
                is_accepted = False
            if is_accepted is not (edge.family in families):
                problems.append(f"{label} of {edge.name} is {'accepted' if is_accepted else 'refused'}")
    return problems


async def compare(obj, cases):
    """Compare columns with their expected values; FAILS expects an error of the query."""
    problems = []
    good = [key for key, (_, expected) in cases.items() if expected is not c.FAILS]
    for start in range(0, len(good), BATCH):
        keys = good[start : start + BATCH]
        try:
            actual = await obj.select(**{key: cases[key][0] for key in keys}).data()
        except QueryError:
            actual = {}
            for key in keys:
                try:
                    actual |= await obj.select(**{key: cases[key][0]}).data()
                except QueryError as error:
                    problems.append(f"{key}: {error}")
        for key, column in actual.items():
            expected = cases[key][1]
            if len(column) != len(expected):
                problems.append(f"{key}: {column!r} is not {expected!r}")
            problems += [
                f"{key}, row {row}: {a!r} is not {e!r}"
                for row, (a, e) in enumerate(zip(column, expected, strict=False))
                if not equals(a, e, 1e-6)
            ]
    for key in cases.keys() - set(good):
        try:
            problems.append(f"{key}: {await obj.select(value=cases[key][0]).data()} instead of an error")
        except QueryError as error:
            if "ClickHouse refused" in str(error):
                problems.append(f"{key}: {error}")
    return problems
