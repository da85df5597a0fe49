"""Reference implementations of all operations in plain Python or polars: the tables of the property tests.

A row function is a pair: the expression over two columns, and its value for one row. `both_args`, `first_arg` and
`second_arg` return NULL if an argument they use is NULL. An aggregate maps all values to one, a window maps them to as
many. tests/unit/data/test_operation_coverage.py compares these tables with the public API: an operation without a
reference implementation fails there.
"""

# ruff: noqa: DTZ001  (datetimes without a time zone are tested too)

from __future__ import annotations

import hashlib
import json
import math
import re
import statistics
from datetime import UTC, date, datetime, timedelta
from operator import add, eq, ge, gt, le, lt, mul, ne, sub

import polars as pl
from hypothesis import strategies as st

from aaiclick.data import array, case, coalesce, col, duration, if_else, length, lit, row_index, row_number

NAMES = st.sampled_from(
    ["from", "a b", "`", "🦆", "select", "x'y", 'q"', "back\\slash", "ünïcode", "%d", "value", "{p0:Int8}"]
)
SMALL = st.integers(-1000, 1000)
EXTREME = st.sampled_from([2**63 - 1, -(2**63), 0, -1, 1, 2**62]) | st.integers(-(2**63), 2**63 - 1)
REAL = st.floats(allow_nan=True, allow_infinity=True, width=64)
TAME = st.floats(-1e6, 1e6, allow_nan=False, allow_subnormal=False)
TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x00"), max_size=8)
WORDS = st.text("aAbBzé É Ж9🦆%.,-'\\", max_size=10)
DATES = st.dates(date(1900, 1, 2), date(2199, 12, 31))
TIMES = st.datetimes(datetime(1900, 1, 4), datetime(2199, 12, 31))


def wrap(value):
    """Wrap to 64 bits, as polars and ClickHouse do."""
    return (value + 2**63) % 2**64 - 2**63


def both_args(function):
    """Return NULL if any argument is NULL."""
    return lambda *row: None if any(value is None for value in row) else function(*row)


def first_arg(function):
    """Apply the function to the first argument only."""
    return lambda p, q: None if p is None else function(p)


def second_arg(function):
    """Apply the function to the second argument only."""
    return lambda p, q: None if q is None else function(q)


def divided(p, q):
    """IEEE division, where Python raises."""
    if q:
        return float(p) / float(q)
    return math.nan if p == 0 or math.isnan(p) else math.copysign(math.inf, p) * math.copysign(1.0, q)


def soft(function):
    """Wrap a function of `math`: NaN outside its domain, inf on overflow."""

    def result(*args):
        try:
            return float(function(*args))
        except ValueError:
            return -math.inf if args[0] == 0 or (function is math.log1p and args[0] == -1) else math.nan
        except OverflowError:
            return math.inf

    return result


def rounded(function):
    return lambda p: p if math.isnan(p) or math.isinf(p) else float(function(p))


def floored(p, q):
    """Floor division of floats: the quotient, rounded down."""
    quotient = divided(p, q)
    return quotient if math.isnan(quotient) or math.isinf(quotient) else float(math.floor(quotient))


# --- numbers -----------------------------------------------------------------------------------------------------

INTEGERS = {
    "add": (lambda a, b: a + b, both_args(lambda p, q: wrap(p + q))),
    "radd": (lambda a, b: 7 + a, first_arg(lambda p: wrap(7 + p))),
    "sub": (lambda a, b: a - b, both_args(lambda p, q: wrap(p - q))),
    "rsub": (lambda a, b: 7 - a, first_arg(lambda p: wrap(7 - p))),
    "mul": (lambda a, b: a * b, both_args(lambda p, q: wrap(p * q))),
    "rmul": (lambda a, b: 3 * b, second_arg(lambda q: 3 * q)),
    "truediv": (lambda a, b: a / b, both_args(divided)),
    "rtruediv": (lambda a, b: 7 / b, second_arg(lambda q: divided(7, q))),
    "floordiv": (lambda a, b: a // b, both_args(lambda p, q: wrap(p // q) if q else None)),
    "floordiv_by": (lambda a, b: a // 7, first_arg(lambda p: p // 7)),
    "floordiv_minus": (lambda a, b: a // -1, first_arg(lambda p: wrap(-p))),
    "rfloordiv": (lambda a, b: 1000 // b, lambda p, q: 1000 // q if q else None),
    "mod": (lambda a, b: a % b, both_args(lambda p, q: p % q if q else None)),
    "mod_by": (lambda a, b: a % 7, first_arg(lambda p: p % 7)),
    "rmod": (lambda a, b: 1000 % b, lambda p, q: 1000 % q if q else None),
    "pow": (lambda a, b: b**2, second_arg(lambda q: q**2)),
    "rpow": (lambda a, b: 2 ** (b % 60), second_arg(lambda q: 2 ** (q % 60))),
    "float pow": (lambda a, b: 2.0**b, second_arg(lambda q: 2.0**q)),
    "lshift": (lambda a, b: a << 3, first_arg(lambda p: wrap(p << 3))),
    "rshift": (lambda a, b: a >> 5, first_arg(lambda p: p >> 5)),
    "rlshift": (lambda a, b: 1 << (b % 60), second_arg(lambda q: 1 << q % 60)),
    "rrshift": (lambda a, b: 200 >> (b % 7), second_arg(lambda q: 200 >> q % 7)),
    "neg": (lambda a, b: -a, first_arg(lambda p: wrap(-p))),
    "pos": (lambda a, b: +a, lambda p, q: p),
    "abs": (lambda a, b: abs(a), first_arg(lambda p: wrap(abs(p)))),
    "abs_method": (lambda a, b: b.abs(), second_arg(lambda q: abs(q))),
    "round": (lambda a, b: round(a), lambda p, q: p),
    "sign": (lambda a, b: a.sign(), first_arg(lambda p: (p > 0) - (p < 0))),
    "eq": (lambda a, b: a == b, both_args(eq)),
    "ne": (lambda a, b: a != b, both_args(ne)),
    "lt": (lambda a, b: a < b, both_args(lt)),
    "le": (lambda a, b: a <= b, both_args(le)),
    "gt": (lambda a, b: a > b, both_args(gt)),
    "ge": (lambda a, b: a >= b, both_args(ge)),
    "and": (lambda a, b: a & b, both_args(lambda p, q: p & q)),
    "rand": (lambda a, b: 6 & a, first_arg(lambda p: 6 & p)),
    "or": (lambda a, b: a | b, both_args(lambda p, q: p | q)),
    "ror": (lambda a, b: 6 | a, first_arg(lambda p: 6 | p)),
    "xor": (lambda a, b: a ^ b, both_args(lambda p, q: p ^ q)),
    "rxor": (lambda a, b: 6 ^ a, first_arg(lambda p: 6 ^ p)),
    "invert": (lambda a, b: ~a, first_arg(lambda p: ~p)),
    "between": (lambda a, b: b.between(-5, 500), second_arg(lambda q: -5 <= q <= 500)),
    "isin": (lambda a, b: b.isin([1, 2, 3, -1]), second_arg(lambda q: q in (1, 2, 3, -1))),
    "is_null": (lambda a, b: a.is_null(), lambda p, q: p is None),
    "is_not_null": (lambda a, b: a.is_not_null(), lambda p, q: p is not None),
    "if_else": (lambda a, b: (a > 0).if_else(a, b), lambda p, q: p if p is not None and p > 0 else q),
    "fill_null": (lambda a, b: a.fill_null(0), lambda p, q: 0 if p is None else p),
    "coalesce": (lambda a, b: a.coalesce(b, 9), lambda p, q: next((v for v in (p, q) if v is not None), 9)),
    "null_if": (lambda a, b: a.null_if(b), lambda p, q: None if p == q else p),
    "least": (lambda a, b: a.least(b, 5), both_args(lambda p, q: min(p, q, 5))),
    "greatest": (lambda a, b: a.greatest(b, 5), both_args(lambda p, q: max(p, q, 5))),
    "clip": (lambda a, b: a.clip(-9, 9), first_arg(lambda p: min(max(p, -9), 9))),
    "cast": (lambda a, b: a.cast("String"), first_arg(lambda p: str(p))),
    "try_cast": (lambda a, b: a.try_cast("Int8"), lambda p, q: p if p is not None and -128 <= p < 128 else None),
    "is_finite": (lambda a, b: a.is_finite(), first_arg(lambda p: True)),
}  # fmt: skip
FLOATS = {
    "same": (lambda a, b: a, lambda p, q: p),
    "add": (lambda a, b: a + b, both_args(add)),
    "sub": (lambda a, b: a - b, both_args(sub)),
    "mul": (lambda a, b: a * b, both_args(mul)),
    "truediv": (lambda a, b: a / b, both_args(divided)),
    "floordiv": (lambda a, b: a // b, both_args(floored)),
    "floordiv_by": (lambda a, b: b // 3, second_arg(lambda q: q // 3)),
    "mod": (lambda a, b: b % -2.5, second_arg(lambda q: q % -2.5)),
    "mod_by": (lambda a, b: b % 3, second_arg(lambda q: q % 3)),
    "mod_endless": (lambda a, b: (a - a) % 3, first_arg(lambda p: 0.0 if math.isfinite(p) else math.nan)),
    "neg": (lambda a, b: -a, first_arg(lambda p: -p)),
    "abs": (lambda a, b: abs(a), first_arg(lambda p: abs(p))),
    "eq": (lambda a, b: a == a, lambda p, q: None if p is None else p == p),
    "lt": (lambda a, b: a < b, both_args(lt)),
    "ge": (lambda a, b: a >= b, both_args(ge)),
    "is_nan": (lambda a, b: a.is_nan(), first_arg(lambda p: math.isnan(p))),
    "is_finite": (lambda a, b: a.is_finite(), first_arg(lambda p: math.isfinite(p))),
    "round": (lambda a, b: a.round(), first_arg(lambda p: rounded(round)(p))),
    "floor": (lambda a, b: a.floor(), first_arg(lambda p: rounded(math.floor)(p))),
    "ceil": (lambda a, b: a.ceil(), first_arg(lambda p: rounded(math.ceil)(p))),
    "trunc": (lambda a, b: a.trunc(), first_arg(lambda p: rounded(math.trunc)(p))),
    "sqrt": (lambda a, b: b.sqrt(), second_arg(lambda q: soft(math.sqrt)(q))),
    "exp": (lambda a, b: b.exp(), second_arg(lambda q: soft(math.exp)(q))),
    "log": (lambda a, b: b.log(), second_arg(lambda q: soft(math.log)(q))),
    "log2": (lambda a, b: b.log2(), second_arg(lambda q: soft(math.log2)(q))),
    "log10": (lambda a, b: b.log10(), second_arg(lambda q: soft(math.log10)(q))),
    **{
        f"math {name}": (
            lambda a, b, name=name: b.math(name),
            lambda p, q, name=name: None if q is None else soft(getattr(math, name))(q),
        )
        for name in ("cbrt", "exp2", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "tanh", "degrees", "radians")
    },
    "math sinh": (lambda a, b: (b / 1e5).math("sinh"), second_arg(lambda q: math.sinh(q / 1e5))),
    "math cosh": (lambda a, b: (b / 1e5).math("cosh"), second_arg(lambda q: math.cosh(q / 1e5))),
    "math atan2": (lambda a, b: b.math("atan2", 2.5), second_arg(lambda q: math.atan2(q, 2.5))),
    "math hypot": (lambda a, b: b.math("hypot", 2.5), second_arg(lambda q: math.hypot(q, 2.5))),
}  # fmt: skip
BOOLEANS = {
    "and": (lambda a, b: a & b, lambda p, q: False if p is False or q is False else None if None in (p, q) else True),
    "or": (lambda a, b: a | b, lambda p, q: True if p or q else None if None in (p, q) else False),
    "xor": (lambda a, b: a ^ b, both_args(ne)),
    "not": (lambda a, b: ~a, first_arg(lambda p: not p)),
    "rand": (lambda a, b: True & a, lambda p, q: p),
    "ror": (lambda a, b: False | a, lambda p, q: p),
    "rxor": (lambda a, b: True ^ a, first_arg(lambda p: not p)),
    "if_else": (lambda a, b: a.if_else(b, False), lambda p, q: q if p else False),
    "cast": (lambda a, b: a.cast("Int64"), first_arg(lambda p: int(p))),
    "add": (lambda a, b: a + b, both_args(lambda p, q: int(p) + int(q))),
}
# These take expressions alone, not columns of an Object.
FREE = {
    "if_else": (lambda a, b: if_else(a > 0, a, b), lambda p, q: p if p is not None and p > 0 else q),
    "case": (
        lambda a, b: case((a > 0, "p"), (b > 0, "q"), otherwise="n"),
        lambda p, q: "p" if p is not None and p > 0 else "q" if q is not None and q > 0 else "n",
    ),
    "coalesce": (lambda a, b: coalesce(a, b), lambda p, q: q if p is None else p),
    "duration": (lambda a, b: duration(days=b, hours=2), second_arg(lambda q: timedelta(days=q, hours=2))),
    "lit": (lambda a, b: lit("it's `\\"), lambda p, q: "it's `\\"),
    "array": (lambda a, b: array(a, b, 1), lambda p, q: [p, q, 1]),
    "alias": (lambda a, b: (a + 1).alias("other") - a, first_arg(lambda p: 1)),
}

# --- text --------------------------------------------------------------------------------------------------------

WORD = re.compile(r"[a-zA-ZéÉЖ0-9]+")


def like(pattern):
    """Match SQL's LIKE with a regular expression."""
    text = "".join({"%": ".*", "_": "."}.get(c, re.escape(c)) for c in pattern)
    return re.compile(text, re.DOTALL)


def edits(left, right):
    """Levenshtein's distance."""
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        last, row[0] = row[0], i
        for j, b in enumerate(right, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (a != b))
    return row[-1]


def jaro_winkler(left, right):
    """Jaro-Winkler similarity of the bytes, with a bonus for up to four equal bytes at the start."""
    a, b = left.encode(), right.encode()
    if not a and not b:
        return 1.0
    reach = max(len(a), len(b), 2) // 2 - 1
    taken, matched = [False] * len(b), []
    for i, element in enumerate(a):
        for j in range(max(0, i - reach), min(len(b), i + reach + 1)):
            if not taken[j] and b[j] == element:
                taken[j] = True
                matched.append(element)
                break
    if not matched:
        return 0.0
    matched_b = [element for element, hit in zip(b, taken, strict=True) if hit]
    turned = sum(x != y for x, y in zip(matched, matched_b, strict=True)) / 2
    m = len(matched)
    jaro = (m / len(a) + m / len(b) + (m - turned) / m) / 3
    prefix = next((i for i, (x, y) in enumerate(zip(a[:4], b[:4], strict=False)) if x != y), min(len(a), len(b), 4))
    return jaro + prefix * 0.1 * (1 - jaro) if jaro > 0.7 else jaro


STRINGS = {
    "same": (lambda a, b: a, lambda p, q: p),
    "add": (lambda a, b: a + b, both_args(add)),
    "eq": (lambda a, b: a == b, both_args(eq)),
    "le": (lambda a, b: a <= b, both_args(lambda p, q: p.encode() <= q.encode())),
    "literal": (lambda a, b: a == "it's \\ `", first_arg(lambda p: p == "it's \\ `")),
    "length": (lambda a, b: a.str.length(), first_arg(lambda p: len(p))),
    "byte_length": (lambda a, b: a.str.byte_length(), first_arg(lambda p: len(p.encode()))),
    "starts_with": (lambda a, b: a.str.starts_with(b), both_args(str.startswith)),
    "ends_with": (lambda a, b: a.str.ends_with(b), both_args(str.endswith)),
    "contains": (lambda a, b: a.str.contains(b), both_args(lambda p, q: q in p)),
    "slice": (lambda a, b: a.str.slice(1, 3), first_arg(lambda p: p[1:4])),
    "slice_end": (lambda a, b: a.str.slice(-2), first_arg(lambda p: p[-2:])),
    "reverse": (lambda a, b: a.str.reverse(), first_arg(lambda p: p[::-1])),
    "find": (lambda a, b: a.str.find("a"), first_arg(lambda p: p.find("a"))),
    "replace": (lambda a, b: a.str.replace("a", "\\1'"), first_arg(lambda p: p.replace("a", "\\1'"))),
    "repeat": (lambda a, b: a.str.repeat(3), first_arg(lambda p: p * 3)),
    "concat": (lambda a, b: a.str.concat("-", b), both_args(lambda p, q: f"{p}-{q}")),
    "split": (lambda a, b: a.str.split(","), first_arg(lambda p: p.split(","))),
    "pad_start": (lambda a, b: a.str.pad_start(6, "é"), first_arg(lambda p: p.rjust(6, "é"))),
    "pad_end": (lambda a, b: a.str.pad_end(6, "é"), first_arg(lambda p: p.ljust(6, "é"))),
    "strip": (lambda a, b: a.str.strip(), first_arg(lambda p: p.strip())),
    "lstrip": (lambda a, b: a.str.lstrip(), first_arg(lambda p: p.lstrip())),
    "rstrip": (lambda a, b: a.str.rstrip(), first_arg(lambda p: p.rstrip())),
    "edit_distance": (lambda a, b: a.str.edit_distance(b), both_args(edits)),
    "similarity": (lambda a, b: a.str.similarity(b), both_args(jaro_winkler)),
    "md5": (lambda a, b: a.md5(), first_arg(lambda p: hashlib.md5(p.encode()).hexdigest())),
    "sha1": (lambda a, b: a.sha1(), first_arg(lambda p: hashlib.sha1(p.encode()).hexdigest())),
    "sha256": (lambda a, b: a.sha256(), first_arg(lambda p: hashlib.sha256(p.encode()).hexdigest())),
    "json_encode": (lambda a, b: a.json.encode(), lambda p, q: p),  # read back by `READ_BACK`
}  # fmt: skip
READ_BACK = {"json_encode": lambda text: None if text is None else json.loads(text)}
WORDED = {
    "upper": (lambda a, b: a.str.upper(), first_arg(lambda p: p.upper())),
    "lower": (lambda a, b: a.str.lower(), first_arg(lambda p: p.lower())),
    "title": (lambda a, b: a.str.title(),
              first_arg(lambda p: WORD.sub(lambda m: m[0].capitalize(), p))),
    "matches": (lambda a, b: a.str.matches("[ab]+Z?"), first_arg(lambda p: bool(re.search("[ab]+", p)))),
    "extract": (lambda a, b: a.str.extract("([ab])(.)", 2),
                first_arg(lambda p: (m[2] if (m := re.search("([ab])(.)", p)) else None))),
    "extract_all": (lambda a, b: a.str.extract_all("[aé]."), first_arg(lambda p: re.findall("[aé].", p))),
    "replace_regex": (lambda a, b: a.str.replace_regex("([ab])é", r"<\1>"),
                      first_arg(lambda p: re.sub("([ab])é", r"<\1>", p))),
    "count_matches": (lambda a, b: a.str.count_matches("[aé]"),
                      first_arg(lambda p: len(re.findall("[aé]", p)))),
    "like": (lambda a, b: a.str.like("%a_é%"), first_arg(lambda p: bool(like("%a_é%").fullmatch(p)))),
    "ilike": (lambda a, b: a.str.ilike("%A%b%"),
              first_arg(lambda p: bool(like("%a%b%").fullmatch(p.lower())))),
}  # fmt: skip

# --- time --------------------------------------------------------------------------------------------------------

EPOCH = datetime(1970, 1, 1)


def micros(moment):
    return (moment - EPOCH) // timedelta(microseconds=1)


def later(moment, *, months):
    """Add months: the same day of another month, or its last day."""
    year, month = divmod(moment.year * 12 + moment.month - 1 + months, 12)
    last_day = (date(year + (month + 1) // 12, (month + 1) % 12 + 1, 1) - timedelta(days=1)).day
    return moment.replace(year=year, month=month + 1, day=min(moment.day, last_day))


def whole(seconds_each):
    """Difference in whole units, truncated towards zero."""
    return lambda p, q: int((p - q) / timedelta(seconds=1) / seconds_each)


DATED = {
    "same": (lambda a, b: a, lambda p, q: p),
    "lt": (lambda a, b: a < b, both_args(lt)),
    "sub": (lambda a, b: a - b, both_args(sub)),
    "plus": (lambda a, b: a + timedelta(days=1), first_arg(lambda p: p + timedelta(days=1))),
    "minus": (lambda a, b: a - timedelta(days=1), first_arg(lambda p: p - timedelta(days=1))),
    "add timedelta": (lambda a, b: a.dt.add(days=40), first_arg(lambda p: p + timedelta(days=40))),
    "add months": (lambda a, b: a.dt.add(months=13), first_arg(lambda p: later(p, months=13))),
    "year": (lambda a, b: a.dt.year(), first_arg(lambda p: p.year)),
    "quarter": (lambda a, b: a.dt.quarter(), first_arg(lambda p: (p.month + 2) // 3)),
    "month": (lambda a, b: a.dt.month(), first_arg(lambda p: p.month)),
    "week": (lambda a, b: a.dt.week(), first_arg(lambda p: p.isocalendar().week)),
    "iso_year": (lambda a, b: a.dt.iso_year(), first_arg(lambda p: p.isocalendar().year)),
    "day": (lambda a, b: a.dt.day(), first_arg(lambda p: p.day)),
    "weekday": (lambda a, b: a.dt.weekday(), first_arg(lambda p: p.isoweekday())),
    "ordinal_day": (lambda a, b: a.dt.ordinal_day(), first_arg(lambda p: p.timetuple().tm_yday)),
    "truncate month": (lambda a, b: a.dt.truncate("month"), first_arg(lambda p: p.replace(day=1))),
    "truncate year": (lambda a, b: a.dt.truncate("year"), first_arg(lambda p: p.replace(month=1, day=1))),
    "truncate quarter": (
        lambda a, b: a.dt.truncate("quarter"),
        first_arg(lambda p: p.replace(month=(p.month - 1) // 3 * 3 + 1, day=1)),
    ),
    "truncate week": (lambda a, b: a.dt.truncate("week"), first_arg(lambda p: p - timedelta(days=p.weekday()))),
    "diff": (lambda a, b: a.dt.diff(b, "day"), both_args(lambda p, q: (p - q).days)),
}
TIMED = {
    "same": (lambda a, b: a, lambda p, q: p),
    "le": (lambda a, b: a <= b, both_args(le)),
    "sub": (lambda a, b: a - b, both_args(sub)),
    "elapsed": (lambda a, b: a - (a - b), both_args(lambda p, q: q)),
    "sum": (lambda a, b: (a - b) + b, both_args(lambda p, q: p)),
    "plus": (lambda a, b: a + timedelta(hours=30, microseconds=1),
             first_arg(lambda p: p + timedelta(hours=30, microseconds=1))),
    "minus": (lambda a, b: a - timedelta(days=3), first_arg(lambda p: p - timedelta(days=3))),
    "hour": (lambda a, b: a.dt.hour(), first_arg(lambda p: p.hour)),
    "minute": (lambda a, b: a.dt.minute(), first_arg(lambda p: p.minute)),
    "second": (lambda a, b: a.dt.second(), first_arg(lambda p: p.second)),
    "millisecond": (lambda a, b: a.dt.millisecond(), first_arg(lambda p: p.microsecond // 1000)),
    "microsecond": (lambda a, b: a.dt.microsecond(), first_arg(lambda p: p.microsecond)),
    "date": (lambda a, b: a.dt.date(), first_arg(lambda p: p.date())),
    "truncate hour": (lambda a, b: a.dt.truncate("hour"),
                      first_arg(lambda p: p.replace(minute=0, second=0, microsecond=0))),
    "truncate minute": (lambda a, b: a.dt.truncate("minute"), first_arg(lambda p: p.replace(second=0, microsecond=0))),
    "truncate second": (lambda a, b: a.dt.truncate("second"), first_arg(lambda p: p.replace(microsecond=0))),
    "truncate millisecond": (
        lambda a, b: a.dt.truncate("millisecond"),
        first_arg(lambda p: p.replace(microsecond=p.microsecond // 1000 * 1000)),
    ),
    "truncate day": (lambda a, b: a.dt.truncate("day"), first_arg(lambda p: datetime(p.year, p.month, p.day))),
    "truncate year": (lambda a, b: a.dt.truncate("year"), first_arg(lambda p: datetime(p.year, 1, 1))),
    "add": (lambda a, b: a.dt.add(hours=5, seconds=-1), first_arg(lambda p: p + timedelta(hours=5, seconds=-1))),
    "diff": (lambda a, b: a.dt.diff(b, "hour"), both_args(whole(3600))),
    "epoch us": (lambda a, b: a.dt.epoch("us"), first_arg(lambda p: micros(p))),
    "epoch ms": (lambda a, b: a.dt.epoch("ms"), first_arg(lambda p: micros(p) // 1000)),
    "epoch s": (lambda a, b: a.dt.epoch("s"), first_arg(lambda p: micros(p) / 1e6)),
    "strftime": (lambda a, b: a.dt.strftime("%Y-%m-%d %H:%M:%S"),
                 first_arg(lambda p: p.isoformat(" ", "seconds"))),
    **{f"strftime {text}": (lambda a, b, text=text: a.dt.strftime(text),
                            lambda p, q, text=text: None if p is None else p.strftime(text))
       for text in ("%H:%M:%S", "%Y-%m-%dT%H:%M:%S.%f", "%A, %d %B %Y", "%a %b %d %y %I:%M %p", "%j %U %W %w %u %G %V",
                    "%c|%x|%X|%D|%T|%F|%R|%%|%z|%e")},
    "strptime": (lambda a, b: a.dt.strftime("%Y-%m-%d %H:%M:%S").str.strptime("%Y-%m-%d %H:%M:%S"),
                 first_arg(lambda p: p.replace(microsecond=0, tzinfo=UTC))),
    "strptime f": (lambda a, b: a.dt.strftime("%d.%m.%Y %H:%M:%S.%f").str.strptime("%d.%m.%Y %H:%M:%S.%f"),
                   first_arg(lambda p: p.replace(tzinfo=UTC))),
    "strptime B": (lambda a, b: a.dt.strftime("%A %d %B %Y %I %p").str.strptime("%A %d %B %Y %I %p"),
                   first_arg(lambda p: p.replace(minute=0, second=0, microsecond=0, tzinfo=UTC))),
    "in_zone": (lambda a, b: a.dt.in_zone("Asia/Kathmandu").dt.epoch("us"), first_arg(lambda p: micros(p))),
}  # fmt: skip

# --- nested ------------------------------------------------------------------------------------------------------


def drop_nulls(values):
    return [value for value in values if value is not None]


def last_null(values, *, descending=False):
    return sorted(drop_nulls(values), reverse=descending) + [None] * (len(values) - len(drop_nulls(values)))


SPANS = {
    "same": (lambda a, b: a, lambda p, q: p),
    "add": (lambda a, b: a + b, both_args(add)),
    "sub": (lambda a, b: a - b, both_args(sub)),
    "neg": (lambda a, b: -a, first_arg(lambda p: -p)),
    "abs": (lambda a, b: a.abs(), first_arg(abs)),
    "plus": (lambda a, b: timedelta(days=2) + a - timedelta(seconds=1), first_arg(lambda p: p + timedelta(1, 86399))),
    "times": (lambda a, b: a * -7, first_arg(lambda p: p * -7)),
    "half": (lambda a, b: a * 0.5, first_arg(lambda p: p * 0.5)),
    "truediv": (lambda a, b: a / b, both_args(lambda p, q: divided(micros_of(p), micros_of(q)))),
    "third": (lambda a, b: a / 3, first_arg(lambda p: p / 3)),
    "minus third": (lambda a, b: a / -3, first_arg(lambda p: p / -3)),
    "floor": (lambda a, b: a // b, both_args(lambda p, q: p // q if q else None)),
    "floor by": (lambda a, b: a // 7, first_arg(lambda p: p // 7)),
    "mod": (lambda a, b: a % b, both_args(lambda p, q: p % q if q else None)),
    "le": (lambda a, b: a <= b, both_args(le)),
    "eq": (lambda a, b: a == b, both_args(eq)),
    "total_seconds": (lambda a, b: a.dt.total_seconds(), first_arg(lambda p: p.total_seconds())),
    "total_microseconds": (lambda a, b: a.dt.total_microseconds(), first_arg(lambda p: micros_of(p))),
    "total": (lambda a, b: a.dt.total("hours"), first_arg(lambda p: micros_of(p) / 3_600_000_000)),
    "text": (lambda a, b: a.cast(str), first_arg(str)),
    "seconds": (lambda a, b: a.cast("Int64", truncate=True),
                first_arg(lambda p: abs(micros_of(p)) // 1_000_000 * (1 if micros_of(p) >= 0 else -1))),
    "fill_null": (lambda a, b: a.fill_null(timedelta(1)), lambda p, q: timedelta(1) if p is None else p),
    "least": (lambda a, b: a.least(b), both_args(min)),
    "isin": (lambda a, b: a.isin([timedelta(0), timedelta(1)]), first_arg(lambda p: p in (timedelta(0), timedelta(1)))),
}  # fmt: skip
DURATIONS = st.timedeltas(timedelta(days=-90_000), timedelta(days=90_000)) | st.sampled_from(
    [timedelta(0), timedelta(1), timedelta(microseconds=1)]
)


def micros_of(span):
    return span // timedelta(microseconds=1)


LISTS = {
    "same": (lambda a, b: a, lambda p, q: p),
    "len": (lambda a, b: a.list.len(), lambda p, q: len(p)),
    "get": (lambda a, b: a.list.get(1), lambda p, q: p[1] if len(p) > 1 else None),
    "get_end": (lambda a, b: a.list.get(-2), lambda p, q: p[-2] if len(p) > 1 else None),
    "first": (lambda a, b: a.list.first(), lambda p, q: p[0] if p else None),
    "last": (lambda a, b: a.list.last(), lambda p, q: p[-1] if p else None),
    "contains": (lambda a, b: a.list.contains(1), lambda p, q: 1 in p),
    "index_of": (lambda a, b: a.list.index_of(1), lambda p, q: p.index(1) if 1 in p else -1),
    "sum": (lambda a, b: a.list.sum(), lambda p, q: sum(drop_nulls(p)) if drop_nulls(p) else None),
    "mean": (lambda a, b: a.list.mean(), lambda p, q: statistics.fmean(drop_nulls(p)) if drop_nulls(p) else None),
    "min": (lambda a, b: a.list.min(), lambda p, q: min(drop_nulls(p), default=None)),
    "max": (lambda a, b: a.list.max(), lambda p, q: max(drop_nulls(p), default=None)),
    "sort": (lambda a, b: a.list.sort(), lambda p, q: last_null(p)),
    "sort_down": (lambda a, b: a.list.sort(descending=True), lambda p, q: last_null(p, descending=True)),
    "reverse": (lambda a, b: a.list.reverse(), lambda p, q: p[::-1]),
    "unique": (lambda a, b: a.list.unique(), lambda p, q: list(dict.fromkeys(drop_nulls(p)))),
    "slice": (lambda a, b: a.list.slice(1, 2), lambda p, q: p[1:3]),
    "slice_end": (lambda a, b: a.list.slice(-2), lambda p, q: p[-2:]),
    "join": (lambda a, b: a.list.join("-"), lambda p, q: "-".join(map(str, drop_nulls(p)))),
    "concat": (lambda a, b: a.list.concat(b), lambda p, q: p + q),
    "add": (lambda a, b: a + b, lambda p, q: p + q),
}
MAPS = {
    "keys": (lambda a, b: a.map.keys(), lambda p, q: list(p)),
    "values": (lambda a, b: a.map.values(), lambda p, q: list(p.values())),
    "get": (lambda a, b: a.map.get("é"), lambda p, q: p.get("é")),
    "contains": (lambda a, b: a.map.contains("é"), lambda p, q: "é" in p),
}
STRUCTS = {
    "field": (lambda a, b: a.struct.field("x"), lambda p, q: p["x"]),
    "odd_field": (lambda a, b: a.struct.field("a b`"), lambda p, q: p["a b`"]),
}


def at(document, *path):
    for step in path:
        try:
            document = document[step]
        except (KeyError, IndexError, TypeError):
            return None
    return document


def only(expected_type, value):
    return value if type(value) is expected_type else None


JSONS = {
    "string": (lambda a, b: a.json.get("k", kind="string"), lambda p, q: only(str, at(p, "k"))),
    "int": (lambda a, b: a.json.get("n", kind="int"), lambda p, q: only(int, at(p, "n"))),
    "float": (lambda a, b: a.json.get("f", kind="float"), lambda p, q: only(float, at(p, "f"))),
    "bool": (lambda a, b: a.json.get("b", kind="bool"), lambda p, q: only(bool, at(p, "b"))),
    "deep": (lambda a, b: a.json.get("l", 2, kind="int"), lambda p, q: only(int, at(p, "l", 1))),
    "has": (lambda a, b: a.json.has("l"), lambda p, q: "l" in p),
    "raw": (lambda a, b: a.json.raw("l"), lambda p, q: json.dumps(p["l"], separators=(",", ":")) if "l" in p else None),
}
DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "k": st.text("aé'\"\\🦆", max_size=4),
        "n": SMALL,
        "f": st.floats(-100, 100).filter(lambda f: not f.is_integer()),
        "b": st.booleans(),
        "l": st.lists(SMALL, max_size=3),
    },
)

# --- aggregates and windows --------------------------------------------------------------------------------------


def quantile(values, q):
    """Quantile with linear interpolation, as in NumPy."""
    ordered = sorted(drop_nulls(values))
    if not ordered:
        return None
    rank = (len(ordered) - 1) * q
    low, high = math.floor(rank), math.ceil(rank)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low) if low != high else float(ordered[low])


def spread(function, least):
    return lambda values: float(function(drop_nulls(values))) if len(drop_nulls(values)) >= least else None


def of_pairs(function):
    def result(left, right):
        pairs = [(p, q) for p, q in zip(left, right, strict=True) if p is not None and q is not None]
        return function(pairs)

    return result


def covariance(pairs):
    return statistics.covariance(*floats(pairs)) if len(pairs) > 1 else None


def correlation(pairs):
    if len(pairs) < 2:
        return None
    try:
        return statistics.correlation(*floats(pairs))
    except (statistics.StatisticsError, ZeroDivisionError):  # one of them does not vary
        return math.nan


def floats(pairs):
    return [float(p) for p, _ in pairs], [float(q) for _, q in pairs]


def position(choose):
    def result(values):
        present = drop_nulls(values)
        return values.index(choose(present)) if present else None

    return result


AGGREGATES = {
    "sum": (lambda a, b: a.sum(), lambda x, y: sum(drop_nulls(x))),
    "min": (lambda a, b: a.min(), lambda x, y: min(drop_nulls(x), default=None)),
    "max": (lambda a, b: b.max(), lambda x, y: max(drop_nulls(y), default=None)),
    "mean": (lambda a, b: a.mean(), lambda x, y: statistics.fmean(drop_nulls(x)) if drop_nulls(x) else None),
    "std": (lambda a, b: a.std(), lambda x, y: spread(statistics.stdev, 2)(x)),
    "std 0": (lambda a, b: b.std(0), lambda x, y: spread(statistics.pstdev, 1)(y)),
    "var": (lambda a, b: a.var(), lambda x, y: spread(statistics.variance, 2)(x)),
    "var 0": (lambda a, b: a.var(ddof=0), lambda x, y: spread(statistics.pvariance, 1)(x)),
    "median": (lambda a, b: a.median(), lambda x, y: quantile(x, 0.5)),
    "quantile": (lambda a, b: b.quantile(0.3), lambda x, y: quantile(y, 0.3)),
    "count": (lambda a, b: a.count(), lambda x, y: len(drop_nulls(x))),
    "length": (lambda a, b: length(), lambda x, y: len(x)),
    "nunique": (lambda a, b: a.nunique(), lambda x, y: len(set(drop_nulls(x)))),
    "unique": (lambda a, b: a.unique(), lambda x, y: list(dict.fromkeys(drop_nulls(x)))),
    "count_if": (lambda a, b: (a > 0).count_if(), lambda x, y: sum(p > 0 for p in drop_nulls(x))),
    "any": (lambda a, b: (a > 0).any(), lambda x, y: any(p > 0 for p in drop_nulls(x))),
    "all": (lambda a, b: (a > 0).all(), lambda x, y: all(p > 0 for p in drop_nulls(x))),
    "first": (lambda a, b: a.first(), lambda x, y: x[0] if x else None),
    "last": (lambda a, b: b.last(), lambda x, y: y[-1] if y else None),
    "argmin": (lambda a, b: a.argmin(), lambda x, y: position(min)(x)),
    "argmax": (lambda a, b: a.argmax(), lambda x, y: position(max)(x)),
    "collect": (lambda a, b: a.collect(), lambda x, y: x),
    "corr": (lambda a, b: a.corr(b), of_pairs(correlation)),
    "cov": (lambda a, b: a.cov(b), of_pairs(covariance)),
    "expression": (lambda a, b: a.sum() * 2 - a.count(), lambda x, y: sum(drop_nulls(x)) * 2 - len(drop_nulls(x))),
}


def running(function, rows=None):
    """Apply the function to the values so far (or to the last `rows`), without NULLs."""
    return lambda values: [
        function(drop_nulls(values[0 if rows is None else max(0, i - rows + 1) : i + 1])) for i in range(len(values))
    ]


def shifted(values, by):
    return [values[i - by] if 0 <= i - by < len(values) else None for i in range(len(values))]


def ranked(values, *, dense=False, descending=False):
    """Rank values; the rank of a NULL is NULL."""

    def key(value):
        return (value is None, 0 if value is None else -value if descending else value)

    ordered = sorted(values, key=key)
    distinct = list(dict.fromkeys(ordered))
    return [None if value is None else (distinct if dense else ordered).index(value) + 1 for value in values]


def within(function):
    """Apply the function per group of equal keys; results are in row order."""

    def result(keys, values):
        results = [None] * len(values)
        for key in dict.fromkeys(keys):
            places = [i for i, element in enumerate(keys) if element == key]
            for index, value in zip(places, function([values[i] for i in places]), strict=True):
                results[index] = value
        return results

    return result


def beside(function):
    return lambda values: [function(values)] * len(values)


ROLLING = {
    "sum": sum,
    "mean": lambda v: statistics.fmean(v) if v else None,
    "min": lambda v: min(v, default=None),
    "max": lambda v: max(v, default=None),
    "count": len,
    "std": spread(statistics.stdev, 2),
    "var": spread(statistics.variance, 2),
}
WINDOWS = {
    "shift": (lambda k, v: col(v).shift(2), lambda x, y: shifted(y, 2)),
    "shift_later": (lambda k, v: col(v).shift(-1), lambda x, y: shifted(y, -1)),
    "shift_over": (lambda k, v: col(v).shift(1).over(k), within(lambda values: shifted(values, 1))),
    "diff": (lambda k, v: col(v).diff(), lambda x, y: [None if None in (p, q) else q - p
                                                     for p, q in zip(shifted(y, 1), y, strict=True)]),
    "cum_sum": (lambda k, v: col(v).cum_sum(), lambda x, y: running(sum)(y)),
    "cum_min": (lambda k, v: col(v).cum_min(), lambda x, y: running(ROLLING["min"])(y)),
    "cum_max": (lambda k, v: col(v).cum_max(), lambda x, y: running(ROLLING["max"])(y)),
    "cum_mean": (lambda k, v: col(v).cum_mean(), lambda x, y: running(ROLLING["mean"])(y)),
    "cum_count": (lambda k, v: col(v).cum_count(), lambda x, y: running(len)(y)),
    "cum_over": (lambda k, v: col(v).cum_sum().over(k), within(running(sum))),
    **{f"rolling {name}": (lambda k, v, name=name: col(v).rolling(name, 3),
                           lambda x, y, function=function: running(function, 3)(y))
       for name, function in ROLLING.items()},
    "rank": (lambda k, v: col(v).rank(), lambda x, y: ranked(y)),
    "rank_dense": (lambda k, v: col(v).rank(dense=True, descending=True),
                   lambda x, y: ranked(y, dense=True, descending=True)),
    "over": (lambda k, v: col(v).sum().over(k), within(beside(lambda values: sum(drop_nulls(values))))),
    "over_all": (lambda k, v: col(v).max().over(), lambda x, y: beside(ROLLING["max"])(drop_nulls(y))[:1] * len(y)
                 if drop_nulls(y) else [None] * len(y)),
    "over_ordered": (lambda k, v: col(v).count().over(k, order_by=row_index(), descending=True),
                     within(lambda values: running(len)(values[::-1])[::-1])),
    "over_rows": (lambda k, v: col(v).sum().over(rows=(1, 1)),
                  lambda x, y: [sum(drop_nulls(y[max(0, i - 1) : i + 2])) for i in range(len(y))]),
    "row_index": (lambda k, v: row_index(), lambda x, y: list(range(len(y)))),
    "row_number": (lambda k, v: row_number().over(k), within(lambda values: list(range(1, len(values) + 1)))),
    "share": (lambda k, v: col(v) - col(v).min(),
              lambda x, y: [None if p is None else p - min(drop_nulls(y)) for p in y]),
}  # fmt: skip

# --- tables ------------------------------------------------------------------------------------------------------

LAST = {"nulls_last": True, "maintain_order": True}

# Arguments: the Object or frame; the names of an integer, a float and a text column; a number, an offset, a size.
TABLES = {
    "same": (lambda o, a, b, t, x, i, n: o, lambda f, a, b, t, x, i, n: f),
    "getitem": (lambda o, a, b, t, x, i, n: o[[b, a]], lambda f, a, b, t, x, i, n: f.select(b, a)),
    "mask": (lambda o, a, b, t, x, i, n: o[o[a] > x], lambda f, a, b, t, x, i, n: f.filter(pl.col(a) > x)),
    "select": (
        lambda o, a, b, t, x, i, n: o.select(t, z=col(a) + x),
        lambda f, a, b, t, x, i, n: f.select(t, z=pl.col(a) + x),
    ),
    "with_columns": (
        lambda o, a, b, t, x, i, n: o.with_columns(**{t: col(a) + 1}),
        lambda f, a, b, t, x, i, n: f.with_columns(**{t: pl.col(a) + 1}),
    ),
    "rename": (
        lambda o, a, b, t, x, i, n: o.rename({a: "new"}),
        lambda f, a, b, t, x, i, n: f.rename({a: "new"}),
    ),
    "drop": (lambda o, a, b, t, x, i, n: o.drop(b), lambda f, a, b, t, x, i, n: f.drop(b)),
    "cast_columns": (
        lambda o, a, b, t, x, i, n: o.cast_columns({a: "Float64"}),
        lambda f, a, b, t, x, i, n: f.cast({a: pl.Float64}),
    ),
    "with_row_index": (
        lambda o, a, b, t, x, i, n: o.sort(a).with_row_index("i"),
        lambda f, a, b, t, x, i, n: f.sort(a, **LAST).with_columns(i=pl.int_range(pl.len(), dtype=pl.Int64)),
    ),
    "filter": (
        lambda o, a, b, t, x, i, n: o.filter(col(a) > x, col(b) <= x),
        lambda f, a, b, t, x, i, n: f.filter(pl.col(a) > x, pl.col(b) <= x),
    ),
    "where": (lambda o, a, b, t, x, i, n: o.where(col(a) > x), lambda f, a, b, t, x, i, n: f.filter(pl.col(a) > x)),
    "sort": (
        lambda o, a, b, t, x, i, n: o.sort(a, b, descending=[True, False]),
        lambda f, a, b, t, x, i, n: f.sort(a, b, descending=[True, False], **LAST),
    ),
    "slice": (lambda o, a, b, t, x, i, n: o.slice(i, n), lambda f, a, b, t, x, i, n: f.slice(i, n)),
    "sort_slice": (
        lambda o, a, b, t, x, i, n: o.sort(a).slice(i, n),
        lambda f, a, b, t, x, i, n: f.sort(a, **LAST).slice(i, n),
    ),
    "rows": (lambda o, a, b, t, x, i, n: o[i : i + n], lambda f, a, b, t, x, i, n: f.slice(i, n)),
    "head": (lambda o, a, b, t, x, i, n: o.head(n), lambda f, a, b, t, x, i, n: f.head(n)),
    "limit": (lambda o, a, b, t, x, i, n: o.limit(n), lambda f, a, b, t, x, i, n: f.head(n)),
    "distinct": (
        lambda o, a, b, t, x, i, n: o.distinct(a),
        lambda f, a, b, t, x, i, n: f.unique(a, keep="first", maintain_order=True),
    ),
    "unique": (
        lambda o, a, b, t, x, i, n: o.unique(),
        lambda f, a, b, t, x, i, n: f.unique(keep="first", maintain_order=True),
    ),
    "drop_nulls": (lambda o, a, b, t, x, i, n: o.drop_nulls(), lambda f, a, b, t, x, i, n: f.drop_nulls()),
    "concat": (
        lambda o, a, b, t, x, i, n: o.concat(o.filter(col(a) > x), o),
        lambda f, a, b, t, x, i, n: pl.concat([f, f.filter(pl.col(a) > x), f]),
    ),
    "view": (
        lambda o, a, b, t, x, i, n: o.view(i, n, where=col(a) > x),
        lambda f, a, b, t, x, i, n: f.filter(pl.col(a) > x).slice(i, n),
    ),
    "part of a view": (
        lambda o, a, b, t, x, i, n: o.view(i).slice(1, n),
        lambda f, a, b, t, x, i, n: f.slice(i).slice(1, n),
    ),
    "value_counts": (
        lambda o, a, b, t, x, i, n: o.select(a).value_counts("n").sort(a),
        lambda f, a, b, t, x, i, n: f.group_by(a).agg(n=pl.len()).sort(a, nulls_last=True),
    ),
}
GROUPS = {
    "agg": (lambda o, k, v, b: o.group_by(k).agg(z=col(v).sum()), lambda f, k, v, b: f.group_by(k).agg(z=pl.sum(v))),
    "having": (
        lambda o, k, v, b: o.group_by(k).having(length() > 1).agg(z=col(v).max()),
        lambda f, k, v, b: f.group_by(k).agg(n=pl.len(), z=pl.max(v)).filter(pl.col("n") > 1).drop("n"),
    ),
    "len": (lambda o, k, v, b: o.group_by(k).len("n"), lambda f, k, v, b: f.group_by(k).agg(n=pl.len())),
    "sum": (lambda o, k, v, b: o.group_by(k).sum(), lambda f, k, v, b: f.group_by(k).agg(pl.sum(v), pl.sum(b))),
    "mean": (lambda o, k, v, b: o.group_by(k).mean(), lambda f, k, v, b: f.group_by(k).agg(pl.mean(v), pl.mean(b))),
    "min": (lambda o, k, v, b: o.group_by(k).min(), lambda f, k, v, b: f.group_by(k).agg(pl.min(v), pl.min(b))),
    "max": (lambda o, k, v, b: o.group_by(k).max(), lambda f, k, v, b: f.group_by(k).agg(pl.max(v), pl.max(b))),
    "count": (lambda o, k, v, b: o.group_by(k).count(), lambda f, k, v, b: f.group_by(k).agg(pl.count(v), pl.count(b))),
    "expression": (
        lambda o, k, v, b: o.group_by(**{k: col(k) * 2}).agg(z=col(v).sum()),
        lambda f, k, v, b: f.group_by((pl.col(k) * 2).alias(k)).agg(z=pl.sum(v)),
    ),
}
KEYS = {how: {"coalesce": True} for how in ("left", "right", "full")}
JOINS = {
    **{
        how: (
            lambda a, b, how=how: a.join(b, "k", how),
            lambda f, g, how=how: f.join(
                g, on="k", how=how, coalesce=None if how in ("inner", "semi", "anti") else True
            ),
        )
        for how in ("inner", "left", "right", "full", "semi", "anti")
    },
    "cross": (lambda a, b: a.join(b, how="cross"), lambda f, g: f.join(g, how="cross")),
    "suffix": (
        lambda a, b: a.join(b.rename({"y": "x"}), left_on="k", right_on="k", suffix=" too"),
        lambda f, g: f.join(g.rename({"y": "x"}), on="k", suffix=" too"),
    ),
    "other names": (
        lambda a, b: a.join(b, left_on="x", right_on="y", how="semi"),
        lambda f, g: f.join(g, left_on="x", right_on="y", how="semi"),
    ),
}


async def in_batches(obj):
    return [row for batch in [item async for item in obj.iter_batches()] for row in batch.to_pylist()]


async def in_chunks(obj):
    return [row for chunk in await obj.chunks(5) for row in await chunk.rows()]


async def numbers(obj):
    matrix = (
        await obj.select(*obj.columns[:2])
        .select(*(col(n).fill_null(0).cast(float) for n in obj.columns[:2]))
        .to_numpy()
    )
    return matrix.tolist()


async def by_pandas(obj):
    return (await obj.to_pandas()).shape


async def kept_in_a_table(obj):
    return await (await obj.select(*obj.columns).materialize()).rows()


# Ways to read an Object, and the same for a polars frame.
READS = {
    "data": (lambda o: o.data(), lambda f: f.to_dict(as_series=False)),
    "rows": (lambda o: o.rows(), lambda f: f.to_dicts()),
    "count": (lambda o: o.count(), lambda f: f.height),
    "to_arrow": (lambda o: _then(o.to_arrow(), lambda t: t.to_pylist()), lambda f: f.to_dicts()),
    "to_polars": (lambda o: _then(o.to_polars(), lambda g: g.to_dicts()), lambda f: f.to_dicts()),
    "to_pandas": (by_pandas, lambda f: f.shape),
    "to_numpy": (numbers, lambda f: f.select(pl.nth(0, 1).fill_null(0).cast(pl.Float64)).to_numpy().tolist()),
    "iter_batches": (in_batches, lambda f: f.to_dicts()),
    "chunks": (in_chunks, lambda f: f.to_dicts()),
    "materialize": (kept_in_a_table, lambda f: f.to_dicts()),
}


async def _then(work, change):
    return change(await work)


def number(function):
    return lambda values: None if function(values) is None else float(function(values))


STATISTICS = {
    "count": number(lambda v: len(drop_nulls(v))),
    "null_count": number(lambda v: len(v) - len(drop_nulls(v))),
    "mean": number(lambda v: statistics.fmean(drop_nulls(v)) if drop_nulls(v) else None),
    "std": spread(statistics.stdev, 2),
    "min": number(lambda v: min(drop_nulls(v), default=None)),
    "25%": number(lambda v: quantile(v, 0.25)),
    "50%": number(lambda v: quantile(v, 0.5)),
    "75%": number(lambda v: quantile(v, 0.75)),
    "max": number(lambda v: max(drop_nulls(v), default=None)),
}
