"""View conditions: allowed syntax is parsed, everything else is rejected."""

from __future__ import annotations

import pytest

from aaiclick.data.errors import ColumnNotFoundError, DataError, WhereError
from aaiclick.data.expressions.where_parser import format_where, parse_where
from aaiclick.data.types import parse_type

SCHEMA = {
    name: parse_type(dtype)
    for name, dtype in {
        "value": "Int64",
        "name": "Nullable(String)",
        "d": "Date32",
        "t": "DateTime64(6, 'UTC')",
        "u": "UUID",
        "price": "Decimal(18, 2)",
        "ok": "Bool",
        "x y": "Float64",
        "tags": "Array(String)",
    }.items()
}

GOOD = [
    ("value > 100", "(`value` > 100)"),
    ("value>1 AND name='x'", "((`value` > 1) AND (`name` = 'x'))"),
    ("value IN (1, -2, 3)", "(`value` IN (1, -2, 3))"),
    ("name NOT IN ('a', 'b')", "(NOT (`name` IN ('a', 'b')))"),
    ("value BETWEEN 1 AND 5", "((`value` >= 1) AND (`value` <= 5))"),
    ("name IS NULL OR name LIKE 'a%'", "((`name` IS NULL) OR (`name` LIKE 'a%'))"),
    ("name IS NOT NULL", "(NOT (`name` IS NULL))"),
    ("d >= '2024-01-31'", "(`d` >= '2024-01-31')"),
    ("t < '2024-01-31 12:00:00'", "(`t` < '2024-01-31 12:00:00+00:00')"),
    ("u = '61f0c404-5cb3-11e7-907b-a6006ad3dba0'", "(`u` = '61f0c404-5cb3-11e7-907b-a6006ad3dba0')"),
    ("price > '1.50'", "(`price` > '1.50')"),
    ("ok", "`ok`"),
    ("NOT ok", "(NOT `ok`)"),
    ("`x y` / 2 > 1.5", "((`x y` / 2) > 1.5)"),
    ("lower(name) = 'a'", "(lowerUTF8(`name`) = 'a')"),
    ("length(name) > 3", "(length(`name`) > 3)"),
    ("has(tags, 'x')", "has(`tags`, 'x')"),
    ("value % 10 = 3", "((`value` % 10) = 3)"),
    ("CASE WHEN value > 1 THEN true ELSE false END", "CASE WHEN (`value` > 1) THEN true ELSE false END"),
    ("name = 'it\\'s -- not /* a */ comment; #'", "(`name` = 'it\\'s -- not /* a */ comment; #')"),
    ("-value < -5", "((-`value`) < -5)"),
    ("toYear(d) = 2024", "(toYear(`d`) = 2024)"),
]


@pytest.mark.parametrize(("text", "canonical"), GOOD)
def test_conditions_round_trip_as_text(text, canonical):
    node = parse_where(text, SCHEMA)
    written = format_where(node)
    assert written.lower() == canonical.lower()
    assert parse_where(written, SCHEMA) == node, "the formatted condition parses to the same node"


ATTACKS = [
    "1",
    "",
    "   ",
    "value",
    "value > 1; DROP TABLE t1",
    "value > 1;",
    ";value > 1",
    "value > 1 -- comment",
    "-- comment\nvalue > 1",
    "value > 1 /* c */",
    "/* c */ value > 1",
    "value /* c */ > 1",
    "value > 1 # comment",
    "value > 1 UNION ALL SELECT 1",
    "value > 1) UNION ALL SELECT (1",
    "value > (SELECT 1)",
    "value IN (SELECT 1)",
    "value IN (SELECT * FROM system.users)",
    "EXISTS (SELECT 1)",
    "value > 1 OR (SELECT count() FROM system.tables) > 0",
    "value > 1 SETTINGS max_threads = 1",
    "value > 1 FORMAT JSON",
    "value > 1 INTO OUTFILE '/tmp/x'",
    "value > 1 LIMIT 1",
    "value > 1 ORDER BY value",
    "value > 1 GROUP BY value",
    "value > 1 HAVING 1",
    "file('/etc/passwd') = 'x'",
    "url('http://169.254.169.254/') = 'x'",
    "s3('http://x') = 'y'",
    "remote('127.0.0.1', system.one) = 1",
    "mysql('h:3306', 'd', 't', 'u', 'p') = 1",
    "executable('ls') = 1",
    "dictGet('d', 'a', value) = 1",
    "joinGet('t', 'a', value) = 1",
    "sleep(3) = 0",
    "sleepEachRow(1) = 0",
    "throwIf(value > 1) = 0",
    "hostName() = 'x'",
    "currentUser() = 'x'",
    "getSetting('max_threads') = 1",
    "getMacro('x') = 'y'",
    "catboostEvaluate('/tmp/m', value) > 1",
    "fuzzBits(name, 0.5) = 'x'",
    "arrayExists(x -> x = 'a', tags)",
    "arrayMap(x -> sleep(3), tags) = []",
    "x -> x > 1",
    "value AS v > 1",
    "(value > 1 AS v)",
    "system.one.dummy = 0",
    "t1.value > 1",
    "other.t1.value > 1",
    "* = 1",
    "COLUMNS('.*') = 1",
    "value > {p:Int64}",
    "value > ?",
    "value > @x",
    "value > :x",
    "CAST(value AS String) = file('/etc/passwd')",
    "sum(value) > 1",
    "count() > 1",
    "row_number() OVER () = 1",
    "sum(value) OVER (PARTITION BY name) > 1",
    "INSERT INTO t VALUES (1)",
    "SELECT 1",
    "WITH 1 AS x SELECT x",
    "DROP TABLE t1",
    "CREATE TABLE x (y Int8)",
    "ALTER TABLE t DELETE WHERE 1",
    "SYSTEM SHUTDOWN",
    "KILL QUERY WHERE 1",
    "SET max_threads = 1",
    "GRANT ALL ON *.* TO x",
    "value = 1 = 'x",
    "name = 'a' 'b' --",
    "value > 1 AND",
    "((((value > 1",
    "value > 1\x00",
    "name = $$heredoc$$",
    "value > 0x1F; SELECT 1",
    "[1,2,3][value] = 1",
    "tags[1] = 'x'",
    "(value, name) = (1, 'a')",
    "(value, name) IN ((1, 'a'))",
    "map('a', value)['a'] = 1",
    "value IN t1",
    "value GLOBAL IN (SELECT 1)",
    "name REGEXP (SELECT 'x')",
    "value ? 1 : 0",
    "interval 1 day > 1",
    "now() > t",
    "rand() > 1",
    "name COLLATE 'en' = 'x'",
    "value::String = 'x'",
    "DATE '2024-01-01' = d",
    "extract(year FROM d) = 2024 AND file('x')",
    "(" * 500 + "ok" + ")" * 500,
    "NOT " * 2000 + "ok",
]


@pytest.mark.parametrize("text", ATTACKS, ids=lambda text: repr(text[:50]))
def test_attacks_are_rejected(text):
    with pytest.raises(DataError) as caught:
        parse_where(text, SCHEMA)
    assert isinstance(caught.value, WhereError | ColumnNotFoundError | DataError)
    assert str(caught.value).strip()


def test_there_are_enough_attacks():
    assert len(set(ATTACKS)) >= 60


def test_unknown_column_suggests_the_closest():
    with pytest.raises(ColumnNotFoundError, match="Did you mean 'value'"):
        parse_where("valeu > 1", SCHEMA)


def test_error_names_the_forbidden_syntax():
    with pytest.raises(WhereError, match="cannot call file"):
        parse_where("file('/etc/passwd') = 'x'", SCHEMA)
    with pytest.raises(WhereError, match="comment"):
        parse_where("value > 1 -- x", SCHEMA)
    with pytest.raises(WhereError, match=r"IN takes a list|cannot contain"):
        parse_where("value IN (SELECT 1)", SCHEMA)
