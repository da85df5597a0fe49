"""Operators, aggregates, lists and texts of edge values, compared with Python; docs/values.md has the rules."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from fractions import Fraction

import pyarrow as pa
import pytest

from aaiclick.data import col, create_object_from_value
from aaiclick.data.errors import DataTypeError
from tests.integration.data import conformance as c
from tests.integration.data.test_conformance import Cases, drop, edges, equals, pairs, report, series

INTEGER_TYPES = [edge for edge in c.NUMBERS if edge.family in ("int", "bool")]
REMAINDERS = [edge for edge in c.NUMBERS if edge.family in ("int", "float", "bool")]


def limits_of(dtype):
    bits = 1 if dtype == "Bool" else int("".join(filter(str.isdigit, dtype)))
    return (0, 2**bits - 1) if dtype[0] in "UB" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def fit(number, dtype):
    low, high = limits_of(dtype)
    return number if low <= number <= high else c.FAILS


def floor_divide(p, q, dtype):
    if dtype.startswith("Float"):
        quotient = c.divide(p, q)
        return float(math.floor(quotient)) if math.isfinite(quotient) else quotient
    if not q:
        return None
    return -(2**63) if (p, q) == (-(2**63), -1) else fit(int(p) // int(q), dtype)


def remainder(p, q, dtype):
    if not dtype.startswith("Float"):
        return fit(int(p) % int(q), dtype) if q else None
    p, q = c.to_float(p), c.to_float(q)
    if not q or not math.isfinite(p) or math.isnan(q):
        return math.nan
    if abs(p / q) >= 2**50:
        return c.ANYTHING  # docs/values.md: the remainder of a quotient beyond 2**50 is not exact
    return p % q


def bits(operator):
    def reference(p, q, dtype):
        number = {"&": int(p) & int(q), "|": int(p) | int(q), "^": int(p) ^ int(q)}[operator]
        return bool(number) if dtype == "Bool" else fit(number, dtype)

    return reference


OPERATORS = {
    "//": (lambda a, b: a // b, floor_divide, REMAINDERS),
    "%": (lambda a, b: a % b, remainder, REMAINDERS),
    "&": (lambda a, b: a & b, bits("&"), INTEGER_TYPES),
    "|": (lambda a, b: a | b, bits("|"), INTEGER_TYPES),
    "^": (lambda a, b: a ^ b, bits("^"), INTEGER_TYPES),
    ">": (lambda a, b: a > b, lambda p, q, _: c.exact(p) > c.exact(q), c.NUMBERS),
    "<=": (lambda a, b: a <= b, lambda p, q, _: c.exact(p) <= c.exact(q), c.NUMBERS),
}


@pytest.mark.usefixtures("data")
async def test_remainders_bits_and_comparisons_of_all_number_types():
    obj = await edges()
    cases = Cases(obj)
    for name, (expression, reference, types) in OPERATORS.items():
        for left in types:
            for right in types:
                node = expression(col(f"a_{left.name}"), col(f"b_{right.name}"))
                try:
                    dtype = str(obj.select(x=node).schema["x"].as_required())
                except DataTypeError:
                    assert name in "&|^", (left.name, name, right.name)  # bits of a boolean and an integer
                    continue
                expected = [
                    (False if name == "&" and False in (p, q) else True if name == "|" and True in (p, q) else None)
                    if dtype == "Bool" and name in "&|" and None in (p, q)
                    else None
                    if None in (p, q)
                    else reference(p, q, dtype)
                    for p, q in pairs(left, right)
                ]
                if name in "//%&|^" and dtype == "Int64":  # both sides are read as Int64, also if the other is NULL
                    is_large = [any((v or 0) >= 2**63 for v in pair) for pair in pairs(left, right)]
                    expected = [c.FAILS if large else e for large, e in zip(is_large, expected, strict=True)]
                cases.add(f"{left.name} {name} {right.name}", node, expected)
    report(await cases.run())


@pytest.mark.usefixtures("data")
async def test_shifts_of_all_integer_types():
    obj = await edges()
    cases = Cases(obj)
    for edge in INTEGER_TYPES[:-1]:
        values = [p for p, _ in pairs(edge, edge)]
        for shift in (0, 1, 7, 31, 63):
            left, right = col(f"a_{edge.name}") << shift, col(f"a_{edge.name}") >> shift
            low, high = limits_of(str(obj.select(x=left).schema["x"].as_required()))
            expected = [None if v is None else c.wrap(v << shift, low, high) for v in values]
            cases.add(f"{edge.name} << {shift}", left, expected)
            cases.add(f"{edge.name} >> {shift}", right, [None if v is None else v >> shift for v in values])
    report(await cases.run())


# --- many rows ---------------------------------------------------------------------------------------------------


def moments(values):
    """Return the sum of squared deviations, exactly; NaN if a value is not finite."""
    if any(isinstance(v, float) and not math.isfinite(v) for v in values):
        return math.nan
    numbers = [Fraction(v) for v in values]
    mean = sum(numbers) / len(numbers)
    return sum((n - mean) ** 2 for n in numbers)


def variance(ddof):
    def reference(values):
        present = drop(values)
        if len(present) <= ddof:
            return None
        total = moments(present)
        return total if isinstance(total, float) else c.to_float(total / (len(present) - ddof))

    return reference


def deviation(ddof):
    def reference(values):
        result = variance(ddof)(values)
        return None if result is None else math.sqrt(result)

    return reference


def mode(values):
    counts = Counter("nan" if isinstance(v, float) and math.isnan(v) else v for v in drop(values))
    if not counts:
        return None
    best = [v for v, n in counts.items() if n == max(counts.values())]
    numbers = [v for v in best if v != "nan"]
    return min(numbers, default=math.nan)


def first_appearances(values):
    values_by_key: dict = {}
    for value in drop(values):
        values_by_key.setdefault("nan" if isinstance(value, float) and math.isnan(value) else value, value)
    return list(values_by_key.values())


MORE_AGGREGATES = {
    "std": (lambda x: x.std(), deviation(1), "number"),
    "std 0": (lambda x: x.std(0), deviation(0), "number"),
    "var": (lambda x: x.var(), variance(1), "number"),
    "mode": (lambda x: x.mode(), mode, "any"),
    "collect": (lambda x: x.collect(), list, "any"),
    "unique": (lambda x: x.unique(), first_appearances, "any"),
    "approx_nunique": (lambda x: x.approx_nunique(), lambda v: len(first_appearances(v)), "any"),
    "any": (lambda x: x.any(), lambda v: any(drop(v)), "bool"),
    "all": (lambda x: x.all(), lambda v: all(drop(v)), "bool"),
    "count_if": (lambda x: x.count_if(), lambda v: sum(drop(v)), "bool"),
}
TAME_DEVIATIONS = ("i64", "u64", "f32", "f64", "d38", "i32", "d9", "u8", "i8")


def same_lists(actual, expected):
    return len(actual) == len(expected) and all(equals(*both) for both in zip(actual, expected, strict=True))


@pytest.mark.usefixtures("data")
async def test_more_aggregates_of_all_types():
    problems = []
    for name in ("all", "present", "one", "empty", "nulls", "twice", "tame"):
        data = {edge.name: series(edge)[name] for edge in c.TYPES}
        size = max(map(len, data.values()))
        table = {e.name: pa.array([*data[e.name], *[None] * (size - len(data[e.name]))], e.arrow) for e in c.TYPES}
        obj = await create_object_from_value(pa.table(table))
        cases = {}
        for edge in c.TYPES:
            values = table[edge.name].to_pylist()
            for function, (expression, reference, family) in MORE_AGGREGATES.items():
                is_number = edge in c.NUMBERS and edge.family != "bool"
                if family == "any" or edge.family == family or (family == "number" and is_number):
                    cases[f"{function} {edge.name}"] = (expression(col(edge.name)), reference(values))
        (actual,) = await obj.select(**{key: expression for key, (expression, _) in cases.items()}).rows()
        for key, (_, expected) in cases.items():
            is_list = isinstance(expected, list)
            if not (same_lists(actual[key], expected) if is_list else equals(actual[key], expected, 1e-6)):
                problems.append(f"{key} of {name}: {actual[key]!r} is not {expected!r}")
    report(problems)


def correlation(pairs_of_numbers):
    present = [(float(p), float(q)) for p, q in pairs_of_numbers if p is not None and q is not None]
    if len(present) < 2:
        return None
    if not all(map(math.isfinite, (v for pair in present for v in pair))):
        return math.nan
    try:
        return statistics.correlation(*zip(*present, strict=True))
    except statistics.StatisticsError:
        return math.nan


@pytest.mark.usefixtures("data")
async def test_correlations_of_all_number_types():
    tame = {"f32": [0.5, -1.0, 2.0], "f64": [-2.5, 1.5, 0.0], "i64": [-1, 0, 3], "u64": [1, 7, 3]}
    values = {e.name: [*tame.get(e.name, list(e.values[2:5])), None] for e in c.NUMBERS if e.family != "bool"}
    table = {e.name: pa.array(values[e.name], e.arrow) for e in c.NUMBERS if e.name in values}
    table["nan"] = pa.array([1.0, math.nan, 2.0, 3.0])
    values["nan"] = table["nan"].to_pylist()
    obj = await create_object_from_value(pa.table(table))
    cases = {(a, b): correlation(list(zip(values[a], values[b], strict=True))) for a in values for b in values}
    (actual,) = await obj.select(**{f"{a} {b}": col(a).corr(col(b)) for a, b in cases}).rows()
    report(
        [
            f"corr {a} {b}: {actual[f'{a} {b}']!r} is not {e!r}"
            for (a, b), e in cases.items()
            if not equals(actual[f"{a} {b}"], e, 1e-9)
        ]
    )
