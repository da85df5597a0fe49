"""Every registered function: it runs, and returns the expected value and type."""

# ruff: noqa: DTZ001  (datetimes without a time zone are tested too)

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from hashlib import md5, sha1, sha256

import pyarrow as pa
import pytest

from aaiclick.data import array, case, coalesce, col, create_object_from_value, duration, length, lit, row_number
from aaiclick.data.compile.statements import compile_query
from aaiclick.data.errors import DataError
from aaiclick.data.expressions.functions import FUNCTIONS
from aaiclick.data.expressions.nodes import FunctionCall, Over, walk_nodes
from aaiclick.data.types import parse_type, storage_type

T = datetime(2024, 2, 29, 13, 14, 15, 678901)
FRAME = pa.table(
    {
        "i": pa.array([7, None, -8], pa.int64()),
        "j": pa.array([2, 3, -3], pa.int64()),
        "k": pa.array([1, 2, 3], pa.uint8()),
        "f": pa.array([1.5, None, -2.5], pa.float64()),
        "s": pa.array([" Ab1 ", None, "éx,éy"], pa.string()),
        "p": pa.array(["b", "a", "b"], pa.string()),
        "b": pa.array([True, None, False], pa.bool_()),
        "d": pa.array([date(2024, 2, 29), None, date(1999, 12, 31)], pa.date32()),
        "t": pa.array([T, None, datetime(1999, 12, 31, 23, 59, 59)], pa.timestamp("us")),
        "z": pa.array([T.replace(tzinfo=UTC), None, None], pa.timestamp("us", "UTC")),
        "l": pa.array([[3, 1, 3], [], [2]], pa.list_(pa.int64())),
        "m": pa.array([[("a", 1)], [], [("b", 2)]], pa.map_(pa.string(), pa.int64())),
        "c": pa.array([{"x": 1, "y": "u"}, {"x": 2, "y": "v"}, {"x": 3, "y": "w"}]),
        "js": pa.array(['{"a": {"b": [1, "two"]}, "n": 1.5, "t": true}', "not json", "{}"], pa.string()),
    }
)
NAN = math.nan
N = None
CASES = [
    (col("i") + col("j"), [9, N, -11]),
    (col("p") + "!", ["b!", "a!", "b!"]),
    (col("l").list.concat([9]), [[3, 1, 3, 9], [9], [2, 9]]),
    (col("i") - 1, [6, N, -9]),
    (col("d") - date(2024, 2, 1), [timedelta(28), N, timedelta(-8798)]),
    ((col("d") - date(2024, 2, 1)).dt.total("days"), [28.0, N, -8798.0]),
    (duration(days=col("i"), hours=1), [timedelta(7, 3600), N, timedelta(-8, 3600)]),
    (col("i") * col("f"), [10.5, N, 20.0]),
    (col("i") / 2, [3.5, N, -4.0]),
    (col("i") // col("j"), [3, N, 2]),
    (col("i") % col("j"), [1, N, -2]),
    (col("k") // 2, [0, 1, 1]),
    (col("k") % 2, [1, 0, 1]),
    (col("f") % 2, [1.5, N, 1.5]),
    (col("j") ** 2, [4, 9, 9]),
    (col("j") ** col("k"), [2, 9, -27]),
    (-col("i"), [-7, N, 8]),
    (-col("k"), [-1, -2, -3]),
    (abs(col("i")), [7, N, 8]),
    (col("i").sign(), [1, N, -1]),
    (col("i") == 7, [True, N, False]),
    (col("i") != 7, [False, N, True]),
    (col("i") < 0, [False, N, True]),
    (col("i") <= 7, [True, N, True]),
    (col("i") > 0, [True, N, False]),
    (col("i") >= 7, [True, N, False]),
    (col("b") & (col("i") > 0), [True, N, False]),
    (col("b") | (col("k") > 0), [True, True, True]),
    (col("b") ^ True, [False, N, True]),
    (~col("b"), [False, N, True]),
    (col("k") & 1, [1, 0, 1]),
    (col("k") | 4, [5, 6, 7]),
    (col("k") ^ 1, [0, 3, 2]),
    (~col("j"), [-3, -4, 2]),
    (col("j") << 1, [4, 6, -6]),
    (col("k") >> 1, [0, 1, 1]),
    (col("i").isin([7, 9]), [True, N, False]),
    (col("i").is_null(), [False, True, False]),
    (col("i").is_not_null(), [True, False, True]),
    (col("f").is_nan(), [False, N, False]),
    (col("f").is_finite(), [True, N, True]),
    (col("b").if_else(col("i"), 0), [7, 0, 0]),
    (case((col("i") > 0, "p"), (col("i") < 0, "n"), otherwise="z"), ["p", "z", "n"]),
    (coalesce(col("i"), col("f"), 0), [7.0, 0.0, -8.0]),
    (col("i").null_if(7), [N, N, -8]),
    (col("i").fill_null(0).least(col("j")), [2, 0, -8]),
    (col("i").fill_null(0).greatest(col("j")), [7, 3, -3]),
    (col("i").cast("String"), ["7", N, "-8"]),
    (col("f").cast("Int64", truncate=True), [1, N, -2]),
    (col("i").cast(bool), [True, N, True]),
    (col("s").try_cast("Int64"), [N, N, N]),
    (lit(None), [N, N, N]),
    (col("j").abs().sqrt(), [math.sqrt(2), math.sqrt(3), math.sqrt(3)]),
    (col("f").round(0), [2.0, N, -2.0]),
    (col("f").floor(), [1.0, N, -3.0]),
    (col("f").ceil(), [2.0, N, -2.0]),
    (col("f").trunc(), [1.0, N, -2.0]),
    (col("k").exp(), [math.exp(1), math.exp(2), math.exp(3)]),
    (col("k").log(), [0.0, math.log(2), math.log(3)]),
    (col("k").log2(), [0.0, 1.0, math.log2(3)]),
    (col("k").log10(), [0.0, math.log10(2), math.log10(3)]),
    *((col("k").math(name), [getattr(math, name)(v) for v in (1, 2, 3)]) for name in
      ("sin", "cos", "tan", "atan", "sinh", "cosh", "tanh", "degrees", "radians", "cbrt", "exp2", "log1p")),
    ((col("k") - 2).math("asin"), [math.asin(-1), 0.0, math.asin(1)]),
    ((col("k") - 2).math("acos"), [math.acos(-1), math.acos(0), 0.0]),
    (col("k").math("atan2", 2), [math.atan2(v, 2) for v in (1, 2, 3)]),
    (col("k").math("hypot", 2), [math.hypot(v, 2) for v in (1, 2, 3)]),
    (col("s").hash().is_null(), [False, False, False]),
    (col("p").md5(), [md5(v).hexdigest() for v in (b"b", b"a", b"b")]),
    (col("p").sha1(), [sha1(v).hexdigest() for v in (b"b", b"a", b"b")]),
    (col("p").sha256(), [sha256(v).hexdigest() for v in (b"b", b"a", b"b")]),
    (col("s").str.upper(), [" AB1 ", N, "ÉX,ÉY"]),
    (col("s").str.lower(), [" ab1 ", N, "éx,éy"]),
    (col("p").str.concat(" b").str.title(), ["B B", "A B", "B B"]),
    (col("s").str.length(), [5, N, 5]),
    (col("s").str.byte_length(), [5, N, 7]),
    (col("s").str.strip(), ["Ab1", N, "éx,éy"]),
    (col("s").str.lstrip(), ["Ab1 ", N, "éx,éy"]),
    (col("s").str.rstrip(), [" Ab1", N, "éx,éy"]),
    (col("s").str.starts_with("é"), [False, N, True]),
    (col("s").str.ends_with("y"), [False, N, True]),
    (col("s").str.contains("%"), [False, N, False]),
    (col("s").str.find("y"), [-1, N, 4]),
    (col("s").str.replace("é", "e"), [" Ab1 ", N, "ex,ey"]),
    (col("s").str.slice(1, 2), ["Ab", N, "x,"]),
    (col("s").str.slice(-2), ["1 ", N, "éy"]),
    (col("s").str.reverse(), [" 1bA ", N, "yé,xé"]),
    (col("p").str.repeat(3), ["bbb", "aaa", "bbb"]),
    (col("s").str.concat("-", col("p")), [" Ab1 -b", N, "éx,éy-b"]),
    (col("s").str.split(","), [[" Ab1 "], None, ["éx", "éy"]]),
    (col("p").str.pad_start(3, "0"), ["00b", "00a", "00b"]),
    (col("p").str.pad_end(3, "é"), ["béé", "aéé", "béé"]),
    (col("s").str.matches(r"\d"), [True, N, False]),
    (col("s").str.extract(r"([A-Z])(.)", 2), ["b", N, N]),
    (col("s").str.extract_all("é."), [[], None, ["éx", "éy"]]),
    (col("s").str.replace_regex(r"(\w)1", r"<\1>"), [" A<b> ", N, "éx,éy"]),
    (col("s").str.count_matches("é"), [0, N, 2]),
    (col("s").str.like("%x_é%"), [False, N, True]),
    (col("s").str.ilike("%AB%"), [True, N, False]),
    (col("p").str.similarity("b"), [1.0, 0.0, 1.0]),
    (col("p").str.edit_distance("bc"), [1, 2, 1]),
    (col("d").dt.year(), [2024, N, 1999]),
    (col("t").dt.quarter(), [1, N, 4]),
    (col("t").dt.month(), [2, N, 12]),
    (col("d").dt.week(), [9, N, 52]),
    (col("d").dt.iso_year(), [2024, N, 1999]),
    (col("d").dt.day(), [29, N, 31]),
    (col("d").dt.weekday(), [4, N, 5]),
    (col("d").dt.ordinal_day(), [60, N, 365]),
    (col("t").dt.hour(), [13, N, 23]),
    (col("t").dt.minute(), [14, N, 59]),
    (col("t").dt.second(), [15, N, 59]),
    (col("t").dt.millisecond(), [678, N, 0]),
    (col("t").dt.microsecond(), [678901, N, 0]),
    (col("t").dt.date(), [date(2024, 2, 29), N, date(1999, 12, 31)]),
    (col("t").dt.truncate("hour"), [datetime(2024, 2, 29, 13), N, datetime(1999, 12, 31, 23)]),
    (col("d").dt.truncate("month"), [date(2024, 2, 1), N, date(1999, 12, 1)]),
    (col("d").dt.add(years=1), [date(2025, 2, 28), N, date(2000, 12, 31)]),
    (col("t").dt.add(days=1, hours=-1), [datetime(2024, 3, 1, 12, 14, 15, 678901), N, datetime(2000, 1, 1, 22, 59,
    59)]),
    (col("d").dt.diff(date(2024, 1, 1), "day"), [59, N, -8767]),
    (col("t").dt.epoch("us"), [1709212455678901, N, 946684799000000]),
    (col("t").dt.epoch("ms"), [1709212455678, N, 946684799000]),
    (col("t").dt.epoch("s"), [1709212455.678901, N, 946684799.0]),
    (col("d") + timedelta(days=1), [date(2024, 3, 1), N, date(2000, 1, 1)]),
    (col("t").dt.strftime("%Y/%m/%d %H:%M:%S"), ["2024/02/29 13:14:15", N, "1999/12/31 23:59:59"]),
    (col("z").dt.in_zone("Asia/Tokyo").dt.hour(), [22, N, N]),
    (lit("2024-02-29 01:02:03").str.strptime("%Y-%m-%d %H:%M:%S"), [datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC)] * 3),
    (col("l").list.len(), [3, 0, 1]),
    (col("l").list.get(0), [3, N, 2]),
    (col("l").list.get(-1), [3, N, 2]),
    (col("l").list.get(2), [3, N, N]),
    (col("l").list.contains(1), [True, False, False]),
    (col("l").list.index_of(1), [1, -1, -1]),
    (col("l").list.sum(), [7, N, 2]),
    (col("l").list.mean(), [7 / 3, N, 2.0]),
    (col("l").list.min(), [1, N, 2]),
    (col("l").list.max(), [3, N, 2]),
    (col("l").list.sort(), [[1, 3, 3], [], [2]]),
    (col("l").list.sort(descending=True), [[3, 3, 1], [], [2]]),
    (col("l").list.reverse(), [[3, 1, 3], [], [2]]),
    (col("l").list.unique(), [[3, 1], [], [2]]),
    (col("l").list.slice(1, 1), [[1], [], []]),
    (col("l").list.join("-"), ["3-1-3", "", "2"]),
    (col("l").list.l2_distance(col("l")), [0.0, 0.0, 0.0]),
    (col("l").list.dot(col("l")), [19.0, 0.0, 4.0]),
    (array(col("j"), 0).list.cosine_distance([1, 0]), [0.0, 0.0, 2.0]),
    (col("js").json.decode("Tuple(n Float64)"), [{"n": 1.5}, None, {"n": None}]),
    (col("i").replace({7: 70}, default=0), [70, 0, 0]),
    (col("i").forward_fill(), [7, 7, -8]),
    (col("i").interpolate(), [7.0, -0.5, -8.0]),
    (col("j").ntile(2), [1, 2, 1]),
    (array(col("k"), col("j")), [[1, 2], [2, 3], [3, -3]]),
    (col("m").map.keys(), [["a"], [], ["b"]]),
    (col("m").map.values(), [[1], [], [2]]),
    (col("m").map.get("a"), [1, N, N]),
    (col("m").map.contains("a"), [True, False, False]),
    (col("c").struct.field("y"), ["u", "v", "w"]),
    (col("js").json.get("a", "b", 1, kind="int"), [1, N, N]),
    (col("js").json.get("a", "b", 2), ["two", N, N]),
    (col("js").json.get("n", kind="float"), [1.5, N, N]),
    (col("js").json.get("t", kind="bool"), [True, N, N]),
    (col("js").json.raw("a", "b"), ['[1,"two"]', None, None]),
    (col("js").json.has("a", "b"), [True, False, False]),
    (col("l").json.encode(), ["[3,1,3]", "[]", "[2]"]),
    (col("i").shift(), [N, 7, N]),
    (row_number(), [1, 2, 3]),
    (col("j").rank(), [2, 3, 1]),
    (col("p").rank(dense=True), [2, 1, 2]),
    (col("i").sum().over("p"), [-1, 0, -1]),
]  # fmt: skip
AGGREGATES = [
    (col("i").sum(), -1),
    (col("k").sum(), 6),
    (col("f").sum(), -1.0),
    (col("i").min(), -8),
    (col("s").max(), "éx,éy"),
    (col("i").mean(), -0.5),
    (col("k").std(), 1.0),
    (col("k").var(0), 2 / 3),
    (col("k").quantile(0.25), 1.5),
    (col("k").median(), 2.0),
    (col("i").count(), 2),
    (length(), 3),
    (col("b").count_if(), 1),
    (col("p").nunique(), 2),
    (col("b").any(), True),
    (col("b").all(), False),
    (col("i").argmin(), 2),
    (col("i").argmax(), 0),
    (col("i").first(), 7),
    (col("f").last(), -2.5),
    (col("i").collect(), [7, None, -8]),
    (col("p").unique(), ["b", "a"]),
    (col("k").corr(col("k")), 1.0),
    (col("k").cov(col("k")), 1.0),
    (col("p").mode(), "b"),
    (col("i").approx_nunique(), 2),
    (col("j").approx_quantile(0.0), -3.0),
    (col("k").sum() * 2 + col("j").max(), 15),
]


async def described(relation):
    """Return ClickHouse's own type of the expression."""
    from aaiclick.data import get_data_context

    query = compile_query(relation)
    rows = await get_data_context().client.read_text(f"DESCRIBE TABLE ({query.text})", query.parameters, query.settings)
    return [parse_type(row["type"]) for row in rows.to_pylist()]


def close(actual, expected):
    if isinstance(expected, float) and isinstance(actual, float):
        return actual == pytest.approx(expected, rel=1e-12)
    return actual == expected and type(actual) is type(expected)


async def check(obj, expected):
    actual = (await obj.data())["r"]
    assert all(close(a, b) for a, b in zip(actual, expected, strict=True)), f"{actual} is not {expected}\n{obj.sql()}"
    (dtype,) = obj.schema.values()
    (real,) = await described(obj.relation)
    if not dtype.is_unknown:
        assert str(real.as_required()) == str(storage_type(dtype.as_required())), f"{obj.sql()}: {real}, not {dtype}"
        assert not (real.nullable and not dtype.nullable), f"{obj.sql()}: may be NULL, and the table says it may not"


async def failure(obj, expected):
    try:
        await check(obj, expected)
    except (AssertionError, DataError) as error:
        return f"{obj.sql(pretty=False)}\n{error}"
    return ""


async def test_every_row_function(data):
    frame = await create_object_from_value(FRAME)
    failures = [await failure(frame.select(r=expression), expected) for expression, expected in CASES]
    assert not any(failures), "\n\n".join(text for text in failures if text)


async def test_every_aggregate(data):
    frame = await create_object_from_value(FRAME)
    failures = [await failure(frame.select(r=expression), [expected]) for expression, expected in AGGREGATES]
    assert not any(failures), "\n\n".join(text for text in failures if text)


def test_every_registered_function_is_tested():
    covered = {"null", "concat", "pow"}
    for expression, _ in (*CASES, *AGGREGATES):
        for node in walk_nodes(expression.node):
            if isinstance(node, FunctionCall):
                covered.add(node.function)
            if isinstance(node, Over):
                covered.add(node.call.function)
    assert {name for name in FUNCTIONS if not name.startswith("_")} - covered == set()


def test_every_function_has_documentation():
    assert [name for name, function in FUNCTIONS.items() if not function.doc and not name.startswith("_")] == []
