"""Column lineage of queries."""

from __future__ import annotations

import pytest

from aaiclick.catalog.errors import LineageError, QueryRefusedError
from aaiclick.catalog.queries.column_lineage import trace_query
from aaiclick.catalog.queries.select_parser import find_datasets_read

SCHEMAS = {
    "orders": ["id", "customer_id", "amount", "currency", "placed_at", "tags", "lines.price", "lines.sku"],
    "customers": ["id", "name", "country", "parent_id", "signed_at"],
    "rates": ["currency", "at", "rate"],
    "events": ["user", "kind", "at", "properties", "session"],
    "shop.items": ["sku", "title", "price"],
    "opaque": None,
}

# Each case: the query; the sources of every output column; the sources of the rows.
CASES = {
    "columns and arithmetic": (
        "SELECT id, amount * 2 AS double, amount + id AS both FROM orders",
        {"id": "orders.id", "double": "orders.amount", "both": "orders.amount orders.id"},
        "",
    ),
    "star of a join names what comes twice": (
        "SELECT * FROM orders AS o JOIN customers AS c ON o.customer_id = c.id",
        {
            "id": "orders.id", "customer_id": "orders.customer_id", "amount": "orders.amount",
            "currency": "orders.currency", "placed_at": "orders.placed_at", "tags": "orders.tags",
            "lines.price": "orders.lines.price", "lines.sku": "orders.lines.sku", "c.id": "customers.id",
            "name": "customers.name", "country": "customers.country", "parent_id": "customers.parent_id",
            "signed_at": "customers.signed_at",
        },
        "orders.customer_id customers.id",
    ),
    "star with exceptions and replacements": (
        "SELECT * EXCEPT (parent_id, signed_at) REPLACE (upper(country) AS country, concat(name, country) AS name) "
        "FROM customers",
        {"id": "customers.id", "name": "customers.name customers.country", "country": "customers.country"},
        "",
    ),
    "one side's star": (
        "SELECT c.*, o.amount FROM orders o LEFT JOIN customers c ON c.id = o.customer_id WHERE o.currency = 'EUR'",
        {
            "c.id": "customers.id", "name": "customers.name", "country": "customers.country",
            "parent_id": "customers.parent_id", "signed_at": "customers.signed_at", "amount": "orders.amount",
        },
        "customers.id orders.customer_id orders.currency",
    ),
    "three tables": (
        "SELECT a.id, b.id, c.* FROM customers a JOIN customers b ON b.id = a.parent_id "
        "JOIN shop.items c ON c.sku = a.name",
        {
            "a.id": "customers.id", "b.id": "customers.id", "sku": "shop.items.sku", "title": "shop.items.title",
            "price": "shop.items.price",
        },
        "customers.id customers.parent_id shop.items.sku customers.name",
    ),
    "chained WITH": (
        """
        WITH paid AS (SELECT customer_id, amount FROM orders WHERE amount > 0),
             totals AS (SELECT customer_id AS who, sum(amount) AS total FROM paid GROUP BY customer_id)
        SELECT name, total FROM totals JOIN customers ON who = customers.id
        """,
        {"name": "customers.name", "total": "orders.amount"},
        "orders.amount orders.customer_id customers.id",
    ),
    "a WITH that hides the dataset it reads": (
        "WITH orders AS (SELECT id AS number, amount FROM orders) SELECT number, amount FROM orders",
        {"number": "orders.id", "amount": "orders.amount"},
        "",
    ),
    "a single value in WITH": (
        "WITH (SELECT max(rate) FROM rates) AS best, 100 AS hundred SELECT amount * best / hundred AS most FROM orders",
        {"most": "orders.amount rates.rate"},
        "",
    ),
    "aggregates with conditions": (
        "SELECT currency, sumIf(amount, placed_at > '2026-01-01') AS recent, count() AS n, "
        "quantile(0.9)(amount) AS p90, argMax(id, placed_at) AS latest, uniqExact(customer_id) AS buyers "
        "FROM orders GROUP BY currency HAVING count() > 10",
        {
            "currency": "orders.currency", "recent": "orders.amount orders.placed_at", "n": "", "p90": "orders.amount",
            "latest": "orders.id orders.placed_at", "buyers": "orders.customer_id",
        },
        "orders.currency",
    ),
    "windows, inline and named": (
        "SELECT id, row_number() OVER (PARTITION BY customer_id ORDER BY placed_at) AS nth, "
        "sum(amount) OVER w AS running, lagInFrame(amount) OVER w AS before FROM orders "
        "WINDOW w AS (PARTITION BY currency ORDER BY placed_at ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)",
        {
            "id": "orders.id", "nth": "orders.customer_id orders.placed_at",
            "running": "orders.amount orders.currency orders.placed_at",
            "before": "orders.amount orders.currency orders.placed_at",
        },
        "",
    ),
    "a union by position": (
        "SELECT id AS key, amount AS value FROM orders WHERE amount > 1 "
        "UNION ALL SELECT customers.id, length(name) FROM customers",
        {"key": "orders.id customers.id", "value": "orders.amount customers.name"},
        "orders.amount",
    ),
    "a union under a join": (
        "SELECT u.key, country FROM (SELECT id AS key FROM orders UNION DISTINCT SELECT id FROM customers) AS u "
        "JOIN customers AS c ON c.id = u.key",
        {"key": "orders.id customers.id", "country": "customers.country"},
        "orders.id customers.id",
    ),
    "except takes values from the left": (
        "SELECT id FROM customers EXCEPT SELECT customer_id FROM orders",
        {"id": "customers.id"},
        "orders.customer_id",
    ),
    "case with conditions from elsewhere": (
        "SELECT CASE WHEN country = 'DE' THEN amount ELSE 0 END AS home, "
        "multiIf(amount > 100, 'big', currency = 'EUR', name, 'rest') AS label, if(amount > 1, id, NULL) AS maybe "
        "FROM orders JOIN (SELECT id AS cid, country, name FROM customers) AS c ON cid = customer_id",
        {
            "home": "customers.country orders.amount", "label": "orders.amount orders.currency customers.name",
            "maybe": "orders.amount orders.id",
        },
        "customers.id orders.customer_id",
    ),
    "array join with and without alias": (
        "SELECT id, tag, upper(tag) AS loud, tags FROM orders ARRAY JOIN tags AS tag, arrayEnumerate(tags) AS n "
        "WHERE n < 3",
        {"id": "orders.id", "tag": "orders.tags", "loud": "orders.tags", "tags": "orders.tags"},
        "orders.tags",
    ),
    "nested columns": (
        "SELECT id, sku, price FROM orders ARRAY JOIN lines.sku AS sku, lines.price AS price",
        {"id": "orders.id", "sku": "orders.lines.sku", "price": "orders.lines.price"},
        "orders.lines.sku orders.lines.price",
    ),
    "functions of functions": (
        "SELECT arrayMap(tag -> concat(tag, currency), tags) AS labels, "
        "arrayFilter((t, i) -> i > 1 AND t != name, tags, arrayEnumerate(tags)) AS tail FROM orders, customers",
        {"labels": "orders.tags orders.currency", "tail": "orders.tags customers.name"},
        "",
    ),
    "aliases used beside their definition": (
        "SELECT amount * rate AS euros, euros * 0.19 AS tax, euros + tax AS total, amount + 1 AS amount "
        "FROM orders JOIN rates USING (currency)",
        {
            "euros": "orders.amount rates.rate", "tax": "orders.amount rates.rate",
            "total": "orders.amount rates.rate", "amount": "orders.amount",
        },
        "orders.currency rates.currency",
    ),
    "using, from each side": (
        "SELECT currency, rate FROM orders RIGHT JOIN rates USING (currency)",
        {"currency": "rates.currency", "rate": "rates.rate"},
        "orders.currency rates.currency",
    ),
    "full join using": (
        "SELECT currency FROM orders FULL JOIN rates USING (currency)",
        {"currency": "orders.currency rates.currency"},
        "orders.currency rates.currency",
    ),
    "an as-of join": (
        "SELECT o.id, r.rate FROM orders AS o ASOF LEFT JOIN rates AS r "
        "ON o.currency = r.currency AND o.placed_at >= r.at",
        {"id": "orders.id", "rate": "rates.rate"},
        "orders.currency rates.currency orders.placed_at rates.at",
    ),
    "correlated and plain subqueries": (
        "SELECT name, (SELECT max(amount) FROM orders WHERE customer_id = customers.id) AS most, "
        "id IN (SELECT customer_id FROM orders WHERE currency = 'EUR') AS european FROM customers "
        "WHERE EXISTS (SELECT 1 FROM events WHERE user = customers.name)",
        {
            "name": "customers.name", "most": "orders.amount orders.customer_id customers.id",
            "european": "customers.id orders.customer_id orders.currency",
        },
        "events.user customers.name",
    ),
    "a recursive WITH": (
        "WITH RECURSIVE up AS (SELECT id, parent_id, name AS path FROM customers WHERE parent_id = 0 UNION ALL "
        "SELECT c.id, c.parent_id, concat(up.path, '/', c.country) FROM customers AS c JOIN up ON c.parent_id = up.id) "
        "SELECT id, path FROM up",
        {"id": "customers.id", "path": "customers.name customers.country"},
        "customers.parent_id customers.id",
    ),
    "positions, limits and order": (
        "SELECT kind, count() AS n FROM events GROUP BY 1 ORDER BY 2 DESC, max(session) LIMIT 5",
        {"kind": "events.kind", "n": ""},
        "events.kind events.session",
    ),
    "order without limit decides no rows": ("SELECT user FROM events ORDER BY at", {"user": "events.user"}, ""),
    "a dataset of another DAG, by both names": (
        "SELECT shop.items.title, items.price AS p FROM shop.items WHERE sku LIKE 'a%'",
        {"title": "shop.items.title", "p": "shop.items.price"},
        "shop.items.sku",
    ),
    "columns by pattern": (
        "SELECT COLUMNS('^c') FROM orders",
        {"customer_id": "orders.customer_id", "currency": "orders.currency"},
        "",
    ),
    "three levels of subqueries": (
        "SELECT a + 1 AS b FROM (SELECT sum(x) AS a FROM (SELECT amount AS x, id FROM orders WHERE tags != []) "
        "WHERE id > 1)",
        {"b": "orders.amount"},
        "orders.tags orders.id",
    ),
    "grouping by an alias, all of it, casts": (
        "SELECT toStartOfDay(placed_at) AS day, CAST(amount AS String) AS text, amount::Int64 AS whole, "
        "sum(id) AS s FROM orders GROUP BY ALL",
        {"day": "orders.placed_at", "text": "orders.amount", "whole": "orders.amount", "s": "orders.id"},
        "orders.placed_at orders.amount",
    ),
    "a dataset whose columns are not known": (
        "SELECT o.amount, x.anything, something FROM orders AS o JOIN opaque AS x ON x.k = o.id",
        {"amount": "orders.amount", "anything": "opaque.anything", "something": "opaque.something"},
        "opaque.k orders.id",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_columns_come_from(case):
    text, columns, rows = CASES[case]
    lineage = trace_query(text, SCHEMAS)
    traced = {name: {str(ref) for ref in refs} for name, refs in lineage.columns.items()}
    assert traced == {name: set(refs.split()) for name, refs in columns.items()}
    assert {str(ref) for ref in lineage.rows} == set(rows.split())


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("SELECT 1", set()),
        ("SELECT * FROM a, b AS c WHERE x IN (SELECT y FROM d.e)", {"a", "b", "d.e"}),
        ("WITH a AS (SELECT * FROM a), b AS (SELECT * FROM a) SELECT * FROM b", {"a"}),
        ("WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n FROM r) SELECT * FROM r", set()),
        ("SELECT * FROM (WITH q AS (SELECT 1) SELECT * FROM q) AS z, q", {"q"}),
        ("SELECT (SELECT max(x) FROM s) AS m FROM t FINAL UNION ALL SELECT 1 FROM u", {"s", "t", "u"}),
    ],
)
def test_query_lists_datasets_read(text, read):
    assert find_datasets_read(text) == read


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT amuont FROM orders", "no column 'amuont'.*\n.*'amount'"),
        ("SELECT x.id FROM orders", "no column 'x.id'"),
        ("SELECT * FROM opaque", "columns of 'opaque' are not known"),
        ("SELECT id FROM ordres", "no dataset 'ordres'.*\n.*'orders'"),
        ("SELECT z.* FROM orders", "no table 'z'"),
        ("SELECT a AS b, b AS a FROM orders", "refers to itself|no column"),
        ("SELECT id FROM orders UNION ALL SELECT id, name FROM customers", "1 and 2 columns"),
        ("SELECT id FROM orders JOIN events USING (id)", "both sides of USING"),
        ("SELECT sum(id) OVER w FROM orders", "no window 'w'"),
        ("SELECT arrayMap(file, tags) FROM orders", "no column 'file'"),
        ("SELECT currentUser FROM orders", "no column 'currentUser'"),
        ("SELECT arrayMap(x -> y, tags) FROM orders", "no column 'y'"),
        ("SELECT COLUMNS('(') FROM orders", "pattern"),
    ],
)
def test_a_name_that_cannot_be_resolved_is_refused(text, message):
    with pytest.raises(LineageError, match=message):
        trace_query(text, SCHEMAS)


def test_unnamed_outputs_are_reported():
    assert trace_query("SELECT id, count(), sum(amount) AS s FROM orders GROUP BY id", SCHEMAS).unnamed == ("count()",)


def test_deep_query_is_refused():
    with pytest.raises(QueryRefusedError, match="too deeply"):
        trace_query("SELECT " + " + ".join(["id"] * 5000) + " FROM orders", SCHEMAS)
