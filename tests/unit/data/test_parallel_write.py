"""Columns in task results are validated, since a worker may have forged them."""

from __future__ import annotations

import pytest

from aaiclick.data.errors import DataError
from aaiclick.data.runtime.parallel_write import columns_from_json, columns_to_json
from aaiclick.data.types import is_type, parse_type


def test_columns_round_trip_through_json():
    columns = (("a", parse_type("Nullable(Int64)")), ("b", parse_type("Enum8('x)' = 1)")))
    assert columns_from_json(columns_to_json(columns, "table")) == (columns, "table")


@pytest.mark.parametrize("dtype", ["String) ENGINE = Memory AS SELECT 1 --", "Int64, b String", "", "Int64 DEFAULT 1"])
def test_forged_type_is_rejected(dtype):
    assert not is_type(dtype)
    with pytest.raises(DataError, match="is not a type"):
        columns_from_json({"shape": "table", "columns": [["a", dtype, ""]]})


@pytest.mark.parametrize(
    "dtype",
    ["Int64", "Nullable(String)", "LowCardinality(String)", "Array(Tuple(a Int64, `b c` String))", "Decimal(18, 4)",
     "DateTime64(6, 'Europe/Berlin')", "Map(String, Array(UInt8))", "Enum8('a' = -1, 'b' = 2)", "JSON"],
)  # fmt: skip
def test_clickhouse_types_are_recognised(dtype):
    assert is_type(dtype)
