"""General functions × further types, lists and texts of edge values, compared with Python by docs/values.md."""

# ruff: noqa: DTZ001, RUF001  (datetimes without a time zone; Greek letters)

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import product
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from aaiclick.data import case, col, create_object_from_value, if_else, lit
from aaiclick.data.errors import DataTypeError, QueryError
from aaiclick.data.expressions.functions.mathematics import FLOAT_FUNCTIONS
from tests.integration.data.test_conformance import Cases, drop, equals, report

NAN, INF = math.nan, math.inf
BERLIN = ZoneInfo("Europe/Berlin")
FURTHER = {
    "i16": ("Int16", [-(2**15), 2**15 - 1, -1, 0]),
    "u16": ("UInt16", [0, 2**16 - 1, 1, 7]),
    "u32": ("UInt32", [0, 2**32 - 1, 1, 7]),
    "i128": ("Int128", [-(2**127), 2**127 - 1, 0, 2**64 + 1]),
    "u256": ("UInt256", [0, 2**256 - 1, 1, 2**64 + 1]),
    "d76": ("Decimal(76, 6)", [Decimal("9" * 70), Decimal("-0.000001"), Decimal(0), Decimal("1.5")]),
    "dt": (
        "DateTime",
        [datetime(1970, 1, 1), datetime(2106, 2, 7, 6, 28, 15), datetime(2024, 2, 29, 1), datetime(2000, 1, 1)],
    ),
    "ms": (
        "DateTime64(3)",
        [datetime(1900, 1, 1), datetime(2299, 12, 31, 23, 59, 59, 999000), datetime(1970, 1, 1),
         datetime(1969, 12, 31, 23, 59, 59, 1000)],
    ),
    "zoned": (
        "DateTime64(6, 'Europe/Berlin')",
        [datetime(1901, 1, 1, tzinfo=BERLIN), datetime(2024, 10, 27, 0, 30, tzinfo=UTC).astimezone(BERLIN),
         datetime(2024, 10, 27, 1, 30, tzinfo=UTC).astimezone(BERLIN), datetime(2200, 1, 1, tzinfo=BERLIN)],
    ),
    "span": (
        "Duration",
        [timedelta(0), timedelta(days=-1, microseconds=1), timedelta(days=100_000), timedelta(microseconds=1)],
    ),
    "uuid": ("UUID", [UUID(int=0), UUID(int=2**128 - 1), UUID(int=2**64), UUID(int=5)]),
    "bytes": ("bytes", [b"", b"\xff\x00", b"a", b"ab"]),
    "enum": ("Enum8('b' = 1, 'a' = 2, '' = 3)", ["b", "a", "", "b"]),
}  # fmt: skip


async def further_edges():
    """Return every pair of values of every type, NULL included."""
    columns, kinds = {"row": list(range(25))}, {}
    for name, (dtype, values) in FURTHER.items():
        both = list(product([*values, None], repeat=2))
        is_wide = name in ("i128", "u256")
        for side, prefix in enumerate("ab"):
            chosen = [pair[side] for pair in both]
            columns[f"{prefix}_{name}"] = [None if v is None else str(v) if is_wide else v for v in chosen]
            kinds[f"{prefix}_{name}"] = "String" if is_wide else dtype if dtype == "bytes" else f"Nullable({dtype})"
    kinds = {
        name: f"Nullable({dtype})" if dtype == "String" else dtype for name, dtype in kinds.items() if dtype != "bytes"
    }
    obj = await create_object_from_value(columns, schema=kinds)
    return obj.with_columns(
        **{f"{side}_{n}": col(f"{side}_{n}").cast(FURTHER[n][0]) for n in ("i128", "u256") for side in "ab"}
    )


def order_of(name):
    """Return the sort key of a type: docs/values.md has those of enums and UUIDs."""
    keys = {"enum": {"b": 1, "a": 2, "": 3}.get, "uuid": lambda v: (v.int % 2**64, v.int >> 64)}
    return keys.get(name, lambda v: v)


def in_utc(value):
    """Return datetimes in UTC: Python compares those of one zone by their local time."""
    if isinstance(value, list):
        return [in_utc(v) for v in value]
    return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else value


def present(function):
    return lambda p, q: None if p is None or q is None else function(p, q)


@pytest.mark.usefixtures("data")
async def test_general_functions_of_further_types():
    obj = await further_edges()
    cases = Cases(obj)
    for name, (_, values) in FURTHER.items():
        a, b, key = col(f"a_{name}"), col(f"b_{name}"), order_of(name)
        moments, plain = in_utc(values), a.cast(str) if name == "enum" else a
        both = list(product([*moments, None], repeat=2))
        functions = {
            "==": (a == b, present(lambda p, q: p == q)),
            "!=": (a != b, present(lambda p, q: p != q)),
            "<": (a < b, present(lambda p, q, k=key: k(p) < k(q))),
            "<=": (a <= b, present(lambda p, q, k=key: k(p) <= k(q))),
            "is_null": (a.is_null(), lambda p, q: p is None),
            "coalesce": (a.coalesce(b), lambda p, q: q if p is None else p),
            "if_else": (if_else(col("row") > 12, a, b).is_null(), None),
            "case": (case((a == b, a), otherwise=b), lambda p, q: q),
            "null_if": (a.null_if(b), lambda p, q: None if p == q else p),
            "least": (a.least(b), present(lambda p, q, k=key: min(p, q, key=k))),
            "greatest": (a.greatest(b), present(lambda p, q, k=key: max(p, q, key=k))),
            "isin": (
                plain.isin([values[1], values[2]]),
                lambda p, q, v=moments: None if p is None else p in v[1:3],
            ),
            "fill_null": (plain.fill_null(values[3]), lambda p, q, v=moments: v[3] if p is None else p),
            "replace": (
                plain.replace({values[1]: values[2]}),
                lambda p, q, v=moments: v[2] if p == v[1] else p,
            ),
        }
        for label, (expression, reference) in functions.items():
            if reference is None:
                expected = [(p if row > 12 else q) is None for row, (p, q) in enumerate(both)]
            else:
                expected = [reference(*pair) for pair in both]
            cases.add(f"{label} {name}", expression, expected)
    report(await cases.run())


def differences(name, actual, expected):
    pairs = [(label, in_utc(actual[label]), value) for label, value in expected.items()]
    return [f"{label} {name}: {a!r} is not {e!r}" for label, a, e in pairs if a != e]


@pytest.mark.usefixtures("data")
async def test_aggregates_and_windows_of_further_types():
    obj, problems = await further_edges(), []
    for name, (_, values) in FURTHER.items():
        x, key = col(f"a_{name}"), order_of(name)
        values = in_utc(values)
        rows = [p for p, _ in product([*values, None], repeat=2)]
        some = drop(rows)
        low, high = min(some, key=key), max(some, key=key)
        ranks = [None if v is None else 1 + sum(key(w) < key(v) for w in some) for v in rows]
        (actual,) = await obj.select(
            min=x.min(), max=x.max(), count=x.count(), nunique=x.nunique(), first=x.first(), last=x.last(),
            argmin=x.argmin(), argmax=x.argmax(), mode=x.mode(), collect=x.collect(), unique=x.unique().list.len(),
            some=x.filter(col("row") > 99).min(), largest=x.filter(col("row") < 5).max(),
        ).rows()  # fmt: skip
        counts = {v: some.count(v) for v in some}
        expected = {
            "min": low, "max": high, "count": len(some), "nunique": len(set(some)), "first": rows[0], "last": None,
            "argmin": rows.index(low), "argmax": rows.index(high),
            "mode": min((v for v in counts if counts[v] == max(counts.values())), key=key), "collect": rows,
            "unique": len(set(some)), "some": None, "largest": values[0],
        }  # fmt: skip
        problems += differences(name, actual, expected)
        windows = obj.select(
            rank=x.rank(), shift=x.shift(5), fill=x.forward_fill(), top=x.cum_max(), n=x.count().over(f"a_{name}")
        )
        actual, maxima = await windows.data(), []
        for value in rows:
            maxima.append(value if not maxima else maxima[-1] if value is None else max(maxima[-1], value, key=key))
        expected = {
            "rank": ranks, "shift": [None] * 5 + rows[:-5], "fill": [*rows[:20], *[values[3]] * 5], "top": maxima,
            "n": [0 if v is None else some.count(v) for v in rows],
        }  # fmt: skip
        problems += differences(name, actual, expected)
        order = sorted(range(25), key=lambda i, r=rows, k=key: (r[i] is None, 0 if r[i] is None else k(r[i])))
        if (actual := (await obj.sort(f"a_{name}").select("row").data())["row"]) != order:
            problems.append(f"sort {name}: {actual}")
        joined = obj.filter(col("row") % 5 == 0).join(obj.head(5), left_on=f"a_{name}", right_on=f"b_{name}")
        if (actual := await joined.count()) != sum(p == q for p in values for q in values):
            problems.append(f"join {name}: {actual} rows")
    report(problems)


# --- lists -------------------------------------------------------------------------------------------------------

NUMBERS = [[3.0, NAN, 1.0], [NAN], [], [None], [INF, -INF, None], [-0.0, 0.0], [1.5, None, 1.5], None]
INTEGERS = [[2**63 - 1, 1], [], [None], [3, None, 1, 3], [-(2**63), 0], None]
WORDS = [["b", "", None, "a"], [], ["é", "e"], None, ["a", "a"]]


def ordered(values):
    return sorted(drop(values), key=lambda v: (v != v, 0 if v != v else v))


def numbers_only(values):
    return [v for v in drop(values) if v == v] or drop(values)


def distinct(values):
    result = []
    for value in drop(values):
        if not any(value == other or (value != value and other != other) for other in result):
            result.append(value)
    return result


LISTS = {
    "len": (lambda x: x.len(), len),
    "first": (lambda x: x.first(), lambda v: v[0] if v else None),
    "last": (lambda x: x.last(), lambda v: v[-1] if v else None),
    "get": (lambda x: x.get(1), lambda v: v[1] if len(v) > 1 else None),
    "get from end": (lambda x: x.get(-2), lambda v: v[-2] if len(v) > 1 else None),
    "min": (lambda x: x.min(), lambda v: min(numbers_only(v), default=None)),
    "max": (lambda x: x.max(), lambda v: max(numbers_only(v), default=None)),
    "sort": (lambda x: x.sort(), lambda v: [*ordered(v), *[None] * v.count(None)]),
    "reverse": (lambda x: x.reverse(), lambda v: v[::-1]),
    "unique": (lambda x: x.unique(), distinct),
    "slice": (lambda x: x.slice(1, 2), lambda v: v[1:3]),
    "slice from end": (lambda x: x.slice(-2), lambda v: v[-2:]),
    "map": (lambda x: x.map(lambda e: e.is_null()), lambda v: [e is None for e in v]),
    "filter": (lambda x: x.filter(lambda e: e.is_not_null()), drop),
    "concat": (lambda x: x.concat(x.sort()).list.len(), lambda v: 2 * len(v)),
}
SUMS = {
    "sum": (lambda x: x.sum(), lambda v: sum(drop(v)) if drop(v) else None),
    "mean": (lambda x: x.mean(), lambda v: sum(map(float, drop(v))) / len(drop(v)) if drop(v) else None),
}


def same(actual, expected):
    if isinstance(expected, list):
        return isinstance(actual, list) and len(actual) == len(expected) and all(map(same, actual, expected))
    return equals(actual, expected, 1e-9)


@pytest.mark.usefixtures("data")
async def test_lists_of_edge_values():
    problems = []
    for label, rows in (("floats", NUMBERS), ("integers", INTEGERS[1:4]), ("large", INTEGERS), ("texts", WORDS)):
        obj = await create_object_from_value({"l": rows})
        functions = LISTS if label in ("texts", "large") else LISTS | SUMS
        actual = await obj.select(**{name: function(col("l").list) for name, (function, _) in functions.items()}).data()
        for name, (_, reference) in functions.items():
            expected = [None if values is None else reference(values) for values in rows]
            problems += [
                f"{name} of {values!r}: {a!r} is not {e!r}"
                for values, a, e in zip(rows, actual[name], expected, strict=True)
                if not same(a, e)
            ]
    report(problems)


@pytest.mark.usefixtures("data")
async def test_lists_structs_and_maps_without_a_value_are_null():
    kinds = {"m": "Map(String, Array(Int64))", "n": "Map(String, Tuple(b Int64))"}
    lists = [[[1]], [], [[], [2]]]
    obj = await create_object_from_value(
        {
            "i": [1, 2, 3], "l": [[1, 2], [], [3]], "z": [{"a": 1}, {"a": 2}, {"a": 3}], "ll": lists,
            "lz": [[{"a": 1}], [], [{"a": 2}]], "m": [{"x": [1]}, {"y": [2]}, {"x": []}],
            "n": [{"x": {"b": 1}}, {}, {}],
        },
        schema=kinds,
    )  # fmt: skip
    result = await obj.select(
        a=col("l").shift(1), b=col("z").shift(-1), c=col("l").shift(1).shift(-2), d=col("ll").list.get(1),
        e=col("lz").list.first(), f=col("m").map.get("x"), g=col("n").map.get("x"), h=col("n").shift(2),
        j=col("lz").list.first().struct.field("a"), k=col("m").map.get("x").list.len(),
    ).data()  # fmt: skip
    assert result == {
        "a": [None, [1, 2], []], "b": [{"a": 2}, {"a": 3}, None], "c": [[], None, None], "d": [None, None, [2]],
        "e": [{"a": 1}, None, {"a": 2}], "f": [[1], None, []], "g": [{"b": 1}, None, None],
        "h": [None, None, {"x": {"b": 1}}], "j": [1, None, 2], "k": [1, None, 0],
    }  # fmt: skip
    nothing = obj.filter(col("i") > 9).select(a=col("l").first(), b=col("z").last(), c=col("l").collect())
    assert await nothing.data() == {"a": [None], "b": [None], "c": [[]]}
    for refused in (lambda: col("l").null_if([]), lambda: col("ll").list.join(",")):
        with pytest.raises(DataTypeError, match="is not defined here"):
            obj.select(x=refused())


# --- mathematics --------------------------------------------------------------------------------------------------

ARGUMENTS = [
    NAN, INF, -INF, -0.0, 0.0, 1.0, -1.0, 0.5, -2.5, 1e300, -1e300, 5e-324, 1e-300, 1e-16, -1e-9, 710.0, -746.0, 1e16,
    1e10, 0.9999999, 2.0, None,
]  # fmt: skip
NUMPY = {"asin": "arcsin", "acos": "arccos", "atan": "arctan"}


@pytest.mark.usefixtures("data")
async def test_mathematical_functions_of_edge_values():
    obj, problems = await create_object_from_value({"x": ARGUMENTS}), []
    actual = await obj.select(**{name: col("x").math(name) for name in FLOAT_FUNCTIONS}).data()
    for name in FLOAT_FUNCTIONS:
        with np.errstate(all="ignore"):
            expected = [None if x is None else float(getattr(np, NUMPY.get(name, name))(x)) for x in ARGUMENTS]
        problems += [
            f"{name} of {x}: {a} is not {e}"
            for x, a, e in zip(ARGUMENTS, actual[name], expected, strict=True)
            if not equals(a, e, 1e-13)
        ]
    report(problems)


@pytest.mark.usefixtures("data")
async def test_rounding_to_decimals_of_edge_values():
    numbers = [
        0.5, 1.5, 2.5, -1.5, 1e300, 1e16 + 1, 1234567.891, 5e-324, NAN, INF, -INF, None, -0.0, 1e22, 0.25, 1e10 / 3,
    ]  # fmt: skip
    integers = [5, 15, 25, -5, -15, 2**62, -(2**62), 0, None, 4999, 5001, 127, -128, 5 * 10**17, 1, 2]
    obj = await create_object_from_value(
        {"x": numbers, "i": integers, "s": [None if i is None else i % 256 - 128 for i in integers]},
        schema={"s": "Nullable(Int8)"},
    )
    problems = []
    for decimals in (0, 1, 2, 5, 15, 300, 400, -1, -3, -18, -300, -400):
        actual = await obj.select(
            x=col("x").round(decimals), i=col("i").round(decimals), s=col("s").round(decimals)
        ).data()
        for name, values in (
            ("x", numbers),
            ("i", integers),
            ("s", [None if i is None else i % 256 - 128 for i in integers]),
        ):
            problems += [
                f"{value}.round({decimals}) is {a}"
                for value, a in zip(values, actual[name], strict=True)
                if not equals(a, value if value is None or not math.isfinite(value) else round(value, decimals))
            ]
    report(problems)
    with pytest.raises(QueryError, match="does not fit"):
        await obj.select(x=lit(2**63 - 1).cast("Int64").round(-1)).data()


# --- texts -------------------------------------------------------------------------------------------------------

TEXTS = [
    "a\nb",
    "a%b\\",
    "",
    "ß",
    "İ",
    "ǆ",
    "Straße",
    "ÀÉÎ",
    "éa é-b o'neil",
    "🦆x",
    "\u0301a",
    "ﬁ",
    "ΑΣ",
    "a1b c2d",
    "x_y",
]
TITLES = dict(
    zip(
        TEXTS,
        [
            "A\nB",
            "A%B\\",
            "",
            "ß",
            "İ",
            "Ǆ",
            "Straße",
            "Àéî",
            "Éa É-B O'Neil",
            "🦆X",
            "\u0301A",
            "ﬁ",
            "Ασ",
            "A1b C2d",
            "X_Y",
        ],
        strict=True,
    )
)
TEXT_FUNCTIONS = {
    "upper": (lambda x: x.upper(), str.upper),
    "lower": (lambda x: x.lower(), str.lower),
    "length": (lambda x: x.length(), len),
    "byte_length": (lambda x: x.byte_length(), lambda v: len(v.encode())),
    "reverse": (lambda x: x.reverse(), lambda v: v[::-1]),
    "slice": (lambda x: x.slice(1, 2), lambda v: v[1:3]),
    "slice from end": (lambda x: x.slice(-2), lambda v: v[-2:]),
    "find": (lambda x: x.find("a"), lambda v: v.find("a")),
    "pad_start": (lambda x: x.pad_start(5, "é"), lambda v: v.rjust(5, "é")),
    "pad_end": (lambda x: x.pad_end(5, "*"), lambda v: v.ljust(5, "*")),
    "split": (lambda x: x.split("a"), lambda v: v.split("a")),
    "characters": (lambda x: x.split(""), list),
    "replace": (lambda x: x.replace("é", "e"), lambda v: v.replace("é", "e")),
    "repeat": (lambda x: x.repeat(2), lambda v: v * 2),
    "starts_with": (lambda x: x.starts_with("é"), lambda v: v.startswith("é")),
    "dot": (lambda x: x.count_matches("."), lambda v: len(re.findall(".", v))),
    "matches dot": (lambda x: x.matches("a.b"), lambda v: bool(re.search("a.b", v))),
    "matches all": (lambda x: x.matches("(?s)a.b"), lambda v: bool(re.search("(?s)a.b", v))),
    "extract dots": (lambda x: x.extract("a(.)?"), lambda v: (m := re.search("a(.)?", v)) and (m.group(1) or "")),
    "extract_all dots": (lambda x: x.extract_all("a.+"), lambda v: re.findall("a.+", v)),
    "replace dots": (lambda x: x.replace_regex("[a-c].", r"<\0>"), lambda v: re.sub("[a-c].", r"<\g<0>>", v)),
    "replace ends": (lambda x: x.replace_regex("^|$", "|"), lambda v: re.sub("^|$", "|", v)),
    "like": (lambda x: x.like(r"a\%_\\"), lambda v: v == "a%b\\"),
    "contains": (lambda x: x.contains("%"), lambda v: "%" in v),
    "title": (lambda x: x.title(), TITLES.get),
}


@pytest.mark.usefixtures("data")
async def test_texts_with_unicode():
    obj = await create_object_from_value({"s": TEXTS})
    actual = await obj.select(**{name: function(col("s").str) for name, (function, _) in TEXT_FUNCTIONS.items()}).data()
    problems = []
    for name, (_, reference) in TEXT_FUNCTIONS.items():
        for text, value in zip(TEXTS, actual[name], strict=True):
            if value != reference(text):
                problems.append(f"{name} of {text!r}: {value!r} is not {reference(text)!r}")
    report(problems)


@pytest.mark.usefixtures("data")
async def test_texts_that_are_no_decimals_or_dates():
    numbers = ["-", "+", ".", "-.", "e5", "1.2.3", "1e", "", " 1", "1 ", "1_0", "1,5", "nan", "--1"]
    days = ["1899-12-31", "2300-01-01", "0001-01-01", "9999-12-31", "2024-02-30", "2024-2-3", ""]
    good = ["1.5", "+1", ".5", "1.", "12e-1", "-0.25"]
    obj = await create_object_from_value({"s": numbers + days + good})
    types = ("Decimal(9, 2)", "Decimal(38, 10)", "Date32", "DateTime64(6)", "DateTime64(6, 'Europe/Berlin')")
    result = await obj.select(**{dtype: col("s").try_cast(dtype) for dtype in types}).data()
    assert all(value is None for dtype in types for value in result[dtype][: len(numbers) + len(days)])
    assert result["Decimal(9, 2)"][-len(good) :] == [Decimal(text) for text in good]
    for text, dtype in (("1.2.3", types[0]), ("1899-12-31", types[2]), ("2300-01-01", types[3]), ("", types[2])):
        with pytest.raises(QueryError):
            await obj.filter(col("s") == text).select(x=col("s").cast(dtype)).data()


@pytest.mark.parametrize("pattern", ["x*", "", "(a|)", r"\pL*", "(?:ab)?"])
def test_repeated_matches_of_empty_texts_are_refused(pattern):
    text = col("s").str
    for operation in (text.extract_all, text.count_matches, lambda p: text.replace_regex(p, "-")):
        with pytest.raises(DataTypeError, match="matches an empty text"):
            operation(pattern)
    with pytest.raises(DataTypeError, match="not an empty one"):
        text.replace("", "-")


@pytest.mark.usefixtures("data")
async def test_mixed_types_in_isin_and_replace():
    obj = await create_object_from_value(
        {"i": [1, 2**53 + 1, None], "f": [1.0, 2.0**53, 0.5], "d": [Decimal("1.5"), Decimal(1), None]}
    )
    result = await obj.select(
        a=col("i").isin([1.0, 2.0**53]), b=col("f").isin([1, 2**53 + 1]), c=col("d").isin([1, Decimal("1.50")]),
        d=col("i").isin([None, 1]), e=col("f").isin([0.5, None]), g=col("i").isin([]), h=col("i").isin([0.5]),
        r=col("i").replace({1.0: 7}), s=col("f").replace({1: 2}), t=col("d").replace({1: Decimal("0.25")}),
        u=col("i").replace({1: 0.5}),
    ).data()  # fmt: skip
    assert result == {
        "a": [True, False, None], "b": [True, False, False], "c": [True, True, None], "d": [True, False, None],
        "e": [False, False, True], "g": [False, False, None], "h": [False, False, None],
        "r": [7, 2**53 + 1, None], "s": [2.0, 2.0**53, 0.5], "t": [Decimal("1.5"), Decimal("0.25"), None],
        "u": [0.5, 2.0**53, None],
    }  # fmt: skip


@pytest.mark.usefixtures("data")
async def test_dates_of_further_types():
    """Days and instants at the ends of the range, compared with Python."""
    days = [date(1900, 1, 1), date(2299, 12, 31), date(1969, 12, 31)]
    obj = await create_object_from_value({"d": days, "t": [datetime(d.year, d.month, d.day, 23, 59, 59) for d in days]})
    result = await obj.select(
        text=col("d").cast(str), weekday=col("d").dt.weekday(), ordinal=col("t").dt.ordinal_day(),
        iso=col("t").dt.iso_year(), week=col("t").dt.week(),
        epoch=col("t").dt.epoch(), month=col("d").dt.truncate("month"),
    ).data()  # fmt: skip
    assert result["text"] == list(map(str, days))
    assert result["weekday"] == [d.isoweekday() for d in days]
    assert result["ordinal"] == [d.timetuple().tm_yday for d in days]
    assert result["iso"] == [d.isocalendar().year for d in days]
    assert result["week"] == [d.isocalendar().week for d in days]
    assert result["epoch"] == [int(datetime(d.year, d.month, d.day, 23, 59, 59, tzinfo=UTC).timestamp()) for d in days]
    assert result["month"] == [d.replace(day=1) for d in days]
