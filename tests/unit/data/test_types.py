"""Parsing, formatting and supertypes of ClickHouse types."""

from __future__ import annotations

import pytest

from aaiclick.data.errors import DataTypeError
from aaiclick.data.types import parse_type, supertype, user_type

TEXTS = [
    "Int64",
    "Nullable(String)",
    "Array(Nullable(Int64))",
    "DateTime64(6, 'Europe/Berlin')",
    "Decimal(18, 2)",
    "Map(String, Array(UInt8))",
    "Tuple(`a b` Int64, `c\\`d` Nullable(String))",
    "Enum8('a' = 1, 'b' = -2)",
    "FixedString(16)",
    "Array(Tuple(`x` Int8, `y` Array(Tuple(`z` UUID))))",
]


@pytest.mark.parametrize("text", TEXTS)
def test_types_round_trip_as_text(text):
    dtype = parse_type(text)
    assert parse_type(str(dtype)) == dtype
    assert str(dtype) == text


def test_storage_options_are_dropped():
    assert str(parse_type("LowCardinality(Nullable(String))")) == "Nullable(String)"
    assert str(parse_type("Decimal64(3)")) == "Decimal(18, 3)"


def test_unknown_types_are_parsed_but_not_accepted_from_users():
    assert str(parse_type("AggregateFunction(sum, Int8)")).startswith("AggregateFunction")
    for text in ("Nope", "Int64; DROP", "Array(Nope)", "Int64)", ""):
        with pytest.raises(DataTypeError):
            user_type(text)
    assert user_type(int) == parse_type("Int64")


@pytest.mark.parametrize(
    ("left", "right", "both"),
    [
        ("Int64", "UInt8", "Int64"),
        ("UInt8", "Int8", "Int16"),
        ("UInt64", "Int64", "Int64"),
        ("Int64", "Float32", "Float64"),
        ("Int64", "Nullable(Int8)", "Nullable(Int64)"),
        ("Decimal(9, 2)", "Int32", "Decimal(18, 2)"),
        ("Date32", "DateTime64(3)", "DateTime64(3)"),
        ("Array(UInt8)", "Array(Int64)", "Array(Int64)"),
        ("Int64", "Nullable(Nothing)", "Nullable(Int64)"),
        ("String", "Int64", None),
    ],
)
def test_supertype_of_two_types(left, right, both):
    for one, other in ((left, right), (right, left)):
        result = supertype(parse_type(one), parse_type(other))
        assert (None if result is None else str(result)) == both
