"""The shape of the SQL, without a server."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st

from aaiclick.data import col, length
from aaiclick.data.compiler import split
from aaiclick.data.errors import ColumnNotFoundError, DataTypeError
from aaiclick.data.literals import bound, literal_type
from aaiclick.data.nodes import Literal
from aaiclick.data.object import Object
from aaiclick.data.sql import name, to_text
from aaiclick.data.tables import Table, create_statement
from aaiclick.data.types import parse_type

CONTEXT = SimpleNamespace(target="here", is_open=True, lifecycle=SimpleNamespace(decref=lambda _: None))


def table(table_name="t1", **columns):
    columns = columns or {"k": "Int64", "v": "Int64", "s": "Nullable(String)"}
    kinds = tuple((column, parse_type(kind)) for column, kind in columns.items())
    return Object.from_table(Table(table_name, kinds, "table", CONTEXT, counted=False))


def sql_of(obj):
    return obj.sql(pretty=False)


def test_a_chain_is_one_select_without_a_join():
    t = table()
    text = sql_of(((t["k"] + t["v"]) * 2 + 1).sum())
    assert text == "SELECT sum(((`t1`.`k` + `t1`.`v`) * {p0:UInt8}) + {p1:UInt8}) AS `value` FROM `t1` AS `t1`"


def test_filters_projections_and_groups_are_fused():
    t = table()
    text = sql_of(
        t.filter(col("k") > 1).with_columns(w=col("v") * 2).filter(col("w") < 9).group_by("s").agg(n=length())
    )
    assert text.count("SELECT") == 1
    assert "WHERE (`t1`.`k` > {p0:UInt8}) AND ((`t1`.`v` * {p1:UInt8}) < {p2:UInt8}) GROUP BY `t1`.`s`" in text


def test_a_new_column_under_an_old_name_is_never_taken_for_the_old():
    text = sql_of(table().filter(col("k") > 7).with_columns(k=col("k") + 1))
    assert "SELECT `t1`.`k` + {p0:UInt8} AS `k`" in text
    assert "WHERE `t1`.`k` > {p1:UInt8}" in text


def test_a_slice_of_a_table_is_a_range_of_keys():
    text = sql_of(table()[10:30])
    assert "`aai_id` >= {p0:UInt64}" in text
    assert "`aai_id` < {p1:UInt64}" in text
    assert "LIMIT" not in text


def test_a_filter_after_a_limit_is_done_after_it():
    text = sql_of(table().sort("v").head(3).filter(col("k") > 1))
    assert text.count("SELECT") == 2
    assert text.index("LIMIT 3") < text.rindex("WHERE")


def test_two_objects_meet_by_their_keys():
    a, b = table("ta", x="Int64")["x"], table("tb", y="Int64")["y"]
    text = sql_of((a + b) * a)
    assert text.count("JOIN") == 1
    assert "ON `t1`.`aai_id` = `t2`.`aai_id`" in text


def test_an_aggregate_of_unordered_rows_is_not_sorted():
    assert "ORDER BY" not in sql_of(table().sort("v")["v"].sum())


def test_values_are_bound_and_equal_ones_once():
    text = sql_of(table().filter(col("s") == "it's", col("s") != "it's"))
    assert "it" not in text
    assert text.count("{p0:String}") == 2


def test_wrong_expressions_fail_where_they_are_written():
    t = table()
    with pytest.raises(ColumnNotFoundError):
        t.sort("nothing")
    with pytest.raises(DataTypeError, match="add is not defined here: column 's' is Nullable"):
        t.select(x=col("s") + col("k"))
    with pytest.raises(DataTypeError, match="boolean"):
        t.filter(col("k") + 1)
    with pytest.raises(DataTypeError, match="one column is needed"):
        t["k"] + t


@given(st.text(min_size=1))
def test_no_name_ends_its_own_quotes(text):
    quoted = to_text(name(text))
    assert quoted[0] == quoted[-1] == "`"
    inner, at = quoted[1:-1], 0
    while at < len(inner):
        assert inner[at] != "`"
        at += 2 if inner[at] == "\\" else 1
    assert at == len(inner), "no escape swallows the closing quote"


@given(st.text(max_size=50_000) | st.lists(st.integers(-(2**40), 2**40), max_size=20_000))
def test_large_values_are_split_without_loss(value):
    pieces = split(Literal(value, literal_type(value)))
    joined = "".join(p.value for p in pieces) if isinstance(value, str) else [v for p in pieces for v in p.value]
    assert joined == value
    assert all(len(str(bound(piece.value, piece.kind))) < 131_072 for piece in pieces)


def test_a_table_definition():
    columns = (("a`b", parse_type("Nullable(Int64)")), ("s", parse_type("String")))
    text = create_statement("t1", columns, "table", "MergeTree")
    assert text.startswith("CREATE TABLE `t1` (`aai_id` UInt64 CODEC(Delta, LZ4), `a\\`b` Nullable(Int64), `s` String)")
    assert "ORDER BY `aai_id`" in text


def test_what_we_write_other_parsers_read():
    t = table()
    for obj in (t.join(t, "k"), t.distinct("k"), t.select(r=col("v").cum_sum()), t.concat(t), t["k"].median()):
        assert sqlglot.parse_one(sql_of(obj), read="clickhouse")
