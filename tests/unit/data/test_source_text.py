"""The representation of an expression is the Python text that builds it."""

from __future__ import annotations

from datetime import timedelta

import pytest

import aaiclick.data
from aaiclick.data import case, col

TEXTS = [
    'col("x")',
    'col("x") + 1',
    '(col("x") + 1) * 2',
    'col("x") + col("y") * 2',
    'col("x") - (col("y") - 1)',
    '-(col("x") + 1) ** 2',
    '~(col("x") > 1) & (col("s") == "a\\"b")',
    'col("x") // 2 % 3',
    '(col("x") > 1).if_else("a", None)',
    'col("x").fill_nan(0.5)',
    'col("x").sum() / length()',
    'col("x").cast("Int64")',
    'col("x").round(2)',
    'col("x").quantile(0.5)',
    'col("s").str.upper().str.contains("A")',
    'col("t").dt.year()',
    'col("t").dt.add(days=1)',
    'col("l").list.get(0)',
    'col("l").list.len()',
    'col("j").json.has("a")',
    'col("x").isin([1, 2])',
    'col("x").cum_sum()',
    'col("x").rolling("mean", 3)',
    'col("x").shift(1)',
    'col("x").sum().over(col("k"))',
    'col("x").rank()',
    'col("x").first()',
    'col("x").filter(col("b")).sum()',
    'col("x").filter(col("b")).first()',
    'col("a", "b") * 2',
    'exclude("a").max()',
    'of_type("numeric")',
    "all_columns()",
    '1 - col("x")',
    "row_number()",
    "length()",
    "row_index()",
    "col(\"x\").alias('y')",
    "col(\"x\").sum().suffix('_sum')",
]
NAMES = {name: getattr(aaiclick.data, name) for name in aaiclick.data.__all__}


@pytest.mark.parametrize("text", TEXTS)
def test_an_expression_is_shown_as_it_is_written(text):
    expression = eval(text, NAMES)
    shown = repr(expression)
    rebuilt = eval(shown, NAMES)
    assert rebuilt.node == expression.node, shown
    if "fill_nan" not in text:
        assert shown == text


def test_expressions_without_a_text_of_their_own_are_shown():
    assert "lambda" in repr(col("l").list.map(lambda x: x + 1))
    assert repr(col("t") + timedelta(days=1)) == 'col("t") + datetime.timedelta(days=1)'
    assert "case" in repr(case((col("x") > 1, 2), otherwise=3))
