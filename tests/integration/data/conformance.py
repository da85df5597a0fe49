"""The conformance table: public functions × types × edge values, with references in Python and polars.

A reference returns the exact value, or `FAILS` where docs/values.md says that the operation is an error. All values of
all types are columns of one table, so that hundreds of expressions run in one query.
"""

# ruff: noqa: DTZ001  (datetimes without a time zone are tested too)

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import product

import pyarrow as pa

FAILS = object()
"""The operation raises an error for this value."""

ANYTHING = object()
"""docs/values.md says that the result is not exact."""

NAN, INF = math.nan, math.inf


@dataclass(frozen=True)
class EdgeType:
    """A type with its edge values; `low` and `high` are the limits of an integer type."""

    name: str
    clickhouse: str
    arrow: pa.DataType
    values: tuple
    family: str

    @property
    def limits(self):
        bits = int("".join(filter(str.isdigit, self.clickhouse)))
        return (0, 2**bits - 1) if self.clickhouse.startswith("U") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _decimals(*texts):
    return tuple(Decimal(text) for text in texts)


NUMBERS = (
    EdgeType("i8", "Int8", pa.int8(), (-128, 127, -1, 0, 1, 7), "int"),
    EdgeType("i32", "Int32", pa.int32(), (-(2**31), 2**31 - 1, -1, 0, 1, 7), "int"),
    EdgeType("i64", "Int64", pa.int64(), (-(2**63), 2**63 - 1, -1, 0, 3, 2**53 + 1), "int"),
    EdgeType("u8", "UInt8", pa.uint8(), (0, 255, 1, 2, 7, 128), "int"),
    EdgeType("u64", "UInt64", pa.uint64(), (0, 2**64 - 1, 1, 2**63, 7, 3), "int"),
    EdgeType("f32", "Float32", pa.float32(), (NAN, INF, -0.0, 0.5, -1.0, 2.0**100), "float"),
    EdgeType("f64", "Float64", pa.float64(), (NAN, -INF, -0.0, 1e300, 5e-324, -2.5), "float"),
    EdgeType(
        "d9", "Decimal(9, 2)", pa.decimal128(9, 2), _decimals("9999999.99", "-9999999.99", "0", "0.01", "1.50", "-2"),
        "decimal",
    ),
    EdgeType(
        "d38", "Decimal(38, 10)", pa.decimal128(38, 10),
        _decimals("9" * 28, "-" + "9" * 28, "0", "0.0000000001", "1.5", "-2"), "decimal",
    ),
    EdgeType("b", "Bool", pa.bool_(), (True, False, True, False, True, False), "bool"),
)  # fmt: skip
OTHERS = (
    EdgeType("s", "String", pa.string(), ("", "é🦆", "12", "-1.5", "2024-02-30", "true"), "text"),
    EdgeType(
        "d", "Date32", pa.date32(),
        (
            date(1900, 1, 1), date(2299, 12, 31), date(1970, 1, 1), date(2024, 2, 29), date(1969, 12, 31),
            date(2000, 1, 1),
        ),
        "date",
    ),
    EdgeType(
        "t", "DateTime64(6)", pa.timestamp("us"),
        (
            datetime(1900, 1, 1), datetime(2299, 12, 31, 23, 59, 59, 999999), datetime(1970, 1, 1),
            datetime(2024, 2, 29, 12, 34, 56, 789012), datetime(1969, 12, 31, 23, 59, 59, 500000), datetime(2000, 1, 1),
        ),
        "datetime",
    ),
)  # fmt: skip
TYPES = (*NUMBERS, *OTHERS)
SIZE = 7
"""Values per type, including NULL."""


def edge_values(edge: EdgeType) -> list:
    return [*edge.values, None]


def edge_table() -> pa.Table:
    """Return every pair of values of every type: column `a_i8` with column `b_u64`, and so on."""
    columns: dict[str, pa.Array] = {"row": pa.array(range(SIZE * SIZE))}
    for edge in TYPES:
        values = edge_values(edge)
        columns[f"a_{edge.name}"] = pa.array([a for a, _ in product(values, values)], edge.arrow)
        columns[f"b_{edge.name}"] = pa.array([b for _, b in product(values, values)], edge.arrow)
    return pa.table(columns)


def exact(value):
    """Return a number without rounding; floats that are not finite stay floats."""
    if isinstance(value, float) and not math.isfinite(value):
        return value
    return Fraction(value)


def to_float(value) -> float:
    try:
        return float(value)
    except OverflowError:
        return INF if value > 0 else -INF


def wrap(value: int, low: int, high: int) -> int:
    return (value - low) % (high - low + 1) + low


# --- arithmetic --------------------------------------------------------------------------------------------------


def _float_operation(operator, p, q):
    p, q = to_float(p), to_float(q)
    try:
        return {"+": lambda: p + q, "-": lambda: p - q, "*": lambda: p * q}[operator]()
    except OverflowError:
        return INF


def arithmetic(operator):
    """Return the reference of + - *: exact; 64-bit integers wrap, but mixed with UInt64 they are checked."""

    def reference(p, q, left: EdgeType, right: EdgeType, result: str):
        if left.family == "float" or right.family == "float":
            return _float_operation(operator, p, q)
        value = {"+": lambda: p + q, "-": lambda: p - q, "*": lambda: p * q}[operator]
        if "decimal" in (left.family, right.family):
            p, q = Fraction(p), Fraction(q)
            return value()
        p, q = int(p), int(q)
        bits = int("".join(filter(str.isdigit, result)))
        low, high = (0, 2**bits - 1) if result.startswith("U") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        number = value()
        if low <= number <= high:
            return number
        mixed = "u64" in (left.name, right.name) and (operator == "-" or "i" in (left.name[0], right.name[0]))
        return FAILS if mixed else wrap(number, low, high)

    return reference


def divide(p, q, *_):
    p, q = to_float(p), to_float(q)
    if q:
        return p / q
    return NAN if p == 0 or math.isnan(p) else math.copysign(INF, p) * math.copysign(1.0, q)


def compare(function):
    def reference(p, q, *_):
        p, q = exact(p), exact(q)
        return function(p, q)

    return reference


def power(p, q, left: EdgeType, right: EdgeType, _result: str):
    if {left.family, right.family} <= {"int", "bool"}:
        p, q = int(p), int(q)
        if not -(2**63) <= p < 2**63 or not -(2**63) <= q < 2**63 or q < 0:
            return FAILS
        if abs(p) > 1 and q > 64:
            return FAILS
        number = p**q if abs(p) > 1 else p ** (q % 2 + 2 * (q > 0))
        return number if -(2**63) <= number < 2**63 else FAILS
    p, q = to_float(p), to_float(q)
    is_odd = abs(q) < 2**53 and q % 2 == 1
    try:
        value = p**q
    except ZeroDivisionError:
        return math.copysign(INF, p) if is_odd else INF
    except OverflowError:
        is_complex = p < 0 and not q.is_integer()
        return NAN if is_complex else -INF if p < 0 and is_odd else INF
    return NAN if isinstance(value, complex) else value


def extreme(choose):
    def reference(p, q, *_):
        if any(isinstance(v, float) and math.isnan(v) for v in (p, q)):
            return NAN
        return choose(p, q, key=exact)

    return reference


BINARY = {
    "add": (lambda a, b: a + b, arithmetic("+")),
    "sub": (lambda a, b: a - b, arithmetic("-")),
    "mul": (lambda a, b: a * b, arithmetic("*")),
    "truediv": (lambda a, b: a / b, divide),
    "pow": (lambda a, b: a**b, power),
    "eq": (lambda a, b: a == b, compare(lambda p, q: p == q)),
    "ne": (lambda a, b: a != b, compare(lambda p, q: p != q)),
    "lt": (lambda a, b: a < b, compare(lambda p, q: p < q)),
    "ge": (lambda a, b: a >= b, compare(lambda p, q: p >= q)),
}

# --- casts -------------------------------------------------------------------------------------------------------

EPOCH = datetime(1970, 1, 1)
DECIMAL_TARGETS = {"Decimal(9, 2)": (9, 2), "Decimal(38, 10)": (38, 10)}


def _parse_text(text: str, target: EdgeType):
    try:
        if target.family == "int":
            return (
                int(text) if text.lstrip("-").isascii() and target.limits[0] <= int(text) <= target.limits[1] else None
            )
        if target.family == "float":
            return float(text)
        if target.family == "decimal":
            return to_decimal(Fraction(text), target)
        if target.family == "bool":
            return {"true": True, "false": False}.get(text)
        if target.family == "date":
            return date.fromisoformat(text)
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def to_decimal(number: Fraction, target: EdgeType):
    precision, scale = DECIMAL_TARGETS[target.clickhouse]
    units = number * 10**scale
    limit = 2**31 if precision == 9 else 2**127
    return number if units.denominator == 1 and abs(units) < limit else None


def cast_reference(value, source: EdgeType, target: EdgeType):
    """Return the value as another type, or None if no value of that type equals it."""
    if source.family == "text":
        return value if target.family == "text" else _parse_text(value, target)
    if source.family in ("date", "datetime"):
        return _cast_temporal(value, source, target)
    if target.family in ("date", "datetime"):
        return _number_to_temporal(value, source, target)
    if target.family == "bool":
        return bool(value)
    if target.family == "float":
        number = to_float(value)
        if target.name == "f32":
            if abs(number) > 3.4028235677973366e38 and math.isfinite(number):
                return None
            return pa.scalar(number, pa.float32()).as_py()
        return number
    if isinstance(value, float) and not math.isfinite(value):
        return None
    number = Fraction(value)
    if target.family == "decimal":
        if source.family == "float":
            number = Fraction(repr(pa.scalar(value, pa.float64()).as_py()))
        return to_decimal(number, target)
    low, high = target.limits
    return int(number) if number.denominator == 1 and low <= number <= high else None


def _cast_temporal(value, source: EdgeType, target: EdgeType):
    moment = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
    if target.family == "datetime":
        return moment
    if target.family == "date":
        return moment.date()
    micros = (moment - EPOCH) // timedelta(microseconds=1)
    number = Fraction(micros, 86_400_000_000) if source.family == "date" else Fraction(micros, 1_000_000)
    if target.family == "float":
        return pa.scalar(float(number), target.arrow).as_py()
    low, high = target.limits
    return int(number) if number.denominator == 1 and low <= number <= high else None


def _number_to_temporal(value, source: EdgeType, target: EdgeType):
    if isinstance(value, float) and not math.isfinite(value):
        return None
    number = Fraction(value)
    if target.family == "date":
        fits = number.denominator == 1 and -25_567 <= number <= 120_529
        return date(1970, 1, 1) + timedelta(days=int(number)) if fits else None
    if not -25_567 * 86_400 <= number < 120_530 * 86_400:
        return None
    return EPOCH + timedelta(microseconds=int(number * 1_000_000))


def is_castable(source: EdgeType, target: EdgeType) -> bool:
    """Whether a cast between two types is compared: text of numbers has ClickHouse's format, see docs/values.md."""
    if target.family == "text":
        return source.family in ("int", "bool", "text", "date")
    if "bool" in (source.family, target.family) and {source.family, target.family} & {"date", "datetime"}:
        return False
    return not (source.family in ("date", "datetime") and target.family == "decimal") and not (
        source.family == "decimal" and target.family in ("date", "datetime")
    )


def text_of(value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
