"""Rows for existing columns are stored without loss or rejected."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

import pandas as pd
import pyarrow as pa
import pytest

from aaiclick.data.errors import ConversionError, DataTypeError
from aaiclick.data.io.lossy_cast_checks import find_lossy_cast
from aaiclick.data.io.to_arrow import conform_batch, to_arrow_rows
from aaiclick.data.types import parse_type

NOON = datetime(2024, 5, 1, 12, 30)  # noqa: DTZ001  (a naive one)


def later(first, second):
    return conform_batch({"x": [second]}, to_arrow_rows({"x": [first]}, streamed=True).columns, "Batch 1")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (1, True), (True, 1), (1, "2"), ("2", 1), (1, 1.5), (1.5, "x"), (1, Decimal("1.5")), (1.5, Decimal(1)),
        (date(2024, 5, 1), NOON), (NOON, date(2024, 5, 1)), (NOON, NOON.replace(tzinfo=UTC)),
        (NOON.replace(tzinfo=UTC), NOON), ("a", b"a"), (b"a", "a"), (UUID(int=1), str(UUID(int=1))),
        ({"a": 1}, {"a": 1, "b": 2}), ({"a": 1}, {"a": "1"}), ({"a": [1]}, {"a": ["x"]}), ([1], ["x"]), ([1], [True]),
        ([1], None), ({"a": 1}, None), ([[1]], [None]), ({"a": 1}, [1]), (1, [1]), (1, 2**63), (NOON, 5),
    ],
)  # fmt: skip
def test_values_of_other_types_are_rejected(first, second):
    with pytest.raises(ConversionError, match="x"):
        later(first, second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (1, 2**53), (1.5, 2), (1, 2.0), (1, None), ("a", None), (Decimal("1.50"), 2), (Decimal("1.5"), Decimal("2.5")),
        ({"a": 1, "b": "x"}, {"a": 2}), ({"a": 1}, {"a": None}), ([1], []), ([1], [None]), ([1.5], [2]), (NOON, None),
        (2**63, 2**64 - 1), (UUID(int=1), UUID(int=2)),
    ],
)  # fmt: skip
def test_values_of_the_same_type_are_stored(first, second):
    [stored] = later(first, second)["x"].to_pylist()
    if isinstance(second, dict):
        assert {name: stored[name] for name in second} == second
    else:
        assert stored == second


@pytest.mark.parametrize(
    ("own", "dtype", "fits"),
    [
        ("Int64", "Int8", True), ("Int8", "Float64", True), ("Float64", "Int64", False), ("Bool", "Int8", False),
        ("Int8", "Bool", False), ("Decimal(18, 4)", "Decimal(18, 2)", False), ("Decimal(9, 2)", "Decimal(18, 4)", True),
        ("DateTime64(6)", "DateTime64(3)", False), ("DateTime64(3)", "DateTime64(6)", True),
        ("DateTime64(6)", "Date32", False), ("String", "Int64", False), ("Array(Int64)", "Array(String)", False),
        ("Nullable(Int64)", "Int64", True),
    ],
)  # fmt: skip
def test_lossy_casts_between_objects_are_detected(own, dtype, fits):
    assert (find_lossy_cast(parse_type(own), parse_type(dtype)) is None) is fits


@pytest.mark.parametrize(
    "value",
    [
        pd.DataFrame({"a": [1, "x"]}),
        pd.DataFrame({"a": pd.period_range("2024-01", periods=2, freq="M")}),
        pd.DataFrame({"a": [1j]}),
        [1j],
        [Decimal("NaN")],
        {"a": [2**70]},
        pa.table({"a": pa.array([1], pa.time64("us"))}),
        {"a": [object()]},
    ],
)
def test_unsupported_values_raise_with_column_name(value):
    with pytest.raises(ConversionError, match=r"[Cc]olumn"):
        to_arrow_rows(value)


@pytest.mark.parametrize("dtype", ["Int8)", "Int8; DROP", "", "Array(", "nonsense"])
def test_invalid_schema_type_raises_data_type_error(dtype):
    with pytest.raises(DataTypeError):
        to_arrow_rows({"a": [1]}, {"a": dtype})


def test_deeply_nested_values_are_rejected():
    deep: list = [1]
    for _ in range(90):
        deep = [deep]
    with pytest.raises(ConversionError, match="deep"):
        to_arrow_rows({"a": [deep]})


@pytest.mark.parametrize(
    ("values", "dtype"),
    [([1.5], "Decimal(10, 0)"), ([1e300], "Float32"), ([0.1 + 0.2], "Decimal(10, 2)"), ([2.5], "Int64")],
)
def test_a_schema_never_rounds(values, dtype):
    with pytest.raises(ConversionError, match="does not fit"):
        to_arrow_rows({"a": values}, {"a": dtype})


@pytest.mark.parametrize(("values", "dtype"), [([1.25, None], "Decimal(10, 2)"), ([0.1], "Float32"), ([3.0], "Int64")])
def test_schema_accepts_values_that_fit(values, dtype):
    assert to_arrow_rows({"a": values}, {"a": f"Nullable({dtype})"}).table.num_rows == len(values)


@pytest.mark.parametrize("schema", ["Int64", ["Int64"], 5])
def test_a_schema_is_a_dict(schema):
    with pytest.raises(ConversionError, match="schema="):
        to_arrow_rows({"a": [1]}, schema)
