"""Columns out of a task's result, which a worker of a server may have forged."""

from __future__ import annotations

import pytest

from aaiclick.data.errors import DataError
from aaiclick.data.gather import columns_from_json, columns_to_json
from aaiclick.data.types import is_type, parse_type


def test_columns_survive_the_result_of_a_task():
    columns = (("a", parse_type("Nullable(Int64)")), ("b", parse_type("Enum8('x)' = 1)")))
    assert columns_from_json(columns_to_json(columns, "table")) == (columns, "table")


@pytest.mark.parametrize("kind", ["String) ENGINE = Memory AS SELECT 1 --", "Int64, b String", "", "Int64 DEFAULT 1"])
def test_a_forged_type_is_refused(kind):
    assert not is_type(kind)
    with pytest.raises(DataError, match="is not a type"):
        columns_from_json({"shape": "table", "columns": [["a", kind, ""]]})


@pytest.mark.parametrize(
    "kind",
    ["Int64", "Nullable(String)", "LowCardinality(String)", "Array(Tuple(a Int64, `b c` String))", "Decimal(18, 4)",
     "DateTime64(6, 'Europe/Berlin')", "Map(String, Array(UInt8))", "Enum8('a' = -1, 'b' = 2)", "JSON"],
)  # fmt: skip
def test_types_of_clickhouse_are_types(kind):
    assert is_type(kind)
