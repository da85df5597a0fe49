"""Queries over dataset names: accepted and refused ones."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aaiclick.catalog.errors import QueryRefusedError
from aaiclick.catalog.queries.allowlist import FUNCTIONS, is_function
from aaiclick.catalog.queries.table_rewrite import PhysicalTable, QueryLimits, prepare_query

COLUMNS = ("id", "k", "x", "y", "t", "s", "arr", "file")
TABLES = {
    "orders": PhysicalTable("t1", COLUMNS, database="data"),
    "people": PhysicalTable("t2", COLUMNS, final=True),
    "shop.items": PhysicalTable("t3", COLUMNS),
}


def text(query):
    return prepare_query(query, TABLES).text


@pytest.mark.parametrize(
    ("query", "runs"),
    [
        ("SELECT id FROM orders", "SELECT `id` FROM `data`.`t1` AS `orders`"),
        ("SELECT people.id FROM people", "SELECT `people`.`id` FROM `t2` AS `people` FINAL"),
        ("SELECT p.id FROM people AS p FINAL", "SELECT `p`.`id` FROM `t2` AS `p` FINAL"),
        ("SELECT shop.items.x FROM shop.items", "SELECT `items`.`x` FROM `t3` AS `items`"),
        (
            "WITH orders AS (SELECT * FROM orders) SELECT x FROM orders",
            "WITH `with orders` AS (SELECT * FROM `data`.`t1` AS `orders`) SELECT `x` FROM `with orders` AS `orders`",
        ),
        (
            "WITH t1 AS (SELECT 1 AS one) SELECT one FROM t1",
            "WITH `with t1` AS (SELECT 1 AS `one`) SELECT `one` FROM `with t1` AS `t1`",
        ),
        (
            "SELECT x FROM orders /* ; DROP */ WHERE s = 'it''s -- \\' \\\\' -- end",
            "SELECT `x` FROM `data`.`t1` AS `orders` WHERE `s` = 'it''s -- '' \\\\'",
        ),
        (
            "SELECT sumIf(x, y > 1) AS a, quantile(0.5)(x) AS b FROM orders GROUP BY k ORDER BY a LIMIT 3",
            "SELECT sumIf(`x`, `y` > 1) AS `a`, quantile(0.5)(`x`) AS `b` FROM `data`.`t1` AS `orders` GROUP BY `k` "
            "ORDER BY `a` LIMIT 3",
        ),
        (
            "SELECT o.x, e FROM orders o JOIN people p USING (k) ARRAY JOIN arr AS e "
            "WHERE o.id IN (SELECT id FROM people)",
            "SELECT `o`.`x`, `e` FROM `data`.`t1` AS `o` JOIN `t2` AS `p` FINAL USING (`k`) ARRAY JOIN `arr` AS `e` "
            "WHERE `o`.`id` IN (SELECT `id` FROM `t2` AS `people` FINAL)",
        ),
        (
            "SELECT arrayMap(e -> e + x, arr) AS m FROM orders",
            "SELECT arrayMap(`e` -> `e` + `x`, `arr`) AS `m` FROM `data`.`t1` AS `orders`",
        ),
        ("SELECT file FROM orders", "SELECT `file` FROM `data`.`t1` AS `orders`"),
    ],
)  # fmt: skip
def test_names_become_tables(query, runs):
    assert text(query) == runs


ORDINARY = [
    "SELECT toStartOfHour(t) AS h, count(DISTINCT x) AS n FROM orders GROUP BY h WITH TOTALS HAVING n > 1",
    "SELECT x::Nullable(Int64) AS a, CAST(x AS Decimal(10, 2)) AS b, t + INTERVAL 1 DAY AS c FROM orders",
    "SELECT CASE WHEN x > 1 THEN 'a' ELSE s END AS a, x > 1 ? 1 : 2 AS b, NOT x AS c, -x AS d, x BETWEEN 1 AND 2 AS e "
    "FROM orders",
    "SELECT row_number() OVER (PARTITION BY k ORDER BY t DESC ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS n "
    "FROM orders",
    "SELECT * FROM orders UNION ALL SELECT * FROM people",
    "SELECT dateDiff('day', t, now()) AS d, formatDateTime(t, '%Y-%m') AS f, s LIKE 'a%' AS l FROM orders",
    "SELECT x FROM orders ORDER BY x WITH FILL FROM 1 TO 10 STEP 1",
    "SELECT k FROM orders GROUP BY ROLLUP(k)",
    "SELECT uniqExact(k) AS u, argMax(x, t) AS a, groupArray(10)(x) AS g, anyLast(s) AS l, "
    "sumMapIf(arr, arr, x > 1) AS m FROM orders",
    "SELECT arr[1] AS a, map('k', x)['k'] AS b, tuple(x, s).1 AS c, [1, 2] AS d FROM orders",
    "SELECT JSONExtractString(s, 'a') AS j, splitByChar(',', s) AS p, trim(s) AS r, s || 'x' AS c FROM orders",
    "SELECT o.x FROM orders o ASOF LEFT JOIN people p ON o.k = p.k AND o.t >= p.t",
]  # fmt: skip


@pytest.mark.parametrize("query", ORDINARY)
def test_ordinary_queries_run(query):
    assert "`t" in text(query)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("", "empty"),
        ("--", "more than one statement|not a SELECT"),
        ("SELECT", "selects nothing|cannot be read"),
        ("SELECT FROM orders", "selects nothing|cannot be read|no column"),
        ("SELECT 1; SELECT 2", "more than one statement"),
        ("DROP TABLE orders", "DROP is not a SELECT"),
        ("INSERT INTO orders SELECT 1", "INSERT is not a SELECT"),
        ("EXPLAIN SELECT 1", "EXPLAIN is not a SELECT"),
        ("SHOW TABLES", "SHOW is not a SELECT"),
        ("DESCRIBE TABLE orders", "not a SELECT"),
        ("ALTER TABLE orders DELETE WHERE 1", "not a SELECT"),
        ("SYSTEM SHUTDOWN", "not a SELECT"),
        ("SET max_threads = 1", "not a SELECT"),
        ("SELECT * FROM system.tables", "no dataset 'system.tables'"),
        ("SELECT * FROM information_schema.tables", "no dataset"),
        ("SELECT * FROM t1", "no dataset 't1'"),
        ("SELECT * FROM data.t1", "no dataset 'data.t1'"),
        ("SELECT * FROM hidden", "no dataset 'hidden'"),
        ("SELECT (SELECT max(x) FROM hidden) AS m FROM orders", "no dataset 'hidden'"),
        ("SELECT x FROM orders WHERE x IN (SELECT x FROM hidden)", "no dataset 'hidden'"),
        ("SELECT * FROM (WITH q AS (SELECT 1 AS a) SELECT a FROM q) AS z, q", "no dataset 'q'"),
        ("SELECT x FROM orders WHERE x IN hidden", "IN takes a list"),
        ("SELECT x FROM orders WHERE x IN (hidden)", "IN takes a list"),
        ("SELECT x FROM orders WHERE x IN ((hidden))", "IN takes a list"),
        ("SELECT notIn(1, hidden) AS n FROM orders", "notIn"),
        ("SELECT * FROM numbers(10)", "not from functions such as numbers"),
        ("SELECT * FROM url('http://x')", "not from functions"),
        ("SELECT * FROM file('/etc/passwd')", "not from functions|cannot be read in this way"),
        ("SELECT * FROM remote('h', a.b)", "not from functions"),
        ("SELECT * FROM merge('a', 'b')", "not from functions"),
        ("SELECT * FROM dictionary('d')", "cannot be read in this way|not from functions"),
        ("SELECT * FROM view(SELECT 1)", "not from functions"),
        ("SELECT * FROM a.b.orders", "cannot be read in this way"),
        ("SELECT x FROM orders SETTINGS max_threads = 1", "SETTINGS"),
        ("SELECT x FROM orders FORMAT JSON", "FORMAT"),
        ("SELECT x FROM orders INTO OUTFILE 'f'", "cannot be read|INTO"),
        ("SELECT x FROM orders FOR UPDATE", "FOR UPDATE"),
        ("SELECT x FROM orders SAMPLE 0.1", "SAMPLE"),
        ("SELECT {p:Identifier} FROM orders", "parameters"),
        ("SELECT * FROM {p:Identifier}", "not from functions"),
        ("SELECT @@version", "parameters"),
        ("SELECT file('/etc/passwd') AS f", "function file is not allowed"),
        ("SELECT \"file\"('/etc/passwd') AS f", "quotes|cannot be called"),
        ("SELECT `file`('/etc/passwd') AS f", "quotes|cannot be called"),
        ("SELECT arrayMap(lower, ['A']) AS f", "no column 'lower'"),
        ("SELECT arrayMap(hostName, arr) AS f FROM orders", "no column 'hostName'"),
        ("SELECT currentUser AS u FROM orders", "no column 'currentUser'"),
        ("SELECT `currentUser` AS u FROM orders", "no column 'currentUser'"),
        ("SELECT current_user AS u FROM orders", "not allowed|no column"),
        ("SELECT sleep(3) AS s", "function sleep is not allowed"),
        ("SELECT dictGet('d', 'a', 1) AS d", "function dictGet is not allowed"),
        ("SELECT joinGet('j', 'a', 1) AS d", "function joinGet is not allowed"),
        ("SELECT hostName() AS h", "function hostName is not allowed"),
        ("SELECT version() AS v", "not allowed"),
        ("SELECT getSetting('x') AS s", "not allowed"),
        ("SELECT * APPLY(sleep) FROM orders", "not allowed"),
        ("SELECT x FROM orders WHERE hasColumnInTable('a', 'b', 'c')", "not allowed"),
        ("WITH t (a) AS (SELECT 1) SELECT a FROM t", "cannot be called|no column"),
        ("SELECT nothing FROM orders", "no column 'nothing'"),
        ("SELECT " + "(" * 5000, "too deeply"),
        ("SELECT " + "(" * 99 + "1" + ")" * 99, "too deeply|cannot be read"),
        ("SELECT 1" + " UNION ALL SELECT 1" * 3000, "too deeply"),
        ("SELECT " + "NOT " * 3000 + "1", "too deeply|words"),
        ("SELECT '" + "x" * 200_000 + "'", "too long"),
        ("SELECT '\x00'", "NUL"),
    ],
)  # fmt: skip
def test_everything_else_is_refused(query, message):
    with pytest.raises(QueryRefusedError, match=message):
        prepare_query(query, TABLES)


def test_hidden_and_missing_datasets_give_same_error():
    answers = set()
    for name in ("secret_one", "never_there"):
        with pytest.raises(QueryRefusedError) as caught:
            prepare_query(f"SELECT x FROM {name}", {})
        answers.add(str(caught.value).replace(name, "NAME"))
    assert len(answers) == 1


def test_limits_become_settings_that_throw():
    given_settings = prepare_query("SELECT 1 AS a", {}, QueryLimits(seconds=2, result_rows=5, threads=1)).settings
    assert given_settings["max_execution_time"] == 2
    assert given_settings["max_result_rows"] == 5
    assert given_settings["max_threads"] == 1
    assert given_settings["readonly"] == 2
    assert {value for key, value in given_settings.items() if key.endswith("overflow_mode")} == {"throw"}


def test_functions_with_side_effects_are_not_allowed():
    outside = """
        file url sleep sleepEachRow dictGet dictHas joinGet hostName fqdn currentUser currentDatabase getSetting
        getServerPort version uptime hasColumnInTable throwIf addressToLine demangle getMacro serverUUID queryID
        initialQueryID showCertificate catboostEvaluate in notIn globalIn shardNum filesystemAvailable evalMLMethod
        regionToName transactionID user authenticatedUser getClientHTTPHeader aiGenerate tcpPort"""
    assert {name.lower() for name in outside.split()} & FUNCTIONS == set()
    assert not any(is_function(name) for name in outside.split())
    assert is_function("uniqExactArrayIf")


SOUP = r"""
SELECT FROM WHERE orders hidden system . , ( ) * x IN file 'a' 1 ; -- /* */ WITH AS t1 UNION ALL JOIN ON = { } SETTINGS
arr -> [ ] :: String ` " \ $$ @ ? : NOT EXISTS url INTO FORMAT ARRAY
"""
tokens = st.sampled_from(SOUP.split())


@given(st.lists(tokens, min_size=1, max_size=25))
@settings(max_examples=300, deadline=None)
def test_random_tokens_never_read_another_table(soup):
    try:
        prepared = prepare_query(" ".join(["SELECT", *soup]), TABLES)
    except QueryRefusedError:
        return
    assert prepared.lineage.datasets <= set(TABLES)
    assert ";" not in re.sub(r"'(\\.|''|[^'])*'", "", prepared.text), "but within strings"
