"""Limits of queries and conditions."""

from __future__ import annotations

import pytest

from aaiclick.catalog.errors import QueryRefusedError
from aaiclick.catalog.queries.column_lineage import trace_query
from aaiclick.catalog.queries.select_parser import MAX_DEPTH, find_datasets_read
from aaiclick.data.errors import WhereError, suggest_name
from aaiclick.data.expressions.where_parser import parse_where
from aaiclick.data.types import parse_type

SCHEMA = {"d": ["a", "b", "c"]}
SELECTS = {
    "nested subqueries": ("SELECT * FROM " + "(SELECT * FROM " * 40 + "d" + " CROSS JOIN d AS b)" * 40, "deeply"),
    "doubling names": (
        "WITH t0 AS (SELECT a FROM d), "
        + ", ".join(
            f"t{number} AS (SELECT * FROM t{number - 1} AS x CROSS JOIN t{number - 1} AS y)" for number in range(1, 40)
        )
        + " SELECT * FROM t39",
        "columns|large",
    ),
    "stars": ("SELECT " + ",".join("*" * 9000) + " FROM d", "columns"),
    "joins": (
        "SELECT 1 AS x FROM d" + "".join(f" JOIN d AS d{n} ON d{n}.a = d.a" for n in range(600)),
        "tables, joins",
    ),
    "unions": (" UNION ALL ".join(["SELECT a FROM d"] * 190), "tables, joins|deeply"),
    "brackets": ("SELECT " + "CASE WHEN a THEN " * MAX_DEPTH + "1" + " END" * MAX_DEPTH + " AS x FROM d", "deeply"),
    "lambdas": ("SELECT " + "arrayMap(x -> " * 10 + "a" + ",[1])" * 10 + " FROM d", "deeply"),
    "types before brackets": ("SELECT " + "date (" * 10 + "a" + ")" * 10 + " FROM d", "deeply"),
    "words": ("SELECT a FROM d WHERE a IN (" + ",".join(["1"] * 20_000) + ")", "words"),
    "text": ("SELECT '" + "a" * 100_000 + "' AS x FROM d", "too long"),
    "operators": ("SELECT " + "+".join(["a"] * 210) + " AS x FROM d", "deeply"),
    "dots": ("SELECT " + ".".join(["a"] * 1000) + " FROM d", "deeply"),
}


@pytest.mark.parametrize(("text", "message"), SELECTS.values(), ids=SELECTS)
def test_a_query_past_a_limit_is_refused(text: str, message: str) -> None:
    with pytest.raises(QueryRefusedError, match=message):
        trace_query(text, SCHEMA)


def test_query_with_too_many_steps_is_refused() -> None:
    """Each relation is within the limit, all together are not."""
    names = ", ".join(f"a AS c{number}" for number in range(3000))
    tables = ", ".join(f"t{number} AS (SELECT * FROM t{number - 1})" for number in range(1, 100))
    with pytest.raises(QueryRefusedError, match="too large to analyse"):
        trace_query(f"WITH t0 AS (SELECT {names} FROM d), {tables} SELECT * FROM t99", SCHEMA)


def test_queries_within_the_limits_are_read() -> None:
    depth = MAX_DEPTH // 3
    assert find_datasets_read("SELECT " + "(" * depth + "a" + ")" * depth + " FROM d") == {"d"}
    assert find_datasets_read("SELECT arrayMap(x -> arrayMap(y -> x + y, [1]), [2]) AS z FROM d") == {"d"}
    assert find_datasets_read("SELECT date(a) AS x, toDate('2024-01-01') AS y FROM d WHERE a > date '2024-01-01'") == {
        "d"
    }
    many = ",".join(map(str, range(9000)))
    assert find_datasets_read(f"SELECT a FROM d WHERE a IN ({many})") == {"d"}
    joined = "SELECT d.a FROM d" + "".join(f" JOIN d AS d{number} ON d{number}.a = d.a" for number in range(100))
    assert trace_query(joined, SCHEMA).datasets == {"d"}


def test_a_pattern_of_columns_takes_linear_time() -> None:
    """Backtracking regular expressions take exponential time for this pattern."""
    schema = {"d": ["a" * 5000 + "b", "aaa"]}
    lineage = trace_query("SELECT COLUMNS('^(a+)+$') FROM d", schema)
    assert list(lineage.columns) == ["aaa"]
    with pytest.raises(QueryRefusedError, match="pattern"):
        trace_query("SELECT COLUMNS('(') FROM d", schema)


def test_repeated_names_are_numbered() -> None:
    assert list(trace_query("SELECT a, a, a_2, a FROM d", {"d": ["a", "a_2"]}).columns) == ["a", "a_2", "a_2_2", "a_3"]


WHERE = {"a": parse_type("Int64"), "date": parse_type("Date32"), "s": parse_type("String")}


@pytest.mark.parametrize(
    "text",
    [
        "date (" * 30 + "a" + ")" * 30,
        "date [" * 30 + "a" + "][1]" * 30,
        "date date date 'x' = a",
        "(" * 100 + "a" + ")" * 100 + " = 1",
        "a IN (" + "1," * 40_000 + "1)",
        "(" * 10 + "a" + " BETWEEN 0 AND 1)" * 10,
        "NOT " * 300 + "a = 1",
        " OR ".join(["a = 1"] * 1000),
    ],
)
def test_a_condition_past_a_limit_is_refused(text: str) -> None:
    with pytest.raises(WhereError):
        parse_where(text, WHERE)


@pytest.mark.parametrize(
    "text",
    [
        "date > '2024-01-01' AND NOT a % 3 = 0",
        "(a + 1) * -2 BETWEEN -5 AND 5 OR s LIKE 'x%'",
        "CASE WHEN a > 1 THEN s ELSE 'y' END = 'y'",
        "a NOT IN (1, -2) AND s IS NOT NULL",
        "length(s) > .5 AND if(a > 1, true, false)",
        "a IN (" + ",".join(map(str, range(5000))) + ")",
        " OR ".join(["a = 1"] * 90),
    ],
)
def test_plain_conditions_are_read(text: str) -> None:
    assert parse_where(text, WHERE).type.is_bool


def test_very_long_names_get_no_suggestion() -> None:
    assert "Did you mean" not in suggest_name("a" * 100_000, ["a" * 99_999])
    assert len(suggest_name("b", ["a" * 100_000])) < 1000
    assert suggest_name("colunm", ["column"]) == "Did you mean 'column'?"
